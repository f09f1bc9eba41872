package bench

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"
)

// selectedBenchmarks returns the names of the benchmarks that -test.bench selects, or nil if it is not set or
// benchmarks are only listed.
func selectedBenchmarks() []string {
	pattern := flag.Lookup("test.bench").Value.String()
	if pattern == "" || flag.Lookup("test.list").Value.String() != "" {
		return nil
	}
	filter, err := regexp.Compile(strings.Split(pattern, "/")[0])
	if err != nil {
		return nil // the testing package reports the error
	}
	program, err := os.Executable()
	if err != nil {
		return nil
	}
	listed, err := exec.Command(program, "-test.list", "^Benchmark").Output()
	if err != nil {
		return nil
	}
	var names []string
	for _, name := range strings.Fields(string(listed)) {
		if filter.MatchString(name) {
			names = append(names, name)
		}
	}
	return names
}

// continueVariable is set for a process that appends to the output file of the processes before it.
const continueVariable = "BENCH_CONTINUE"

// runSeparately runs each benchmark in a separate process, one after the other, with the flags of this one. Each
// appends its figures to the output file, which starts empty. It returns the exit code of this process.
func runSeparately(names []string) (code int) {
	fail := func(name string, err error) {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		code = 1
	}
	program, err := os.Executable()
	if err != nil {
		fail("finding this program", err)
		return code
	}
	if err := writeFigures([]Figure{}); err != nil {
		fail("writing the figures", err)
		return code
	}
	programs, err := os.MkdirTemp("", "bench-")
	if err != nil {
		fail("creating a directory for programs", err)
		return code
	}
	defer os.RemoveAll(programs)
	for i, name := range names {
		fmt.Fprintf(os.Stderr, "bench: %s, %s after the start of the run: %s, %d of %d\n", time.Now().Format(time.TimeOnly), time.Since(startTime).Round(time.Second), name, i+1, len(names))
		command := exec.Command(program, append(os.Args[1:], "-test.run=^$", "-test.bench=^"+name+"$")...)
		command.Env = append(os.Environ(), continueVariable+"=1", programsVariable+"="+programs)
		command.Stdout, command.Stderr = os.Stdout, os.Stderr
		if err := command.Run(); err != nil {
			fail(name, err)
		}
	}
	return code
}

// loadFigures returns the figures of the processes before this one.
func loadFigures() ([]Figure, error) {
	if os.Getenv(continueVariable) == "" {
		return nil, nil
	}
	raw, err := os.ReadFile(outputFile())
	if err != nil {
		return nil, err
	}
	var figures []Figure
	return figures, json.Unmarshal(raw, &figures)
}

// writeFigures replaces the output file atomically: an interrupted write keeps the previous figures.
func writeFigures(all []Figure) error {
	raw, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	next := outputFile() + ".next"
	if err := os.WriteFile(next, append(raw, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(next, outputFile())
}
