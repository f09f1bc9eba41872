package storage

import (
	"hash/maphash"
	"maps"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/fields"
)

// fieldSets shares the sets of fields that the watch cache keeps with every object and event: those of system objects are
// the same in every logical cluster. It remembers the last set of each slot, so it is bounded; what it forgets is only
// not shared. Sets are read-only.
type fieldSets [64]atomic.Pointer[fields.Set]

// longestField is up to where a set is taken for one of names and phases, in bytes. Views of custom resources select by
// whole objects, which must not be kept here.
const longestField = 256

// share returns a set that is equal to the given one.
func (s *fieldSets) share(set fields.Set) fields.Set {
	var sum uint64
	for key, value := range set {
		if len(value) > longestField {
			return set
		}
		sum += maphash.String(contentSeed, key) ^ maphash.String(contentSeed, value)*31
	}
	slot := &s[sum%uint64(len(s))]
	if known := slot.Load(); known != nil && maps.Equal(*known, set) {
		return *known
	}
	slot.Store(&set)
	return set
}
