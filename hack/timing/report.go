package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// shown is the number of packages and tests in the tables.
const shown = 25

// tolerance is the factor by which a package may exceed its budget, because machines and runs differ.
const tolerance = 3

// budgets are processor seconds that the test process of a package may cost.
type budgets struct {
	byPackage map[string]time.Duration
	others    time.Duration // of packages that are not named
}

// parseBudgets reads lines of a package's directory, "*" for all packages that are not named, and seconds. Lines that begin with # are
// comments.
func parseBudgets(from io.Reader) (budgets, error) {
	b := budgets{byPackage: map[string]time.Duration{}}
	lines := bufio.NewScanner(from)
	for number := 1; lines.Scan(); number++ {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) != 2 {
			return b, fmt.Errorf("line %d: got %q, want a directory and seconds", number, lines.Text())
		}
		limit, err := seconds(fields[1])
		if err != nil {
			return b, fmt.Errorf("line %d: %w", number, err)
		}
		if fields[0] == "*" {
			b.others = limit
		} else {
			b.byPackage[fields[0]] = limit
		}
	}
	return b, lines.Err()
}

func (b budgets) of(name string) time.Duration {
	if limit, found := b.byPackage[name]; found {
		return limit
	}
	return b.others
}

// exceeded returns a line for each package that exceeds its budget by far, in their order.
func (b budgets) exceeded(packages []note) []string {
	var lines []string
	for _, p := range packages {
		if limit := b.of(p.name); p.processor > tolerance*limit {
			lines = append(lines, fmt.Sprintf("%s costs %.0f processor seconds, more than %d times its budget of %.0f", p.name, p.processor.Seconds(), tolerance, limit.Seconds()))
		}
	}
	return lines
}

// report prints the tables, and why tests failed. It fails if a package exceeds its budget by far.
func report(out io.Writer, notes notes, budgetsFile string) error {
	all, err := notes.read()
	if err != nil {
		return err
	}
	file, err := os.Open(budgetsFile)
	if err != nil {
		return err
	}
	defer file.Close()
	limits, err := parseBudgets(file)
	if err != nil {
		return fmt.Errorf("%s: %w", budgetsFile, err)
	}
	packages := packagesOf(all)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "\nSTEP\tWALL s\tPROCESSOR s\n")
	for _, n := range all {
		if n.kind == kindStep {
			fmt.Fprintf(table, "%s\t%.0f\t%.0f\n", n.name, n.wall.Seconds(), n.processor.Seconds())
		}
	}
	var sum time.Duration
	for _, p := range packages {
		sum += p.processor
	}
	fmt.Fprintf(table, "\nPACKAGE (the %d of %d that take longest; all cost %.0f processor s)\tWALL s\tPROCESSOR s\tBUDGET s\n", min(shown, len(packages)), len(packages), sum.Seconds())
	for _, p := range slowest(packages) {
		fmt.Fprintf(table, "%s\t%.1f\t%.1f\t%.0f\n", p.name, p.wall.Seconds(), p.processor.Seconds(), limits.of(p.name).Seconds())
	}
	tests := slices.DeleteFunc(slices.Clone(all), func(n note) bool { return n.kind != kindTest })
	fmt.Fprintf(table, "\nTEST (the %d of %d that take longest)\tWALL s\n", min(shown, len(tests)), len(tests))
	for _, t := range slowest(tests) {
		fmt.Fprintf(table, "%s\t%.1f\n", t.name, t.wall.Seconds())
	}
	if err := table.Flush(); err != nil {
		return err
	}
	reportFailures(out, all)
	if lines := limits.exceeded(packages); len(lines) > 0 {
		return errors.New(strings.Join(lines, "\n") + "\nMake the tests cheaper, or change " + budgetsFile + " with the reason in the commit (CONTRIBUTING.md, \"What a test may cost\").")
	}
	return nil
}

// reportFailures prints the failed tests, and why they failed. It does so last: the end of the output is what readers see first.
func reportFailures(out io.Writer, all []note) {
	failures := slices.DeleteFunc(slices.Clone(all), func(n note) bool { return n.kind != kindFailure })
	if len(failures) > 0 {
		fmt.Fprintln(out, "\nFAILED")
	}
	for _, failed := range failures {
		fmt.Fprintln(out, failed.name)
		for _, line := range failed.reason {
			fmt.Fprintln(out, "  "+line)
		}
	}
}

// packagesOf returns one note for each package, with the sums of its runs, by name.
func packagesOf(all []note) []note {
	sums := map[string]note{}
	for _, n := range all {
		if n.kind == kindPackage {
			sum := sums[n.name]
			sums[n.name] = note{kind: n.kind, name: n.name, wall: sum.wall + n.wall, processor: sum.processor + n.processor}
		}
	}
	return slices.SortedFunc(maps.Values(sums), func(a, b note) int { return cmp.Compare(a.name, b.name) })
}

func slowest(all []note) []note {
	sorted := slices.SortedStableFunc(slices.Values(all), func(a, b note) int { return cmp.Compare(b.wall, a.wall) })
	return sorted[:min(shown, len(sorted))]
}
