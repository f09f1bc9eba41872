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

// Hash identifies the specification of a definition by its content: equal hashes mean equal specifications, byte for
// byte as stored.
type Hash [sha256.Size]byte

// String returns the hash in hexadecimal.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// Shared holds what decoded definitions have in common, by content. It keeps nothing alive: an entry goes when the last
// definition that uses it does, so its size follows the distinct contents in the watch cache.
type SpecInterner struct {
	mu    sync.Mutex
	specs map[Hash]*sharedSpec
	// hashes finds a shared specification by the array of its versions.
	hashes map[weak.Pointer[apiextensions.CustomResourceDefinitionVersion]]Hash
	// metadata shares annotations and managed fields.
	metadata *storage.Shared
}

// sharedSpec is a specification but for its versions. Whoever holds the specification holds the array of its versions,
// whose end is therefore the end of all of it.
type sharedSpec struct {
	rest     apiextensions.CustomResourceDefinitionSpec
	versions weak.Pointer[apiextensions.CustomResourceDefinitionVersion]
	count    int
}

// NewShared returns what the storage of one shard shares.
func NewSpecInterner() *SpecInterner {
	return &SpecInterner{
		specs:    map[Hash]*sharedSpec{},
		hashes:   map[weak.Pointer[apiextensions.CustomResourceDefinitionVersion]]Hash{},
		metadata: storage.NewShared(),
	}
}

// spec returns the specification with a hash if some definition still has it.
func (s *SpecInterner) spec(hash Hash) (apiextensions.CustomResourceDefinitionSpec, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lookup(hash)
}

func (s *SpecInterner) lookup(hash Hash) (apiextensions.CustomResourceDefinitionSpec, bool) {
	known, ok := s.specs[hash]
	if !ok {
		return apiextensions.CustomResourceDefinitionSpec{}, false
	}
	first := known.versions.Value()
	if first == nil {
		return apiextensions.CustomResourceDefinitionSpec{}, false
	}
	spec := known.rest
	spec.Versions = unsafe.Slice(first, known.count)
	return spec, true
}

// share returns the specification that stands for all with this hash, which is the given one if it is the first. A
// specification without versions is valid nowhere and not shared.
func (s *SpecInterner) share(hash Hash, spec apiextensions.CustomResourceDefinitionSpec) apiextensions.CustomResourceDefinitionSpec {
	if len(spec.Versions) == 0 {
		return spec
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.lookup(hash); ok {
		return known
	}
	first := weak.Make(&spec.Versions[0])
	entry := &sharedSpec{rest: spec, versions: first, count: len(spec.Versions)}
	entry.rest.Versions = nil
	s.specs[hash], s.hashes[first] = entry, hash
	runtime.AddCleanup(&spec.Versions[0], func(gone *sharedSpec) {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.hashes, gone.versions)
		if s.specs[hash] == gone { // an equal one may have come since
			delete(s.specs, hash)
		}
	}, entry)
	return spec
}

// hash returns the hash of a specification if it is shared.
func (s *SpecInterner) hash(spec *apiextensions.CustomResourceDefinitionSpec) (Hash, bool) {
	if len(spec.Versions) == 0 {
		return Hash{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	hash, ok := s.hashes[weak.Make(&spec.Versions[0])]
	return hash, ok
}

// size returns how many specifications are shared now.
func (s *SpecInterner) size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.specs)
}
