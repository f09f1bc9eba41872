package buildversion

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

func TestVersion(t *testing.T) {
	defer func(before string) { linked = before }(linked)
	linked = "v1.2.3"
	if got := Get(); got != "v1.2.3" {
		t.Errorf("got %q", got)
	}
	if got := Long(); !strings.HasSuffix(got, " (Atoll v1.2.3)") {
		t.Errorf("got %q", got)
	}
	linked = ""
	if Get() == "" {
		t.Error("a binary that was linked without a version has none")
	}
}

// The linker ignores names that do not exist.
func TestMakefileNamesTheVariable(t *testing.T) {
	text, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	type here struct{}
	if want := "-X " + reflect.TypeFor[here]().PkgPath() + ".linked=$(VERSION)"; !strings.Contains(string(text), want) {
		t.Errorf("the Makefile does not have %s", want)
	}
}
