package sharding_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/internal/sharedindex"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/sharding/routing"
	"github.com/atoll-dev/atoll/shardserver/storage"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// records are the records that a source has emitted and not removed.
type records struct {
	mu    sync.Mutex
	byKey map[sharedindex.Key]string
}

func (r *records) apply(change sharedindex.Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if change.Value == nil {
		delete(r.byKey, change.Key)
		return
	}
	r.byKey[change.Key] = string(change.Value)
}

func (r *records) has(key sharedindex.Key) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.byKey[key]
	return ok
}

// TestListAndWatch follows the workspaces of a shard, those from before the start and later ones.
func TestListAndWatch(t *testing.T) {
	shard := shardtesting.Start(t)
	admin := shard.Client(t, shard.Admin(t))
	first := shard.NewWorkspace(t, "root", "first")
	workspaces := storage.NewReader[*tenancyv1alpha1.Workspace](shard.Server.Registry, tenancyv1alpha1.Resource("workspaces"))
	if _, err := workspaces.GetNotOlderThan(shardtesting.In(t.Context(), "root"), "", "first", first.ResourceVersion); err != nil {
		t.Fatal(err) // the watch cache has it, so that the first list contains it
	}

	for name, hasShards := range map[string]bool{"root": true, "alpha": false} {
		emitted, synced := &records{byKey: map[sharedindex.Key]string{}}, make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- routing.NewSource(shard.Server.Registry, name).ListAndWatch(ctx, emitted.apply, func() { close(synced) })
		}()
		select {
		case <-synced:
		case err := <-ended:
			t.Fatalf("the source of shard %s ended: %v", name, err)
		}
		for _, key := range []sharedindex.Key{workspaceKey("first"), clusterKey(first.Spec.Cluster), clusterKey("root")} {
			if !emitted.has(key) {
				t.Errorf("shard %s: after the start there is no record %+v", name, key)
			}
		}
		if got := emitted.has(sharedindex.Key{Kind: sharedindex.Shards, Name: "root"}); got != hasShards {
			t.Errorf("shard %s: a record of the root shard: %v, want %v", name, got, hasShards)
		}

		second := shard.NewWorkspace(t, "root", "second")
		shardtesting.Eventually(t, "records of a new workspace", func(context.Context) error {
			if !emitted.has(workspaceKey("second")) || !emitted.has(clusterKey(second.Spec.Cluster)) {
				return errors.New("there are none")
			}
			return nil
		})
		if err := admin.Delete(shardtesting.In(t.Context(), "root"), second); err != nil {
			t.Fatal(err)
		}
		shardtesting.Eventually(t, "the removal of the records of a deleted workspace", func(context.Context) error {
			if emitted.has(workspaceKey("second")) || emitted.has(clusterKey(second.Spec.Cluster)) {
				return errors.New("there are some")
			}
			return nil
		})
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the source of shard %s ended with %v", name, err)
		}
	}
}

func workspaceKey(name string) sharedindex.Key {
	return sharedindex.Key{Kind: sharedindex.Workspaces, Cluster: logicalcluster.Root, Name: name}
}

func clusterKey(name string) sharedindex.Key {
	return sharedindex.Key{Kind: sharedindex.Clusters, Cluster: logicalcluster.MustParseName(name)}
}
