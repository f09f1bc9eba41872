package replica

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	"github.com/atoll-dev/atoll/internal/etcdtest"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/customresources/crdstorage"
	"github.com/atoll-dev/atoll/shardserver/sharding/replica"
)

// TestReplicasHaveOneWriter: a server of the shard that lost the lease of controllers does not change what the next one
// writes, and stops.
func TestReplicasHaveOneWriter(t *testing.T) {
	server := etcdtest.Start(t)
	etcd := etcdtest.NewClient(t, server)
	config := *storagebackend.NewDefaultConfig(Prefix("/registry"), nil)
	server.Connect(&config.Transport)
	config.CompactionInterval = 0
	store := NewStore(crdstorage.NewPool(crdstorage.Options{Storage: config}), nil)
	t.Cleanup(store.Close)
	opened, done, err := store.acquire(storageKey{schema.GroupResource{Group: "example.io", Resource: "widgets"}, identity})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(done)

	cluster := logicalcluster.MustParseName("provider")
	newWriter := func() (w *writer, running context.Context) {
		t.Helper()
		running, stop := context.WithCancel(t.Context())
		k := NewReplicator(ReplicatorConfig{Store: store, SnapshotStore: &replica.SnapshotStore{Etcd: etcd, Prefix: "/registry"}})
		if !k.acquireTerm(running, stop) {
			t.Fatal("no term")
		}
		return &writer{opened, k.checkTerm}, running
	}
	put := func(w *writer, name string) error {
		t.Helper()
		data, err := json.Marshal(metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: "example.io/v1", Kind: "Widget"},
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{logicalcluster.AnnotationKey: cluster.String()}},
		})
		if err != nil {
			t.Fatal(err)
		}
		object, err := crdstorage.NewObject(data, 0)
		if err != nil {
			t.Fatal(err)
		}
		return w.put(t.Context(), cluster, object)
	}
	late, lateRuns := newWriter()
	if err := errors.Join(put(late, "first"), put(late, "deleted"), late.delete(t.Context(), cluster, "deleted")); err != nil {
		t.Fatal(err)
	}
	next, nextRuns := newWriter()
	for name, err := range map[string]error{
		"a write":    put(late, "late"),
		"a deletion": late.delete(t.Context(), cluster, "first"),
	} {
		if !errors.Is(err, replica.ErrTermEnded) {
			t.Errorf("%s of the late server: %v", name, err)
		}
	}
	if err := errors.Join(put(next, "second"), next.delete(t.Context(), cluster, "absent")); err != nil {
		t.Errorf("the next server: %v", err)
	}
	if lateRuns.Err() == nil || nextRuns.Err() != nil {
		t.Errorf("the late server: %v, the next one: %v", lateRuns.Err(), nextRuns.Err())
	}
	stored, err := opened.listOriginals(t.Context(), cluster)
	if err != nil {
		t.Fatal(err)
	}
	if names := slices.Sorted(maps.Keys(stored)); !slices.Equal(names, []string{"first", "second"}) {
		t.Errorf("the replicas are %q", names)
	}
}
