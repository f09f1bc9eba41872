package garbage_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/lifecycle/follow"
	"github.com/atoll-dev/atoll/shardserver/lifecycle/garbage"
	"github.com/atoll-dev/atoll/shardserver/loopback"
	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// world is a shard with two workspaces, and a client for everything.
type world struct {
	*shardtesting.Shard
	client client.Client
	a, b   string
	// observer is a collector of the test's own, whose memory can be looked at.
	observer *garbage.Collector
}

// TestGarbage runs everything against one shard.
func TestGarbage(t *testing.T) {
	shard := shardtesting.Start(t)
	w := &world{Shard: shard, client: shard.Client(t, shard.Masters(t))}
	w.a = shard.NewWorkspace(t, "root", "a").Spec.Cluster
	w.b = shard.NewWorkspace(t, "root", "b").Spec.Cluster
	w.observe(t)
	for name, test := range map[string]func(*testing.T, *world){
		"background deletion takes the dependents, and theirs":                     background,
		"orphaning deletion leaves the dependents":                                 orphaning,
		"foreground deletion waits for dependents that block":                      foreground,
		"a circle of foreground deletions ends":                                    circle,
		"an owner in another logical cluster is no owner":                          otherCluster,
		"an owner of another UID is no owner":                                      otherUID,
		"an owner in another namespace is no owner, which an event says":           otherNamespace,
		"a cluster-scoped object of a namespaced owner is left alone":              clusterScoped,
		"an object of an unknown kind of owner is left alone":                      unknownKind,
		"one owner of two that is gone is taken off":                               twoOwners,
		"two thousand dependents go, and the collector remembers none of them":     many,
		"the end of a logical cluster leaves nothing behind, here and in storage":  deletedCluster,
		"an object that was created with an absent owner before it was named goes": absentOwner,
	} {
		t.Run(name, func(t *testing.T) { test(t, w) })
	}
}

// TestWhatHappenedWhileNobodyCollected is found by the next process: nothing of what the collector knows is stored.
func TestWhatHappenedWhileNobodyCollected(t *testing.T) {
	directory := t.TempDir()
	shard := shardtesting.StartIn(t, directory, func(o *options.Options) { o.Controllers.Enable = false })
	w := &world{Shard: shard, client: shard.Client(t, shard.Masters(t)), a: "root"}
	first, second := w.configMap(t, w.a, "default", "first"), w.configMap(t, w.a, "default", "second")
	dependent, kept := w.configMap(t, w.a, "default", "dependent", owner(first)), w.configMap(t, w.a, "default", "kept", owner(second))
	w.delete(t, w.a, first, metav1.DeletePropagationBackground)
	w.delete(t, w.a, second, metav1.DeletePropagationOrphan)
	if err := shard.Stop(); err != nil {
		t.Fatal(err)
	}
	shard = shardtesting.StartIn(t, directory)
	w.client = shard.Client(t, shard.Masters(t))
	w.gone(t, w.a, dependent)
	w.gone(t, w.a, second)
	w.stays(t, w.a, kept)
}

// observe runs a second collector over the shard's storages, beside the shard's own.
func (w *world) observe(t *testing.T) {
	clients, err := loopback.NewClients(w.Masters(t))
	if err != nil {
		t.Fatal(err)
	}
	w.observer = garbage.New(garbage.Config{Registry: w.Server.Registry, Metadata: clients.Metadata, Kubernetes: clients.Kubernetes})
	follower := follow.New(w.Server.Registry, w.observer)
	ctx, cancel := context.WithCancel(context.Background())
	var group errgroup.Group
	group.Go(func() error { follower.Run(ctx); return nil })
	group.Go(func() error { w.observer.Run(ctx, follower); return nil })
	t.Cleanup(func() {
		cancel()
		_ = group.Wait()
		if objects, owners := w.observer.Size(); objects+owners > 0 {
			t.Errorf("a collector that ended still remembers %d objects and %d owners", objects, owners)
		}
	})
	shardtesting.Eventually(t, "all storages are listed", func(context.Context) error {
		if !follower.Synced() {
			return fmt.Errorf("not yet")
		}
		return nil
	})
}

// namespace creates a namespace for one test.
func (w *world) namespace(t *testing.T, cluster string) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "gc-"}}
	w.create(t, cluster, namespace)
	return namespace.Name
}

