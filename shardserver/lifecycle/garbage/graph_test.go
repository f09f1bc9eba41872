package garbage

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

func object(cluster string, uid types.UID, owners ...metav1.OwnerReference) *metav1.ObjectMeta {
	return &metav1.ObjectMeta{
		Namespace: "n", Name: string(uid), UID: uid, OwnerReferences: owners,
		Annotations: map[string]string{logicalcluster.AnnotationKey: cluster},
	}
}

func by(uid types.UID, blocking bool) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: string(uid), UID: uid, BlockOwnerDeletion: &blocking}
}

func going(obj *metav1.ObjectMeta, finalizer string) *metav1.ObjectMeta {
	now := metav1.Now()
	obj.DeletionTimestamp, obj.Finalizers = &now, []string{finalizer}
	return obj
}

// TestTheGraphTellsWhomToLookAt walks through the life of objects of two logical clusters whose UIDs are equal.
func TestTheGraphTellsWhomToLookAt(t *testing.T) {
	var looked []string
	g := newGraph(func(k key) { looked = append(looked, k.cluster.String()+"/"+string(k.uid)) })
	maps, others := &storage.Resource{Prefix: "/core/configmaps"}, &storage.Resource{Prefix: "/core/secrets"}
	for _, resource := range []*storage.Resource{maps, others} {
		g.Listing(resource)
		g.Listed(resource)
	}
	for _, step := range []struct {
		says          string
		do            func()
		looked        []string
		nodes, owners int
	}{
		{"an object without owners costs nothing", func() { g.Observe(maps, watch.Added, object("a", "1")) }, nil, 0, 0},
		{"one with an owner is looked at", func() { g.Observe(maps, watch.Added, object("a", "2", by("1", true))) }, []string{"a/2"}, 1, 1},
		{"and so is its like in another cluster", func() { g.Observe(maps, watch.Added, object("b", "2", by("1", true))) }, []string{"b/2"}, 2, 2},
		{"a change of something else is not", func() { g.Observe(maps, watch.Modified, object("a", "2", by("1", true))) }, nil, 2, 2},
		{"an owner that waits has all looked at", func() {
			g.Observe(maps, watch.Modified, going(object("a", "1"), metav1.FinalizerDeleteDependents))
		}, []string{"a/1", "a/2"}, 3, 2},
		{"who no longer blocks it has it looked at", func() { g.Observe(maps, watch.Modified, object("a", "2", by("1", false))) }, []string{"a/1"}, 3, 2},
		{"a second owner is looked up", func() { g.Observe(maps, watch.Modified, object("a", "2", by("1", false), by("3", false))) }, []string{"a/2"}, 3, 3},
		{"the end of an owner is its dependents' concern, in its cluster alone", func() { g.Observe(maps, watch.Deleted, object("a", "1")) }, []string{"a/2"}, 2, 3},
		{"who loses all owners is forgotten", func() { g.Observe(maps, watch.Modified, object("a", "2")) }, nil, 1, 1},
		{"what a broken watch missed is gone", func() { g.Listing(maps); g.Listed(maps) }, nil, 0, 0},
		{"a storage takes its objects along", func() { g.Observe(others, watch.Added, object("b", "9", by("1", true))); g.Dropped(others) }, []string{"b/9"}, 0, 0},
	} {
		looked = nil
		step.do()
		slices.Sort(looked)
		if nodes, owners := g.size(); !slices.Equal(looked, step.looked) || nodes != step.nodes || owners != step.owners {
			t.Errorf("%s: looked at %v, remembers %d objects and %d owners", step.says, looked, nodes, owners)
		}
	}
	if !g.isGone(key{logicalcluster.MustParseName("a"), "1"}) || g.isGone(key{logicalcluster.MustParseName("b"), "1"}) {
		t.Error("an owner that went is remembered in its own logical cluster")
	}
}
