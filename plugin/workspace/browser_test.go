package workspace

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/atoll-dev/atoll/logicalcluster"
)

func newLoader(tree map[string][]string) func(logicalcluster.Path) ([]*node, error) {
	return func(path logicalcluster.Path) ([]*node, error) {
		names, ok := tree[path.String()]
		if !ok {
			return nil, errors.New("no access")
		}
		var children []*node
		for _, name := range names {
			children = append(children, &node{path: path.Join(name), mount: name == "mount"})
		}
		return children, nil
	}
}

func TestBrowserNavigation(t *testing.T) {
	b := newBrowser(logicalcluster.MustParsePath("root:b"), newLoader(map[string][]string{
		"root": {"a", "b", "mount"}, "root:a": {"x"}, "root:a:x": {}, "root:b": {},
	}))
	screen := func() []string {
		lines := b.view(80, 24)
		return lines[1 : len(lines)-2]
	}
	if diff := cmp.Diff([]string{"  - root", "    + a", ">     b", "      mount [m]"}, screen()); diff != "" {
		t.Fatalf("at the start (-want +got):\n%s", diff)
	}
	for _, pressed := range decodeKeys("\x1b[A" + "l" + "j") { // up, open, down
		if _, done := b.press(pressed); done {
			t.Fatal("left too early")
		}
	}
	if diff := cmp.Diff([]string{"  - root", "    - a", ">     + x", "      b", "      mount [m]"}, screen()); diff != "" {
		t.Fatalf("after opening a (-want +got):\n%s", diff)
	}
	if selected, done := b.press(keySelect); !done || selected.String() != "root:a:x" {
		t.Fatalf("selected %s, %v", selected, done)
	}
	b.press(keyClose) // to the parent
	b.press(keyClose) // which is closed then
	if diff := cmp.Diff([]string{"  - root", ">   + a", "      b", "      mount [m]"}, screen()); diff != "" {
		t.Fatalf("after closing a (-want +got):\n%s", diff)
	}
	if selected, done := b.press(keyQuit); !done || !selected.Empty() {
		t.Fatalf("quit selected %s, %v", selected, done)
	}
}

func TestBrowserWithoutParentAccess(t *testing.T) {
	b := newBrowser(logicalcluster.MustParsePath("root:org:team"), newLoader(map[string][]string{"root:org:team": {"x"}}))
	got := strings.Join(b.view(80, 24), "\n")
	for _, want := range []string{"  - root", "    - org", ">     - team", "        + x", "no access"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
}

func TestBrowserViewFitsScreen(t *testing.T) {
	var names []string
	for range 50 {
		names = append(names, strings.Repeat("n", 30))
	}
	b := newBrowser(logicalcluster.Root.Path(), newLoader(map[string][]string{"root": names}))
	for range 100 {
		b.press(keyDown)
		lines := b.view(20, 10)
		if len(lines) > 10 || !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, ">") }) {
			t.Fatalf("%d lines, or no cursor:\n%s", len(lines), strings.Join(lines, "\n"))
		}
		for _, line := range lines {
			if len(line) > 20 {
				t.Fatalf("%q is too wide", line)
			}
		}
	}
}

func TestDecodeKeys(t *testing.T) {
	for input, want := range map[string][]key{
		"\x1b":      {keyQuit},
		"\x1b[A":    {keyUp},
		"\x1bOBj":   {keyDown, keyDown},
		"\r":        {keySelect},
		"zzq":       {keyQuit},
		"\x1b[15~q": nil, // F5
	} {
		if diff := cmp.Diff(want, decodeKeys(input)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", input, diff)
		}
	}
}
