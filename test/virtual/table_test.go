package virtual

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"testing"
)

//go:embed matrix.txt
var matrix string

// callers are in the order of the columns.
var callers = []string{"provider", "consumer", "user", "masters"}

// tableLine is one line of the table.
type tableLine struct {
	number int
	// selectors are the selected virtual workspaces, resources, states and verbs; nil selects all.
	selectors [4][]string
	want      []string
	used      bool
}

// readTable parses the lines of a table.
func readTable(text string) ([]*tableLine, error) {
	var lines []*tableLine
	for i, raw := range strings.Split(text, "\n") {
		content, _, _ := strings.Cut(raw, "#")
		if strings.TrimSpace(content) == "" {
			continue
		}
		left, right, ok := strings.Cut(content, "|")
		selectors, want := strings.Fields(left), strings.Fields(right)
		if !ok || len(selectors) != 4 || len(want) != len(callers) {
			return nil, fmt.Errorf("line %d: want four columns, a bar, and %d results", i+1, len(callers))
		}
		l := &tableLine{number: i + 1, want: want}
		for column, list := range selectors {
			if list != "*" {
				l.selectors[column] = strings.Split(list, ",")
			}
		}
		lines = append(lines, l)
	}
	return lines, nil
}

// findLine returns the line that applies to a request, or nil.
func findLine(lines []*tableLine, request ...string) *tableLine {
	for _, l := range lines {
		matches := true
		for column, name := range request {
			matches = matches && (l.selectors[column] == nil || slices.Contains(l.selectors[column], name))
		}
		if matches {
			l.used = true
			return l
		}
	}
	return nil
}

func TestReadTable(t *testing.T) {
	lines, err := readTable("# text\n a b c,d get | 1 2 3 4 # why\n\n a * * * | 5 6 7 8\n")
	if err != nil || len(lines) != 2 {
		t.Fatalf("got %v, %v", lines, err)
	}
	for request, want := range map[string]int{"a b c get": 2, "a b d get": 2, "a b e get": 4, "a x c list": 4, "x b c get": 0} {
		got := findLine(lines, strings.Fields(request)...)
		if (got == nil) != (want == 0) || got != nil && got.number != want {
			t.Errorf("%s matches %+v, want line %d", request, got, want)
		}
	}
	for _, wrong := range []string{"a b c get 1 2 3 4", "a b get | 1 2 3 4", "a b c get | 1 2"} {
		if _, err := readTable(wrong); err == nil {
			t.Errorf("%q is accepted", wrong)
		}
	}
}
