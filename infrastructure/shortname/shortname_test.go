package shortname

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

func TestOf(t *testing.T) {
	long := strings.Repeat("a", 300)
	for name, test := range map[string]struct {
		name  string
		limit int
		want  string
	}{
		"a name that fits is kept":                {"redis-mine", Label, "redis-mine"},
		"a name of exactly the limit is kept":     {long[:Label], Label, long[:Label]},
		"a longer one ends in a hash":             {long[:Label+1], Label, long[:52] + "-ffe054fe7a"},
		"separators before the hash are left out": {long[:50] + "..." + long, Label, long[:50] + "-" + hashOf(long[:50]+"..."+long)},
	} {
		got := Of(test.name, test.limit)
		if got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
		if problems := validation.IsDNS1123Label(got); len(got) > test.limit || len(problems) > 0 {
			t.Errorf("%s: %q is no name: %v", name, got, problems)
		}
	}
	if Of(long+"1", Object) == Of(long+"2", Object) {
		t.Error("two names become one")
	}
}

func TestTruncate(t *testing.T) {
	for text, want := range map[string]string{"": "", "12345678": "12345678", "123456789": "12345...", "1234äöü": "1234...", "1234\xff": "1234\xff"} {
		if got := Truncate(text, 8); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestLabelValue(t *testing.T) {
	for text, want := range map[string]string{
		"1.2.3": "1.2.3", "1.2.3-rc.1+build.5": "1.2.3-rc.1-build.5", "version 2": "version-2", "1.0 (ß)": "1.0", "+": "", "": "",
		strings.Repeat("1", 62) + "++": strings.Repeat("1", 62),
	} {
		got := LabelValue(text)
		if problems := validation.IsValidLabelValue(got); got != want || len(problems) > 0 {
			t.Errorf("%q: got %q %v, want %q", text, got, problems, want)
		}
	}
}

// hashOf returns the hash at the end of a shortened name.
func hashOf(name string) string {
	short := Of(name, Label)
	return short[len(short)-hashed:]
}
