package replica

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/internal/etcdtest"
	"github.com/atoll-dev/atoll/logicalcluster"
)

func newSnapshotStore(t *testing.T) *SnapshotStore {
	t.Helper()
	server := etcdtest.Start(t)
	etcd := etcdtest.NewClient(t, server)
	return &SnapshotStore{Etcd: etcd, Prefix: "/registry"}
}

// TestSnapshotOfLargeObjects: a transaction of etcd is limited to 1.5 MiB. A few large objects of one tenant must not
// keep others out of the snapshot.
func TestSnapshotOfLargeObjects(t *testing.T) {
	snapshots := newSnapshotStore(t)
	m := New(Config{Shard: "alpha", Root: "root", Resources: testResources(t), SnapshotStore: snapshots})
	m.dirty = map[snapshotKey]struct{}{}
	store := m.stores[workspaceTypes]
	put := func(name string, bytes int) {
		object := newWorkspaceType(name)
		object.Annotations = map[string]string{logicalcluster.AnnotationKey: "tenant", "text": strings.Repeat("x", bytes)}
		store.put("root", "1", object)
	}
	const large, small = 20, 300
	for i := range large {
		put(fmt.Sprintf("large%d", i), 600_000)
	}
	for i := range small {
		put(fmt.Sprintf("small%d", i), 100)
	}
	put("huge", 13<<17)
	term, err := snapshots.AcquireTerm(t.Context(), segment)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.flush(t.Context(), term); err != nil {
		t.Fatal(err)
	}
	if len(m.dirty) > 0 {
		t.Errorf("%d objects are still dirty", len(m.dirty))
	}
	found := map[client.Key]bool{}
	if err := snapshots.read(t.Context(), func(key snapshotKey, _ snapshotEntry) { found[key.Key] = true }); err != nil {
		t.Fatal(err)
	}
	if len(found) != large+small {
		t.Errorf("the snapshot has %d objects, want %d: all but the one above etcd's limit", len(found), large+small)
	}
}

// TestSnapshotHasOneWriter: a replica of the shard that lost the lease of controllers does not change what the next one
// writes.
func TestSnapshotHasOneWriter(t *testing.T) {
	snapshots := newSnapshotStore(t)
	newWriter := func(name string) *Informer {
		m := New(Config{Shard: "alpha", Root: "root", Resources: testResources(t), SnapshotStore: snapshots})
		m.dirty = map[snapshotKey]struct{}{}
		object := newWorkspaceType(name)
		object.Annotations = map[string]string{logicalcluster.AnnotationKey: "tenant"}
		m.stores[workspaceTypes].put("root", "1", object)
		return m
	}
	names := func() (found []string) {
		t.Helper()
		if err := snapshots.read(t.Context(), func(key snapshotKey, _ snapshotEntry) { found = append(found, key.Name) }); err != nil {
			t.Fatal(err)
		}
		return found
	}
	late, next := newWriter("late"), newWriter("next")
	var lateTerm, nextTerm *Term
	if err := late.startTerm(t.Context(), &lateTerm); err != nil {
		t.Fatal(err)
	}
	if err := next.startTerm(t.Context(), &nextTerm); err != nil {
		t.Fatal(err)
	}
	if err := next.flush(t.Context(), nextTerm); err != nil {
		t.Fatal(err)
	}
	if err := late.flush(t.Context(), lateTerm); !errors.Is(err, ErrTermEnded) {
		t.Errorf("the late replica: %v", err)
	}
	if got := names(); !slices.Equal(got, []string{"next"}) {
		t.Errorf("the snapshot has %q", got)
	}
}
