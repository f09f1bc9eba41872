package logicalcluster

import (
	"regexp"
	"strings"
	"testing"
)

// fuzzSeeds are almost valid inputs, as seeds for the fuzzers.
var fuzzSeeds = []string{"root", "root:org:team", "system:admin", "system:", "*", "", ":", "a:", ":a", "a::b", "..", "a/b", "a%2fb", "A", "-", "2cynbfy2m0wtjqcs", "ü", "a\x00b", "a\n", "a:-b", "a:b-", strings.Repeat("a", 63), strings.Repeat("a", 64), strings.Repeat("a", 300)}

// FuzzParseName checks the properties that storage keys, file names and URLs rely on: a name is one segment, and
// parsing does not change it.
func FuzzParseName(f *testing.F) {
	for _, seed := range fuzzSeeds {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		name, err := ParseName(in)
		if err != nil {
			if !name.Empty() {
				t.Fatalf("ParseName(%q) fails with %v and yet returns %q", in, err, name)
			}
			return
		}
		if name.String() != in || name.Empty() || name.IsWildcard() {
			t.Fatalf("ParseName(%q) = %q", in, name)
		}
		if strings.ContainsAny(in, "/.%\\* \x00\n") {
			t.Fatalf("%q contains characters that are invalid in a key", in)
		}
		if again, ok := name.Path().Name(); !ok || again != name {
			t.Fatalf("%q as a path is the name %q, %v", in, again, ok)
		}
	})
}

// patternOfPaths is the pattern that errors show.
var patternOfPaths = regexp.MustCompile(pathPattern)

// FuzzParsePath checks that the pattern which errors show decides, that splitting and joining a path yields the same path, and that its URL resolves to it.
func FuzzParsePath(f *testing.F) {
	for _, seed := range fuzzSeeds {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		path, err := ParsePath(in)
		if want := in == Wildcard.s || len(in) <= maxPathLength && patternOfPaths.MatchString(in); (err == nil) != want {
			t.Fatalf("ParsePath(%q) fails with %v, and the pattern matches: %v", in, err, want)
		}
		if err != nil {
			return
		}
		if path.String() != in {
			t.Fatalf("ParsePath(%q) = %q", in, path)
		}
		if got := strings.Join(path.Segments(), ":"); got != in {
			t.Fatalf("%q has segments %q", in, path.Segments())
		}
		if parent, ok := path.Parent(); ok {
			if joined := parent.Join(path.Base()); joined != path {
				t.Fatalf("%q is not its parent %q with its base %q", in, parent, path.Base())
			}
			if !path.HasPrefix(parent) || parent.HasPrefix(path) {
				t.Fatalf("%q and its parent %q: wrong order", in, parent)
			}
		}
		target, err := FromURLPath(path.URLPath() + "/api/v1")
		if err != nil || target.Path != path || target.Rest != "/api/v1" {
			t.Fatalf("the URL of %q leads to %q, %q: %v", in, target.Path, target.Rest, err)
		}
	})
}