func (w *world) create(t *testing.T, cluster string, obj client.Object) {
	t.Helper()
	if err := w.client.Create(shardtesting.In(t.Context(), cluster), obj); err != nil {
		t.Fatalf("creating %T %s in %s: %v", obj, obj.GetName(), cluster, err)
	}
}

// configMap creates a config map with owners.
func (w *world) configMap(t *testing.T, cluster, namespace, name string, owners ...metav1.OwnerReference) *corev1.ConfigMap {
	t.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, OwnerReferences: owners}}
	w.create(t, cluster, object)
	return object
}

func (w *world) delete(t *testing.T, cluster string, obj client.Object, policy metav1.DeletionPropagation) {
	t.Helper()
	if err := w.client.Delete(shardtesting.In(t.Context(), cluster), obj, client.PropagationPolicy(policy)); err != nil {
		t.Fatalf("deleting %s in %s: %v", obj.GetName(), cluster, err)
	}
}

func (w *world) gone(t *testing.T, cluster string, obj client.Object) {
	t.Helper()
	shardtesting.Eventually(t, obj.GetName()+" goes", func(ctx context.Context) error {
		err := w.client.Get(shardtesting.In(ctx, cluster), client.ObjectKeyFromObject(obj), obj)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("still there, with finalizers %v and owners %v: %v", obj.GetFinalizers(), obj.GetOwnerReferences(), err)
	})
}

func (w *world) stays(t *testing.T, cluster string, obj client.Object) {
	t.Helper()
	if err := w.client.Get(shardtesting.In(t.Context(), cluster), client.ObjectKeyFromObject(obj), obj); err != nil || obj.GetDeletionTimestamp() != nil {
		t.Errorf("%s should be there: %v, deleted at %v", obj.GetName(), err, obj.GetDeletionTimestamp())
	}
}

// settled waits until an object that comes later has gone, so that what was there before has been looked at.
func (w *world) settled(t *testing.T, cluster, namespace string) {
	t.Helper()
	w.gone(t, cluster, w.configMap(t, cluster, namespace, "settled", reference("v1", "ConfigMap", "absent", "absent")))
}

func owner(obj client.Object) metav1.OwnerReference {
	kind := strings.TrimPrefix(fmt.Sprintf("%T", obj), "*v1.")
	version := "v1"
	if kind == "ClusterRole" {
		version = "rbac.authorization.k8s.io/v1"
	}
	return reference(version, kind, obj.GetName(), obj.GetUID())
}

func reference(version, kind, name string, uid types.UID) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: version, Kind: kind, Name: name, UID: uid}
}

func blocking(reference metav1.OwnerReference) metav1.OwnerReference {
	yes := true
	reference.BlockOwnerDeletion = &yes
	return reference
}

func background(t *testing.T, w *world) {
	namespace := w.namespace(t, w.a)
	first := w.configMap(t, w.a, namespace, "first")
	second := w.configMap(t, w.a, namespace, "second", owner(first))
	third := w.configMap(t, w.a, namespace, "third", owner(second))
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "gc-"}}
	w.create(t, w.a, role)
	ofRole := w.configMap(t, w.a, namespace, "of-role", owner(role))
	w.delete(t, w.a, first, metav1.DeletePropagationBackground)
	w.delete(t, w.a, role, metav1.DeletePropagationBackground)
	for _, obj := range []client.Object{first, second, third, ofRole} {
		w.gone(t, w.a, obj)
	}
}

func orphaning(t *testing.T, w *world) {
	namespace := w.namespace(t, w.a)
	first := w.configMap(t, w.a, namespace, "first")
	var dependents []*corev1.ConfigMap
	for i := range 20 {
		dependents = append(dependents, w.configMap(t, w.a, namespace, fmt.Sprintf("dependent-%d", i), owner(first)))
	}
	w.delete(t, w.a, first, metav1.DeletePropagationOrphan)
	w.gone(t, w.a, first)
	w.settled(t, w.a, namespace)
	for _, dependent := range dependents {
		w.stays(t, w.a, dependent)
		if len(dependent.OwnerReferences) != 0 {
			t.Errorf("%s still names its owner", dependent.Name)
		}
	}
}

