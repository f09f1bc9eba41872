package kro

import (
	"bytes"
	"errors"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
)

const (
	// maxTemplates bounds the Templates whose graphs are kept, maxVersions the versions of each. Others are compiled when they are used.
	maxTemplates, maxVersions = 1024, 4
)

// graphs keeps the compiled graphs of Templates, one for each version of a kind: that of the newest generation that could be compiled. So
// an edit that breaks a Template leaves its instances with the former graph. TeardownTemplate removes what is kept of a Template,
// and what is not used is evicted.
type graphs struct {
	compile func(*infrastructurev1alpha1.Template) (*compiled, error)

	mu        sync.Mutex // of finding or adding attempts
	templates *lru.Cache // templateKey to *lru.Cache of versions, to *attempts
}

// attempts is what is known of a version.
type attempts struct {
	mu         sync.Mutex // held while the version is compiled
	generation int64
	content    []byte // of the last attempt
	err        error  // of the last attempt
	last       *compiled
}

func newGraphs(compile func(*infrastructurev1alpha1.Template) (*compiled, error)) *graphs {
	return &graphs{compile: compile, templates: lru.New(maxTemplates)}
}

// setUp compiles a Template unless it is compiled. An attempt that failed is repeated: kinds of the runtime cluster appear.
func (g *graphs) setUp(t *infrastructurev1alpha1.Template) (*compiled, error) {
	a := g.attempts(t)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil || !a.isOf(t) {
		a.attempt(t, g.compile)
	}
	return a.last, a.err
}

// get returns the graph for instances of a Template: that of the Template, or a former one with the error of the newer one. Without any
// there is only an error.
func (g *graphs) get(t *infrastructurev1alpha1.Template) (*compiled, error) {
	a := g.attempts(t)
	a.mu.Lock()
	defer a.mu.Unlock()
	_, isMistake := errors.AsType[*mistakeError](a.err)
	// What is older than what is known comes from a cache that is behind.
	if t.Generation >= a.generation && (!a.isOf(t) || a.err != nil && !isMistake) {
		a.attempt(t, g.compile)
	}
	return a.last, a.err
}

// remove removes what is kept of a Template.
func (g *graphs) remove(t *infrastructurev1alpha1.Template) {
	g.templates.Remove(keyOf(t))
}

// templateKey tells Templates apart, also those of tests that no server has stored.
type templateKey struct {
	uid  types.UID
	name string
}

func keyOf(t *infrastructurev1alpha1.Template) templateKey { return templateKey{t.UID, t.Name} }

// attempts returns what is known of the version of a Template.
func (g *graphs) attempts(t *infrastructurev1alpha1.Template) *attempts {
	g.mu.Lock()
	defer g.mu.Unlock()
	versions, found := g.templates.Get(keyOf(t))
	if !found {
		versions = lru.New(maxVersions)
		g.templates.Add(keyOf(t), versions)
	}
	known, found := versions.(*lru.Cache).Get(t.Spec.InstanceCRD.Version)
	if !found {
		known = &attempts{}
		versions.(*lru.Cache).Add(t.Spec.InstanceCRD.Version, known)
	}
	return known.(*attempts)
}

// isOf reports whether the last attempt was with what a Template has now.
func (a *attempts) isOf(t *infrastructurev1alpha1.Template) bool {
	return (a.last != nil || a.err != nil) && bytes.Equal(a.content, contentOf(t))
}

func (a *attempts) attempt(t *infrastructurev1alpha1.Template, compile func(*infrastructurev1alpha1.Template) (*compiled, error)) {
	a.generation, a.content = t.Generation, contentOf(t)
	result, err := compile(t)
	if a.err = err; err == nil {
		a.last = result
	}
}

// contentOf returns what a graph is compiled from. A backendConfig of nothing is not that of an empty text: the separator is no JSON.
func contentOf(t *infrastructurev1alpha1.Template) []byte {
	parts := [][]byte{[]byte(t.Spec.Version), t.Spec.Schema.Raw}
	if t.Spec.BackendConfig != nil {
		parts = append(parts, t.Spec.BackendConfig.Raw)
	}
	return bytes.Join(parts, []byte{0})
}
