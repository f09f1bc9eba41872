package garbage

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/informer"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

func newObject(cluster string, uid types.UID, owners ...metav1.OwnerReference) *metav1.ObjectMeta {
	return &metav1.ObjectMeta{
		Namespace: "n", Name: string(uid), UID: uid, OwnerReferences: owners,
		Annotations: map[string]string{logicalcluster.AnnotationKey: cluster},
	}
}

func ownerRef(uid types.UID, blocking bool) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: string(uid), UID: uid, BlockOwnerDeletion: &blocking}
}

func deleting(obj *metav1.ObjectMeta, finalizer string) *metav1.ObjectMeta {
	now := metav1.Now()
	obj.DeletionTimestamp, obj.Finalizers = &now, []string{finalizer}
	return obj
}

// TestGraph applies events of objects of two logical clusters whose UIDs are equal.
func TestGraph(t *testing.T) {
	var enqueued []string
	g := newGraph(func(k key) { enqueued = append(enqueued, k.cluster.String()+"/"+string(k.uid)) })
	configMaps, secrets := &storage.Resource{Prefix: "/core/configmaps"}, &storage.Resource{Prefix: "/core/secrets"}
	configMapHandler, secretHandler := g.EventHandler(configMaps), g.EventHandler(secrets)
	replace := func(handler informer.EventHandler[metav1.Object]) {
		if err := handler.OnReplace(t.Context(), nil, "1"); err != nil {
			t.Fatal(err)
		}
	}
	replace(configMapHandler)
	replace(secretHandler)
	for _, step := range []struct {
		description   string
		do            func()
		enqueued      []string
		nodes, owners int
	}{
		{"object without owners has no node", func() { g.update(configMaps, newObject("a", "1")) }, nil, 0, 0},
		{"object with an owner is enqueued", func() { g.update(configMaps, newObject("a", "2", ownerRef("1", true))) }, []string{"a/2"}, 1, 1},
		{"equal object in another logical cluster is enqueued", func() { g.update(configMaps, newObject("b", "2", ownerRef("1", true))) }, []string{"b/2"}, 2, 2},
		{"unrelated update is not enqueued", func() { g.update(configMaps, newObject("a", "2", ownerRef("1", true))) }, nil, 2, 2},
		{"waiting owner and its dependents are enqueued", func() {
			g.update(configMaps, deleting(newObject("a", "1"), metav1.FinalizerDeleteDependents))
		}, []string{"a/1", "a/2"}, 3, 2},
		{"owner is enqueued when a dependent stops blocking it", func() { g.update(configMaps, newObject("a", "2", ownerRef("1", false))) }, []string{"a/1"}, 3, 2},
		{"added owner enqueues the dependent", func() {
			g.update(configMaps, newObject("a", "2", ownerRef("1", false), ownerRef("3", false)))
		}, []string{"a/2"}, 3, 3},
		{"deleted owner enqueues its dependents, only in its logical cluster", func() { g.delete(newObject("a", "1")) }, []string{"a/2"}, 2, 3},
		{"object without owners is removed", func() { g.update(configMaps, newObject("a", "2")) }, nil, 1, 1},
		{"object missing in a relist is removed", func() { replace(configMapHandler) }, nil, 0, 0},
		{"removed storage removes its objects", func() {
			g.update(secrets, newObject("b", "9", ownerRef("1", true)))
			secretHandler.OnStop()
		}, []string{"b/9"}, 0, 0},
	} {
		enqueued = nil
		step.do()
		slices.Sort(enqueued)
		if nodes, owners := g.size(); !slices.Equal(enqueued, step.enqueued) || nodes != step.nodes || owners != step.owners {
			t.Errorf("%s: enqueued %v, has %d objects and %d owners", step.description, enqueued, nodes, owners)
		}
	}
	if !g.isDeleted(key{logicalcluster.MustParseName("a"), "1"}) || g.isDeleted(key{logicalcluster.MustParseName("b"), "1"}) {
		t.Error("the deletion of an owner is not recorded, or not only in its logical cluster")
	}
}

// The graph has one lock for all logical clusters: an update of an object with many owners must not compare each with each other, which
// would take 256 times as long for 16 times as many.
func TestManyOwners(t *testing.T) {
	measure := func(count int) time.Duration {
		g := newGraph(func(key) {})
		owners := make([]metav1.OwnerReference, count)
		for i := range owners {
			owners[i] = ownerRef(types.UID(fmt.Sprint(i)), i%2 == 0)
		}
		fastest := time.Hour
		for range 10 {
			began := time.Now()
			g.update(&storage.Resource{Prefix: "/core/configmaps"}, newObject("a", "x", owners...))
			fastest = min(fastest, time.Since(began))
		}
		return fastest
	}
	if small, large := measure(250), measure(4000); large > 100*small {
		t.Errorf("%s for 250 owners, %s for 4000", small, large)
	}
}
