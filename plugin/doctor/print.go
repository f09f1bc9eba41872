package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf16"

	"sigs.k8s.io/yaml"
)

// printReport writes a report in a format: "", "json" or "yaml".
func printReport(out io.Writer, report *Report, format string) error {
	switch format {
	case "json":
		text, err := json.MarshalIndent(report, "", "  ")
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(out, escaped(string(text)))
		return err
	case "yaml":
		text, err := yaml.Marshal(report)
		if err != nil {
			return err
		}
		_, err = out.Write(text)
		return err
	}
	return printTable(out, report)
}

// maxDetail bounds what the table shows of an object, a message and the text of a server. The other formats have all of it.
const maxDetail = 200

// printTable writes the findings, then what was not checked.
func printTable(out io.Writer, report *Report) error {
	table := newTable(out)
	if len(report.Findings) > 0 {
		fmt.Fprintln(table, "SEVERITY\tCHECK\tOBJECT\tFINDING\tNEXT STEP")
	}
	for _, finding := range report.Findings {
		message := oneLine(finding.Message)
		if detail := oneLine(finding.Detail); detail != "" {
			message += " (" + detail + ")"
		}
		writeRow(table, string(finding.Severity), finding.Check, oneLine(finding.Object), message, finding.NextStep)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	table = newTable(out)
	if len(report.Findings) > 0 && report.Summary.Skipped+report.Summary.Incomplete > 0 {
		fmt.Fprintln(table)
	}
	if report.Summary.Skipped+report.Summary.Incomplete > 0 {
		fmt.Fprintln(table, "CHECK\tSTATUS\tREASON")
	}
	for _, check := range report.Checks {
		for i, reason := range check.Reasons {
			if i == maxReasons {
				writeRow(table, check.ID, string(check.Status), fmt.Sprintf("and %d more", len(check.Reasons)-i))
				break
			}
			writeRow(table, check.ID, string(check.Status), oneLine(reason))
		}
	}
	return table.Flush()
}

// maxReasons bounds the rows of a check in the table.
const maxReasons = 3

func newTable(out io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(out, 0, 0, 2, ' ', 0) }

// writeRow writes the cells of a row.
func writeRow(out io.Writer, cells ...string) {
	for i, cell := range cells {
		cells[i] = printable(cell)
	}
	fmt.Fprintln(out, strings.Join(cells, "\t"))
}

// printable returns a text in one line, without what could change the terminal: tenants and servers have written parts of it.
func printable(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// escaped returns JSON with escapes for what could change the terminal.
func escaped(text string) string {
	var out strings.Builder
	for _, r := range text {
		switch {
		case r < unicode.MaxASCII || unicode.IsPrint(r):
			out.WriteRune(r)
		default:
			for _, unit := range utf16.Encode([]rune{r}) {
				fmt.Fprintf(&out, "\\u%04x", unit)
			}
		}
	}
	return out.String()
}

// oneLine is printable for texts without a bound.
func oneLine(text string) string {
	text = printable(text)
	if runes := []rune(text); len(runes) > maxDetail {
		return string(runes[:maxDetail]) + "..."
	}
	return text
}

// summaryLine is the last line of the output.
func summaryLine(report *Report) string {
	s := report.Summary
	return fmt.Sprintf("%d errors, %d warnings, %d infos; %d checks: %d incomplete, %d skipped", s.Errors, s.Warnings, s.Infos, len(report.Checks), s.Incomplete, s.Skipped)
}
