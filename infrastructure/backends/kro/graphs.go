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
	// maxTemplates bounds the Templates with cached graphs; maxContents bounds the contents of each. Others are compiled when they are used.
	maxTemplates, maxContents = 1024, 4
)

// graphs caches the compiled graphs of Templates, one for each content in use: while an edit is set up and not exported yet, instances use the
// graph of the content that was accepted before. TeardownTemplate removes the graphs of a Template, and the cache evicts the least recently
// used ones.
type graphs struct {
	compile func(*infrastructurev1alpha1.Template) (*compiled, error)

	mu        sync.Mutex // guards finding and adding attempts
	templates *lru.Cache // maps a templateKey to an *lru.Cache from hashes of contents to *attempt
}

// attempt is the result of compiling a content.
type attempt struct {
	mu     sync.Mutex // held during compilation
	result *compiled
	err    error // of the last attempt, if result is nil
}

func newGraphs(compile func(*infrastructurev1alpha1.Template) (*compiled, error)) *graphs {
	return &graphs{compile: compile, templates: lru.New(maxTemplates)}
}

// setUp compiles a Template unless a result is cached. It retries after any error, because the runtime cluster may serve new kinds.
func (g *graphs) setUp(t *infrastructurev1alpha1.Template) (*compiled, error) {
	return g.graphOf(t, func(error) bool { return true })
}

// get returns the graph for instances of a Template. It does not retry after a mistakeError: the controller sets up the Template repeatedly.
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

// remove removes the cached graphs of a Template.
func (g *graphs) remove(t *infrastructurev1alpha1.Template) {
	g.templates.Remove(keyOf(t))
}

// templateKey identifies a Template. It includes the name for Templates of tests that no server has stored.
type templateKey struct {
	uid  types.UID
	name string
}

func keyOf(t *infrastructurev1alpha1.Template) templateKey { return templateKey{t.UID, t.Name} }

// attempt returns the attempt for the content of a Template, and adds one if there is none.
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

// hashOf returns the hash of everything that a graph is compiled from. Without backendConfig there is no separator, so the hash differs from
// that of an empty one. The separator cannot occur in JSON.
func hashOf(t *infrastructurev1alpha1.Template) [sha256.Size]byte {
	parts := [][]byte{[]byte(t.Spec.InstanceCRD.Version), []byte(t.Spec.Version), t.Spec.Schema.Raw}
	if t.Spec.BackendConfig != nil {
		parts = append(parts, t.Spec.BackendConfig.Raw)
	}
	return sha256.Sum256(bytes.Join(parts, []byte{0}))
}
