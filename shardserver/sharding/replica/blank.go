package replica

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"k8s.io/klog/v2"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/cacheserver/client"
)

// blankPatience is how long a shard that has never been heard of is waited for, before it counts as having nothing.
const blankPatience = 5 * time.Minute

// A shard that was registered and never came up would be waited for by every new shard, for ever: what these do not find
// would stay unknown. It is waited for no longer if all of this holds for blankPatience, without a break:
//
//   - root says that it has never reported since it was registered. That is kept in the Shard object, in root's own etcd,
//     so a cache that lost everything does not make a shard blank;
//   - there is no report of it in the cache, and nothing else of it is known here, not even from before a restart;
//   - the cache answers.
//
// Such a shard has no logical cluster that anybody was given: they are placed on shards that report. What it may have from
// before it was registered, others learn when it publishes it, as they do of anything new. Shards that already know
// everything do not wait for new ones either.

// Reported tells whether a registered shard has ever been heard of by root since it was registered.
func Reported(shard *corev1alpha1.Shard) bool { return len(shard.Status.Load) > 0 }

// reportedOnce is Reported for a Shard object in the cache. One that cannot be read counts as reported.
func reportedOnce(object *client.Object) bool {
	var shard struct {
		Status struct {
			Load map[string]any `json:"load"`
		} `json:"status"`
	}
	return json.Unmarshal(object.Raw, &shard) != nil || len(shard.Status.Load) > 0
}

// blanks remembers since when shards have been blank. There is an entry for each that is.
type blanks struct {
	mu    sync.Mutex
	since map[string]time.Time
	told  map[string]bool
}

// lasts tells whether a shard that is blank now, or is not, has been so for some time.
func (b *blanks) lasts(shard string, blank bool, patience time.Duration) (lasts, news bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !blank {
		delete(b.since, shard)
		delete(b.told, shard)
		return false, false
	}
	if b.since == nil {
		b.since, b.told = map[string]time.Time{}, map[string]bool{}
	}
	since, known := b.since[shard]
	if !known {
		b.since[shard] = time.Now()
		return false, false
	}
	if time.Since(since) < patience {
		return false, false
	}
	news = !b.told[shard]
	b.told[shard] = true
	return true, news
}

// keep forgets shards that are registered no more: one that is again begins anew.
func (b *blanks) keep(registered map[string]bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for shard := range b.since {
		if _, is := registered[shard]; !is {
			delete(b.since, shard)
			delete(b.told, shard)
		}
	}
}

// blank tells whether a registered shard is not waited for, as it has never been heard of.
func (m *Mirror) blank(ctx context.Context, shard string, reported bool, at client.Position) bool {
	blank := !reported && m.reports.silent(shard, at) && m.taken.none(shard) && !m.outage.lasts()
	lasts, news := m.blanks.lasts(shard, blank, m.patience)
	if news {
		klog.FromContext(ctx).Info("A shard is registered and has never been heard of: what is not found does not wait for it any more", "shard", shard, "since", m.patience)
	}
	return lasts
}