func foreground(t *testing.T, w *world) {
	namespace := w.namespace(t, w.a)
	first := w.configMap(t, w.a, namespace, "first")
	held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: "held", Finalizers: []string{"example.com/hold"}, OwnerReferences: []metav1.OwnerReference{blocking(owner(first))},
	}}
	w.create(t, w.a, held)
	below := w.configMap(t, w.a, namespace, "below", blocking(owner(held)))
	w.delete(t, w.a, first, metav1.DeletePropagationForeground)
	w.gone(t, w.a, below)
	shardtesting.Eventually(t, "the dependent is deleted", func(ctx context.Context) error {
		if err := w.client.Get(shardtesting.In(ctx, w.a), client.ObjectKeyFromObject(held), held); err != nil {
			return err
		}
		if held.DeletionTimestamp == nil || slices.Contains(held.Finalizers, metav1.FinalizerDeleteDependents) {
			return fmt.Errorf("deleted at %v, finalizers %v", held.DeletionTimestamp, held.Finalizers)
		}
		return nil
	})
	if err := w.client.Get(shardtesting.In(t.Context(), w.a), client.ObjectKeyFromObject(first), first); err != nil {
		t.Fatalf("the owner went before the dependent that blocks it: %v", err)
	}
	held.Finalizers = nil
	if err := w.client.Update(shardtesting.In(t.Context(), w.a), held); err != nil {
		t.Fatal(err)
	}
	w.gone(t, w.a, held)
	w.gone(t, w.a, first)
}

func circle(t *testing.T, w *world) {
	namespace := w.namespace(t, w.a)
	one := w.configMap(t, w.a, namespace, "one")
	two := w.configMap(t, w.a, namespace, "two", blocking(owner(one)))
	one.OwnerReferences = []metav1.OwnerReference{blocking(owner(two))}
	if err := w.client.Update(shardtesting.In(t.Context(), w.a), one); err != nil {
		t.Fatal(err)
	}
	w.delete(t, w.a, one, metav1.DeletePropagationForeground)
	w.gone(t, w.a, one)
	w.gone(t, w.a, two)
}

func otherCluster(t *testing.T, w *world) {
	namespace := w.namespace(t, w.a)
	w.create(t, w.b, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	inB := w.configMap(t, w.b, namespace, "owner")
	w.configMap(t, w.a, namespace, "owner") // equal in everything but the UID
	w.gone(t, w.a, w.configMap(t, w.a, namespace, "dependent", owner(inB)))
	w.stays(t, w.b, inB)
}

func otherUID(t *testing.T, w *world) {
	namespace := w.namespace(t, w.a)
	first := w.configMap(t, w.a, namespace, "first")
	earlier := owner(first)
	earlier.UID = "0000"
	w.gone(t, w.a, w.configMap(t, w.a, namespace, "dependent", earlier))
	w.stays(t, w.a, first)
}

func otherNamespace(t *testing.T, w *world) {
	here, there := w.namespace(t, w.a), w.namespace(t, w.a)
	first := w.configMap(t, w.a, there, "first")
	dependent := w.configMap(t, w.a, here, "dependent", owner(first))
	w.gone(t, w.a, dependent)
	w.reported(t, here, dependent)
}

func clusterScoped(t *testing.T, w *world) {
	namespace := w.namespace(t, w.a)
	first := w.configMap(t, w.a, namespace, "first")
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "gc-", OwnerReferences: []metav1.OwnerReference{owner(first)}}}
	w.create(t, w.a, role)
	w.reported(t, "default", role)
	w.delete(t, w.a, first, metav1.DeletePropagationBackground)
	w.settled(t, w.a, namespace)
	w.stays(t, w.a, role)
	w.delete(t, w.a, role, metav1.DeletePropagationBackground)
}

func (w *world) reported(t *testing.T, namespace string, obj client.Object) {
	t.Helper()
	uid := obj.GetUID()
	shardtesting.Eventually(t, "an event says so", func(ctx context.Context) error {
		events := &corev1.EventList{}
		if err := w.client.List(shardtesting.In(ctx, w.a), events, client.InNamespace(namespace)); err != nil {
			return err
		}
		for _, event := range events.Items {
			if event.Reason == "OwnerRefInvalidNamespace" && event.InvolvedObject.UID == uid {
				return nil
			}
		}
		return fmt.Errorf("none of %d events", len(events.Items))
	})
}

