package kro

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
)

const (
	// maxTemplates bounds the Templates whose graphs are kept, maxContents the contents of each. Others are compiled when they are used.
	maxTemplates, maxContents = 1024, 4
)

// graphs keeps the compiled graphs of Templates, one for each content that is in use: while an edit is set up and not exported yet, instances
// have the content that was accepted before, and its graph. TeardownTemplate removes what is kept of a Template, and what is not used is
// evicted.
type graphs struct {
	compile func(*infrastructurev1alpha1.Template) (*compiled, error)

	mu        sync.Mutex // of finding or adding attempts
	templates *lru.Cache // templateKey to *lru.Cache of hashes of contents, to *attempt
}

// attempt is what is known of a content.
type attempt struct {
	mu     sync.Mutex // held while it is compiled
	result *compiled
	err    error // of the last attempt without a result
}

func newGraphs(compile func(*infrastructurev1alpha1.Template) (*compiled, error)) *graphs {
	return &graphs{compile: compile, templates: lru.New(maxTemplates)}
}

// setUp compiles a Template unless it is compiled. An attempt that failed is repeated: kinds of the runtime cluster appear.
func (g *graphs) setUp(t *infrastructurev1alpha1.Template) (*compiled, error) {
	return g.graphOf(t, func(error) bool { return true })
}

// get returns the graph for instances of a Template. Mistakes are not tried again: the Template is set up repeatedly.
func (g *graphs) get(t *infrastructurev1alpha1.Template) (*compiled, error) {
	return g.graphOf(t, func(err error) bool {
		_, isMistake := errors.AsType[*mistakeError](err)
		return !isMistake
	})
}

func (g *graphs) graphOf(t *infrastructurev1alpha1.Template, isRepeated func(error) bool) (*compiled, error) {
	a := g.attempt(t)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.result == nil && isRepeated(a.err) {
		a.result, a.err = g.compile(t)
	}
	return a.result, a.err
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

// attempt returns what is known of the content of a Template.
func (g *graphs) attempt(t *infrastructurev1alpha1.Template) *attempt {
	g.mu.Lock()
	defer g.mu.Unlock()
	contents, found := g.templates.Get(keyOf(t))
	if !found {
		contents = lru.New(maxContents)
		g.templates.Add(keyOf(t), contents)
	}
	hash := hashOf(t)
	known, found := contents.(*lru.Cache).Get(hash)
	if !found {
		known = &attempt{}
		contents.(*lru.Cache).Add(hash, known)
	}
	return known.(*attempt)
}

// hashOf returns the hash of what a graph is compiled from. A backendConfig of nothing is not that of an empty text: the separator is no
// JSON.
func hashOf(t *infrastructurev1alpha1.Template) [sha256.Size]byte {
	parts := [][]byte{[]byte(t.Spec.InstanceCRD.Version), []byte(t.Spec.Version), t.Spec.Schema.Raw}
	if t.Spec.BackendConfig != nil {
		parts = append(parts, t.Spec.BackendConfig.Raw)
	}
	return sha256.Sum256(bytes.Join(parts, []byte{0}))
}
