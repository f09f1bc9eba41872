package replica

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// shardTracker tracks the registered shards and their reports, which decide whether an absent object is deleted.
type shardTracker struct {
	complete client.Completeness

	mu sync.RWMutex
	// reporting are the shards that have a report, at the position at.
	reporting map[string]bool
	at        client.Position
	// registered are the shards that the root shard has registered, and whether each has ever reported, at the position
	// registeredAt.
	registered   map[string]bool
	registeredAt client.Position
}

// isRegister returns whether an object decides which shards exist: reports, and the Shards of the root shard in root. The ones that shards own
// do not.
func isRegister(resource schema.GroupResource, object *client.Object) bool {
	return resource != shards || object.Cluster == logicalcluster.Root
}

// replace applies the list of reports or of shards.
func (s *shardTracker) replace(inf *Informer, resource schema.GroupResource, objects []*client.Object, at client.Position) {
	if resource != shardReports && resource != shards {
		return
	}
	names := map[string]bool{}
	trusted := make([]*client.Object, 0, len(objects))
	for _, object := range objects {
		if inf.trusts(resource, object) && isRegister(resource, object) {
			names[object.Name] = resource == shardReports || reportedOnce(object)
			trusted = append(trusted, object)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if resource == shards {
		s.registered, s.registeredAt = names, at
		return
	}
	s.complete.OnReplace(trusted, at)
	s.reporting, s.at = names, at
}

// change applies one change of a report or a shard.
func (s *shardTracker) change(inf *Informer, resource schema.GroupResource, change watch.EventType, object *client.Object, at client.Position) {
	if resource != shardReports && resource != shards {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	names := s.registered
	if resource == shardReports {
		names, s.at = s.reporting, at
	} else {
		s.registeredAt = at
	}
	if object == nil || !inf.trusts(resource, object) || !isRegister(resource, object) {
		return
	}
	if resource == shardReports {
		s.complete.OnEvent(change, object, at)
	}
	if change == watch.Deleted {
		delete(names, object.Name)
		return
	}
	names[object.Name] = resource == shardReports || reportedOnce(object)
}

// hasNoReport returns whether a shard has no report in the store of a position. It is false while that is unknown.
func (s *shardTracker) hasNoReport(shard string, at client.Position) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.at.ResourceVersion != "" && s.at.Incarnation == at.Incarnation && !s.reporting[shard]
}

// complete returns whether objects of a shard which a reflector at a position has not seen do not exist: the shard is
// complete there, or it is neither registered nor has a report.
func (inf *Informer) complete(ctx context.Context, shard string, at client.Position) bool {
	if inf.shardTracker.complete.IsCompleteAt(shard, at) {
		return true
	}
	if !inf.shardTracker.hasNoReport(shard, at) {
		return false
	}
	registered, err := inf.registered(ctx, at)
	_, exists := registered[shard]
	return err == nil && !exists
}

// completenessError returns why a reflector at a position may not have seen all objects of other shards; nil if it has.
func (inf *Informer) completenessError(ctx context.Context, at client.Position) error {
	registered, err := inf.registered(ctx, at)
	if err != nil {
		return err
	}
	inf.neverReported.prune(registered)
	var reason error
	for shard, reported := range registered {
		if shard != inf.cfg.Shard && !inf.shardTracker.complete.IsCompleteAt(shard, at) && !inf.isNeverReported(ctx, shard, reported, at) {
			reason = errNotComplete(shard) // no return: isNeverReported must see every shard
		}
	}
	return reason
}

func errNotComplete(shard string) error {
	return fmt.Errorf("shard %q has not reported yet that its part of the cache is complete", shard)
}

// registered returns the names of all shards, and whether each has ever reported, or an error while they are unknown.
func (inf *Informer) registered(ctx context.Context, at client.Position) (map[string]bool, error) {
	if inf.cfg.Shards != nil {
		return inf.cfg.Shards(ctx)
	}
	r := &inf.shardTracker
	r.mu.RLock()
	defer r.mu.RUnlock()
	if !r.complete.IsCompleteAt(inf.cfg.Root, latestIn(r.at)) {
		return nil, errNotComplete(inf.cfg.Root)
	}
	if r.registeredAt.Incarnation != at.Incarnation || !r.complete.IsCompleteAt(inf.cfg.Root, r.registeredAt) && at != latestIn(at) {
		return nil, errors.New("the shards have not been listed from the cache yet")
	}
	return maps.Clone(r.registered), nil
}

// latestIn returns a position after all others of the same store.
func latestIn(at client.Position) client.Position {
	return client.Position{Incarnation: at.Incarnation, ResourceVersion: strconv.FormatUint(math.MaxUint64, 10)}
}
