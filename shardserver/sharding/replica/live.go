package replica

import (
	"context"
	"errors"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// errNotListed is returned while this process knows the cache server only by the snapshot.
var errNotListed = errors.New("the cache server has not been listed since this shard was started")

// LiveShards returns the names of the shards of the installation. Unlike CheckSynced and List, it does not take the word of the snapshot, which is as
// old as the etcd of this shard: the cache server must have been listed since the start, with all Shards that the root shard has published. Shards
// that have published the Shard that they own, or a report, count, too: the root shard may have been restored to a state of before they joined.
func (inf *Informer) LiveShards(ctx context.Context) (map[string]bool, error) {
	s := inf.stores[shards]
	if s == nil {
		return nil, errNotListed
	}
	tracker := &inf.shardTracker
	tracker.mu.RLock()
	at, reportsListed := tracker.registeredAt, tracker.at.ResourceVersion != ""
	tracker.mu.RUnlock()
	if at.ResourceVersion == "" || !reportsListed {
		return nil, errNotListed
	}
	registered, err := inf.registered(ctx, at)
	if err != nil {
		// A watch without changes may reach what the root shard has reported only by a bookmark, which comes rarely.
		if tracker.complete.IsCompleteAt(inf.cfg.Root, latestIn(at)) && !s.isRelisting() {
			s.relist()
		}
		return nil, err
	}
	live := make(map[string]bool, len(registered))
	for name := range registered {
		live[name] = true
	}
	inf.addPublishing(live)
	return live, nil
}

// addPublishing adds the shards that have a report in the cache, or the Shard that they own.
func (inf *Informer) addPublishing(live map[string]bool) {
	tracker := &inf.shardTracker
	tracker.mu.RLock()
	for name := range tracker.reporting {
		live[name] = true
	}
	tracker.mu.RUnlock()
	for _, object := range inf.List(shards, logicalcluster.Shard) {
		if shard, ok := object.(*corev1alpha1.Shard); ok {
			live[shard.Name] = true
		}
	}
}

func (s *store) isRelisting() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.relisting
}
