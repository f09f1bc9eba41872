package apiextensions

import (
	"crypto/sha256"
	"encoding/hex"
	"runtime"
	"sync"
	"unsafe"
	"weak"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"

	"github.com/atoll-dev/atoll/shardserver/storage"
)

// Hash is the hash of the specification of a definition as stored.
type Hash [sha256.Size]byte

// String returns the hash in hexadecimal.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// SpecInterner interns the specifications and metadata of decoded definitions. It has weak references: an entry is
// removed when the last definition that uses it is collected, so its size depends on the distinct specifications in the
// watch cache.
type SpecInterner struct {
	mu    sync.Mutex
	specs map[Hash]*sharedSpec
	// hashes are the hashes of interned specifications by the array of their versions.
	hashes map[weak.Pointer[apiextensions.CustomResourceDefinitionVersion]]Hash
	// metadata interns annotations and managed fields.
	metadata *storage.Interner
}

// sharedSpec is a specification without its versions. Every user of the specification references the array of its
// versions, so the specification is unused when the array is collected.
type sharedSpec struct {
	rest     apiextensions.CustomResourceDefinitionSpec
	versions weak.Pointer[apiextensions.CustomResourceDefinitionVersion]
	count    int
}

// NewSpecInterner returns an empty interner.
func NewSpecInterner() *SpecInterner {
	return &SpecInterner{
		specs:    map[Hash]*sharedSpec{},
		hashes:   map[weak.Pointer[apiextensions.CustomResourceDefinitionVersion]]Hash{},
		metadata: storage.NewInterner(),
	}
}

// get returns the specification with a hash, if a definition uses it.
func (s *SpecInterner) get(hash Hash) (apiextensions.CustomResourceDefinitionSpec, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.getLocked(hash)
}

func (s *SpecInterner) getLocked(hash Hash) (apiextensions.CustomResourceDefinitionSpec, bool) {
	entry, ok := s.specs[hash]
	if !ok {
		return apiextensions.CustomResourceDefinitionSpec{}, false
	}
	first := entry.versions.Value()
	if first == nil {
		return apiextensions.CustomResourceDefinitionSpec{}, false
	}
	spec := entry.rest
	spec.Versions = unsafe.Slice(first, entry.count)
	return spec, true
}

// intern interns a specification: it returns the first one with this hash. A specification without versions is invalid
// and not interned.
func (s *SpecInterner) intern(hash Hash, spec apiextensions.CustomResourceDefinitionSpec) apiextensions.CustomResourceDefinitionSpec {
	if len(spec.Versions) == 0 {
		return spec
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if existing, ok := s.getLocked(hash); ok {
		return existing
	}
	first := weak.Make(&spec.Versions[0])
	entry := &sharedSpec{rest: spec, versions: first, count: len(spec.Versions)}
	entry.rest.Versions = nil
	s.specs[hash], s.hashes[first] = entry, hash
	runtime.AddCleanup(&spec.Versions[0], func(removed *sharedSpec) {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.hashes, removed.versions)
		if s.specs[hash] == removed { // unless an equal one was interned since
			delete(s.specs, hash)
		}
	}, entry)
	return spec
}

// lookupHash returns the hash of an interned specification.
func (s *SpecInterner) lookupHash(spec *apiextensions.CustomResourceDefinitionSpec) (Hash, bool) {
	if len(spec.Versions) == 0 {
		return Hash{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	hash, ok := s.hashes[weak.Make(&spec.Versions[0])]
	return hash, ok
}

// countSpecs returns the number of interned specifications.
func (s *SpecInterner) countSpecs() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.specs)
}
