package publisher

import (
	"hash/maphash"
	"sync"
)

// stripes are locks for any number of objects. Some objects share one.
type stripes [256]sync.Mutex

var stripesSeed = maphash.MakeSeed()

func (s *stripes) of(what item) *sync.Mutex {
	return &s[maphash.Comparable(stripesSeed, what)%uint64(len(s))]
}
