package replica

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/cacheserver/client"
)

// taken counts what is kept of each other shard. One that publishes without end, because of an error or in wrong hands,
// must not fill the memory of all others. There is one entry for every shard of which anything is kept.
type taken struct {
	// most is how many objects of one shard are kept; 0 is any number.
	most int

	mu     sync.Mutex
	counts map[string]int
	// full are the shards of which something was not kept, and that have not become much smaller since.
	full map[string]bool
}

func newTaken(most int) *taken {
	return &taken{most: most, counts: map[string]int{}, full: map[string]bool{}}
}

// add counts objects that came, or went if there are less than none.
func (t *taken) add(shard string, objects int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts[shard] += objects; t.counts[shard] == 0 {
		delete(t.counts, shard)
	}
}

// none tells whether nothing of a shard is kept.
func (t *taken) none(shard string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts[shard] == 0
}

// refuses tells whether one more object of a shard is too much, and whether that is news.
func (t *taken) refuses(shard string) (refused, news bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.most == 0 || t.counts[shard] < t.most {
		return false, false
	}
	news = !t.full[shard]
	t.full[shard] = true
	return true, news
}

// fits tells whether a shard has become so much smaller that it is worth looking at everything it has.
func (t *taken) fits(shard string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	fits := t.counts[shard] <= t.most-t.most/10
	if fits {
		delete(t.full, shard)
	}
	return fits
}

// refuses tells whether an object of another shard is too much. From then on the absence of an object proves nothing, as
// long as the shard is one of the installation: what is not kept may be anything. The lock is held.
func (t *table) refuses(ctx context.Context, key client.Key) bool {
	refused, news := t.mirror.taken.refuses(key.Shard)
	if !refused {
		return false
	}
	gr := t.resource.GroupResource()
	if news {
		klog.FromContext(ctx).Error(tooMuch(key.Shard), "A shard has published more than is kept of one: what is not found counts as unknown from now on. Raise --shard-max-objects-of-another everywhere, or delete its Shard object",
			"shard", key.Shard, "most", t.mirror.taken.most, "resource", gr, "object", key)
	}
	refusedObjects.WithLabelValues(key.Shard).Inc()
	if t.refused == nil {
		t.refused = map[string]bool{}
	}
	t.refused[key.Shard] = true
	if t.unknown == nil {
		t.unknown = tooMuch(key.Shard)
		t.mirror.touch(gr, client.Key{})
	}
	return true
}

// whyRefused returns why a registered shard has more than is kept; nil if none has. The lock is held.
func (t *table) whyRefused(ctx context.Context) error {
	if len(t.refused) == 0 {
		return nil
	}
	registered, err := t.mirror.registered(ctx, t.at)
	if err != nil {
		return err
	}
	for shard := range t.refused {
		if _, is := registered[shard]; is {
			return tooMuch(shard)
		}
	}
	return nil
}

func tooMuch(shard string) error {
	return fmt.Errorf("shard %q has published more objects than are kept of one shard", shard)
}

// hasRoom tells whether something was refused that may be taken now.
func (t *table) hasRoom() bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.relisting {
		return false
	}
	for shard := range t.refused {
		if t.mirror.taken.fits(shard) {
			return true
		}
	}
	return false
}
