// Command benchtable writes the figures of a run of `make bench` into a Markdown file, between two marker lines.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	beginMarker = "<!-- figures: begin -->\n"
	endMarker   = "<!-- figures: end -->\n"
)

// figure is an entry of bench.json, as test/bench writes it.
type figure struct {
	Name    string  `json:"name"`
	Value   float64 `json:"value"`
	Unit    string  `json:"unit"`
	Against string  `json:"against"`
}

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "Usage: benchtable BENCH_JSON MARKDOWN COMMIT\n\nExample: benchtable bench.json docs/performance-figures.md \"$(git rev-parse --short HEAD)\"")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3], time.Now()); err != nil {
		fmt.Fprintln(os.Stderr, "benchtable:", err)
		os.Exit(1)
	}
}

func run(input, output, commit string, now time.Time) error {
	raw, err := os.ReadFile(input)
	if err != nil {
		return err
	}
	var figures []figure
	if err := json.Unmarshal(raw, &figures); err != nil {
		return fmt.Errorf("%s: %w", input, err)
	}
	document, err := os.ReadFile(output)
	if err != nil {
		return err
	}
	replaced, err := replaceBetweenMarkers(document, renderTable(figures, commit, now))
	if err != nil {
		return fmt.Errorf("%s: %w", output, err)
	}
	return os.WriteFile(output, replaced, 0o644)
}

// replaceBetweenMarkers returns the document with the content between the markers replaced.
func replaceBetweenMarkers(document, content []byte) ([]byte, error) {
	before, rest, ok := bytes.Cut(document, []byte(beginMarker))
	if !ok {
		return nil, errors.New("no line " + strings.TrimSpace(beginMarker))
	}
	_, after, ok := bytes.Cut(rest, []byte(endMarker))
	if !ok {
		return nil, errors.New("no line " + strings.TrimSpace(endMarker))
	}
	return bytes.Join([][]byte{before, []byte(beginMarker), content, []byte(endMarker), after}, nil), nil
}

// renderTable renders the figures of one run.
func renderTable(figures []figure, commit string, now time.Time) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "Run of %s at commit %s.\n\n| figure | value | unit | measured with, or against |\n| --- | ---: | --- | --- |\n", now.UTC().Format(time.DateOnly), commit)
	for _, f := range figures {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", escapeCell(f.Name), strconv.FormatFloat(f.Value, 'f', decimals(f.Value), 64), escapeCell(f.Unit), escapeCell(f.Against))
	}
	return b.Bytes()
}

// decimals returns how many digits after the point a value needs for about three significant ones.
func decimals(value float64) int {
	switch {
	case value >= 100 || value <= -100 || value == float64(int64(value)):
		return 0
	case value >= 1 || value <= -1:
		return 1
	}
	return 3
}

func escapeCell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
