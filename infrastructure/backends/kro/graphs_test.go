package kro

import (
	"errors"
	"fmt"
	"testing"

	"k8s.io/utils/lru"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
)

// fakeCompiler counts attempts, and returns a configurable error.
type fakeCompiler struct {
	attempts int
	err      error
}

func (f *fakeCompiler) compile(t *infrastructurev1alpha1.Template) (*compiled, error) {
	f.attempts++
	if f.err != nil {
		return nil, f.err
	}
	return &compiled{version: fmt.Sprint(t.Generation)}, nil
}

func TestGraphs(t *testing.T) {
	f := &fakeCompiler{}
	g := newGraphs(f.compile)
	step := func(name string, call func(*infrastructurev1alpha1.Template) (*compiled, error), template *infrastructurev1alpha1.Template, attempts int, version string, failed bool) {
		t.Helper()
		before := f.attempts
		got, err := call(template)
		if f.attempts-before != attempts || (err != nil) != failed || (got == nil) != (version == "") || got != nil && got.version != version {
			t.Errorf("%s: got %+v, %v after %d attempts, want %q after %d", name, got, err, f.attempts-before, version, attempts)
		}
	}
	first := newTemplate(t, "redis", redis)
	step("an instance comes before the set-up", g.get, first, 1, "1", false)
	step("the set-up finds the graph", g.setUp, first, 0, "1", false)
	second := change(t, first, "resources: []")
	step("an edit is set up", g.setUp, second, 1, "2", false)
	step("instances keep their graph until it is accepted", g.get, first, 0, "1", false)
	step("and have the new one then", g.get, second, 0, "2", false)
	third := change(t, second, "statusMapping: {}")
	f.err = &mistakeError{errors.New("it is broken")}
	step("an edit breaks it", g.setUp, third, 1, "", true)
	step("instances of before keep their graph", g.get, second, 0, "2", false)
	step("the set-up tries again", g.setUp, third, 1, "", true)
	step("instances of a mistake do not", g.get, third, 0, "", true)
	f.err = errors.New("the cluster does not answer")
	fourth := change(t, third, "resources: []\nstatusMapping: {}")
	step("the next edit cannot be checked", g.setUp, fourth, 1, "", true)
	step("instances try it again", g.get, fourth, 1, "", true)
	f.err = nil
	step("until it can be", g.get, fourth, 1, "4", false)
	moved := fourth.DeepCopy()
	moved.Generation, moved.Spec.DisplayName = 5, "Renamed"
	step("an edit of what is not compiled", g.setUp, moved, 0, "4", false)
	next := moved.DeepCopy()
	next.Generation, next.Spec.InstanceCRD.Version = 6, "v1"
	step("a new version of the kind", g.setUp, next, 1, "6", false)
	step("the previous version keeps its graph", g.get, moved, 0, "4", false)
	g.remove(next)
	if g.templates.Len() != 0 {
		t.Errorf("%d Templates are left", g.templates.Len())
	}
	g.remove(next) // as TeardownTemplate may be called twice
}

func TestGraphsAreBounded(t *testing.T) {
	f := &fakeCompiler{}
	g := newGraphs(f.compile)
	template := newTemplate(t, "redis", redis)
	for i := range 3 * maxContents {
		template.Generation, template.Spec.InstanceCRD.Version = int64(i+1), fmt.Sprintf("v%d", i+1)
		if _, err := g.setUp(template); err != nil {
			t.Fatal(err)
		}
	}
	contents, _ := g.templates.Get(keyOf(template))
	if kept := contents.(*lru.Cache).Len(); kept != maxContents {
		t.Errorf("%d contents are kept", kept)
	}
	before := f.attempts
	if _, err := g.get(template); err != nil || f.attempts != before {
		t.Errorf("the content in use is not kept: %v", err)
	}
	for i := range maxTemplates + 10 {
		if _, err := g.setUp(newTemplate(t, fmt.Sprintf("template-%d", i), "{}")); err != nil {
			t.Fatal(err)
		}
	}
	if g.templates.Len() != maxTemplates {
		t.Errorf("%d Templates are kept", g.templates.Len())
	}
}

func TestPanicsAreErrors(t *testing.T) {
	_, err := (&compiler{}).compile(newTemplate(t, "redis", redis)) // without a cluster, compile panics
	if err == nil {
		t.Error("no error")
	}
	if _, isMistake := errors.AsType[*mistakeError](err); isMistake {
		t.Errorf("the error counts as one of the author: %v", err)
	}
}