func unknownKind(t *testing.T, w *world) {
	namespace := w.namespace(t, w.a)
	dependent := w.configMap(t, w.a, namespace, "dependent", reference("example.com/v1", "Thing", "x", "1"))
	both := w.configMap(t, w.a, namespace, "both", reference("example.com/v1", "Thing", "x", "1"), reference("v1", "ConfigMap", "absent", "2"))
	w.settled(t, w.a, namespace)
	w.stays(t, w.a, dependent)
	w.stays(t, w.a, both)
	w.delete(t, w.a, dependent, metav1.DeletePropagationBackground)
	w.delete(t, w.a, both, metav1.DeletePropagationBackground)
}

func twoOwners(t *testing.T, w *world) {
	namespace := w.namespace(t, w.a)
	first, second := w.configMap(t, w.a, namespace, "first"), w.configMap(t, w.a, namespace, "second")
	dependent := w.configMap(t, w.a, namespace, "dependent", owner(first), owner(second))
	w.delete(t, w.a, first, metav1.DeletePropagationBackground)
	shardtesting.Eventually(t, "the absent owner is taken off", func(ctx context.Context) error {
		if err := w.client.Get(shardtesting.In(ctx, w.a), client.ObjectKeyFromObject(dependent), dependent); err != nil {
			return err
		}
		if len(dependent.OwnerReferences) != 1 || dependent.OwnerReferences[0].UID != second.UID {
			return fmt.Errorf("owners are %v", dependent.OwnerReferences)
		}
		return nil
	})
	w.delete(t, w.a, second, metav1.DeletePropagationBackground)
	w.gone(t, w.a, dependent)
}

func absentOwner(t *testing.T, w *world) {
	namespace := w.namespace(t, w.a)
	dependent := w.configMap(t, w.a, namespace, "dependent")
	dependent.OwnerReferences = []metav1.OwnerReference{reference("v1", "Secret", "never", "3")}
	if err := w.client.Update(shardtesting.In(t.Context(), w.a), dependent); err != nil {
		t.Fatal(err)
	}
	w.gone(t, w.a, dependent)
}

func many(t *testing.T, w *world) {
	namespace := w.namespace(t, w.a)
	first := w.configMap(t, w.a, namespace, "first")
	w.fill(t, w.a, namespace, 2000, owner(first))
	w.delete(t, w.a, first, metav1.DeletePropagationBackground)
	shardtesting.Eventually(t, "all dependents go", func(ctx context.Context) error {
		list := &corev1.ConfigMapList{}
		err := w.client.List(shardtesting.In(ctx, w.a), list, client.InNamespace(namespace))
		if left := len(list.Items); left > 1 { // kube-root-ca.crt stays
			return fmt.Errorf("%d are left", left)
		}
		return err
	})
	w.remembersNothing(t, w.a)
}

func deletedCluster(t *testing.T, w *world) {
	workspace := w.NewWorkspace(t, "root", "short-lived")
	cluster := workspace.Spec.Cluster
	namespace := w.namespace(t, cluster)
	w.fill(t, cluster, namespace, 100, reference("example.com/v1", "Thing", "x", "1"))
	w.fill(t, cluster, "default", 100, owner(w.configMap(t, cluster, "default", "first")))
	if err := w.client.Delete(shardtesting.In(t.Context(), "root"), &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: "short-lived"}}); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "no key is left", func(context.Context) error {
		if left := w.Keys(t, cluster); len(left) > 0 {
			return fmt.Errorf("%d keys, the first is %s", len(left), left[0])
		}
		return nil
	})
	w.remembersNothing(t, cluster)
}

func (w *world) fill(t *testing.T, cluster, namespace string, count int, owner metav1.OwnerReference) {
	t.Helper()
	var writers errgroup.Group
	writers.SetLimit(16)
	for i := range count {
		writers.Go(func() error {
			return w.client.Create(shardtesting.In(t.Context(), cluster), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: fmt.Sprintf("dependent-%d", i), OwnerReferences: []metav1.OwnerReference{owner},
			}})
		})
	}
	if err := writers.Wait(); err != nil {
		t.Fatal(err)
	}
}

// remembersNothing is the proof that what is collected costs nothing afterwards.
func (w *world) remembersNothing(t *testing.T, cluster string) {
	t.Helper()
	shardtesting.Eventually(t, "the collector forgets", func(context.Context) error {
		if objects, owners := w.observer.SizeIn(logicalcluster.MustParseName(cluster)); objects+owners > 0 {
			return fmt.Errorf("%d objects and %d owners are remembered", objects, owners)
		}
		return nil
	})
}
