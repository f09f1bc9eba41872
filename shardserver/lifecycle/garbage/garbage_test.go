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
	"github.com/atoll-dev/atoll/shardserver/informer"
	"github.com/atoll-dev/atoll/shardserver/lifecycle/garbage"
	"github.com/atoll-dev/atoll/shardserver/loopback"
	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// env is a shard with two workspaces, and a client for everything.
type env struct {
	*shardtesting.Shard
	client client.Client
	a, b   string
	// collector is a collector of the test, whose graph can be inspected.
	collector *garbage.Collector
}

// TestGarbage runs everything against one shard.
func TestGarbage(t *testing.T) {
	shard := shardtesting.Start(t)
	w := &env{Shard: shard, client: shard.Client(t, shard.Masters(t))}
	w.a = shard.NewWorkspace(t, "root", "a").Spec.Cluster
	w.b = shard.NewWorkspace(t, "root", "b").Spec.Cluster
	w.startCollector(t)
	for name, test := range map[string]func(*testing.T, *env){
		"background deletion deletes transitive dependents":                    testBackground,
		"orphaning deletion keeps the dependents":                              testOrphan,
		"foreground deletion waits for blocking dependents":                    testForeground,
		"cycle of foreground deletions ends":                                   testCycle,
		"owner in another logical cluster is absent":                           testOwnerInOtherCluster,
		"owner of another UID is absent":                                       testOwnerWithOtherUID,
		"owner in another namespace is absent and reported by an event":        testOwnerInOtherNamespace,
		"every dependent of an owner in another namespace is reported":         testManyInOtherNamespace,
		"cluster-scoped object with a namespaced owner is kept":                testClusterScopedDependent,
		"object with an owner of an unknown kind is kept":                      testUnknownOwnerKind,
		"one absent owner of two is removed":                                   testTwoOwners,
		"two thousand dependents are deleted and removed from the graph":       testManyDependents,
		"deleted logical cluster is removed from graph and storage":            testDeletedCluster,
		"object with an owner that was deleted before its creation is deleted": testAbsentOwner,
		"object whose owner exists again after its deletion is kept":           testOwnerAgain,
	} {
		t.Run(name, func(t *testing.T) { test(t, w) })
	}
}

// TestCollectAfterRestart: the next process collects, as the graph is not stored.
func TestCollectAfterRestart(t *testing.T) {
	directory := t.TempDir()
	shard := shardtesting.StartIn(t, directory, func(o *options.Options) { o.Controllers.Enable = false })
	w := &env{Shard: shard, client: shard.Client(t, shard.Masters(t)), a: "root"}
	first, second := w.createConfigMap(t, w.a, "default", "first"), w.createConfigMap(t, w.a, "default", "second")
	dependent, kept := w.createConfigMap(t, w.a, "default", "dependent", ownerRef(first)), w.createConfigMap(t, w.a, "default", "kept", ownerRef(second))
	w.delete(t, w.a, first, metav1.DeletePropagationBackground)
	w.delete(t, w.a, second, metav1.DeletePropagationOrphan)
	if err := shard.Stop(); err != nil {
		t.Fatal(err)
	}
	shard = shardtesting.StartIn(t, directory)
	w.client = shard.Client(t, shard.Masters(t))
	w.eventuallyDeleted(t, w.a, dependent)
	w.eventuallyDeleted(t, w.a, second)
	w.assertExists(t, w.a, kept)
}

// startCollector runs a second collector over the shard's storages, in addition to the shard's own.
func (e *env) startCollector(t *testing.T) {
	clients, err := loopback.NewClients(e.Masters(t))
	if err != nil {
		t.Fatal(err)
	}
	e.collector = garbage.New(garbage.Config{Registry: e.Server.Registry, Metadata: clients.Metadata, Kubernetes: clients.Kubernetes})
	informers := informer.NewSet(e.Server.Registry, e.collector.EventHandler)
	ctx, cancel := context.WithCancel(context.Background())
	var group errgroup.Group
	group.Go(func() error { informers.Run(ctx); return nil })
	group.Go(func() error { e.collector.Run(ctx, informers); return nil })
	t.Cleanup(func() {
		cancel()
		_ = group.Wait()
		if objects, owners := e.collector.Size(); objects+owners > 0 {
			t.Errorf("a stopped collector still has %d objects and %d owners", objects, owners)
		}
	})
	shardtesting.Eventually(t, "all storages to be listed", func(context.Context) error {
		if !informers.HasSynced() {
			return fmt.Errorf("not yet")
		}
		return nil
	})
}

// createNamespace creates a namespace for one test.
func (e *env) createNamespace(t *testing.T, cluster string) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "gc-"}}
	e.create(t, cluster, namespace)
	return namespace.Name
}

func (e *env) create(t *testing.T, cluster string, obj client.Object) {
	t.Helper()
	if err := e.client.Create(shardtesting.In(t.Context(), cluster), obj); err != nil {
		t.Fatalf("creating %T %s in %s: %v", obj, obj.GetName(), cluster, err)
	}
}

// createConfigMap creates a config map with owners.
func (e *env) createConfigMap(t *testing.T, cluster, namespace, name string, owners ...metav1.OwnerReference) *corev1.ConfigMap {
	t.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, OwnerReferences: owners}}
	e.create(t, cluster, object)
	return object
}

func (e *env) delete(t *testing.T, cluster string, obj client.Object, policy metav1.DeletionPropagation) {
	t.Helper()
	if err := e.client.Delete(shardtesting.In(t.Context(), cluster), obj, client.PropagationPolicy(policy)); err != nil {
		t.Fatalf("deleting %s in %s: %v", obj.GetName(), cluster, err)
	}
}

func (e *env) eventuallyDeleted(t *testing.T, cluster string, obj client.Object) {
	t.Helper()
	shardtesting.Eventually(t, obj.GetName()+" to be deleted", func(ctx context.Context) error {
		err := e.client.Get(shardtesting.In(ctx, cluster), client.ObjectKeyFromObject(obj), obj)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it exists, with finalizers %v and owners %v: %v", obj.GetFinalizers(), obj.GetOwnerReferences(), err)
	})
}

func (e *env) assertExists(t *testing.T, cluster string, obj client.Object) {
	t.Helper()
	if err := e.client.Get(shardtesting.In(t.Context(), cluster), client.ObjectKeyFromObject(obj), obj); err != nil || obj.GetDeletionTimestamp() != nil {
		t.Errorf("%s does not exist: %v, deleted at %v", obj.GetName(), err, obj.GetDeletionTimestamp())
	}
}

// waitForCollector waits until a later object is deleted, so that all earlier ones have been processed.
func (e *env) waitForCollector(t *testing.T, cluster, namespace string) {
	t.Helper()
	e.eventuallyDeleted(t, cluster, e.createConfigMap(t, cluster, namespace, "settled", newOwnerReference("v1", "ConfigMap", "absent", "absent")))
}

func ownerRef(obj client.Object) metav1.OwnerReference {
	kind := strings.TrimPrefix(fmt.Sprintf("%T", obj), "*v1.")
	version := "v1"
	if kind == "ClusterRole" {
		version = "rbac.authorization.k8s.io/v1"
	}
	return newOwnerReference(version, kind, obj.GetName(), obj.GetUID())
}

func newOwnerReference(version, kind, name string, uid types.UID) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: version, Kind: kind, Name: name, UID: uid}
}

func withBlocking(reference metav1.OwnerReference) metav1.OwnerReference {
	block := true
	reference.BlockOwnerDeletion = &block
	return reference
}

func testBackground(t *testing.T, w *env) {
	namespace := w.createNamespace(t, w.a)
	first := w.createConfigMap(t, w.a, namespace, "first")
	second := w.createConfigMap(t, w.a, namespace, "second", ownerRef(first))
	third := w.createConfigMap(t, w.a, namespace, "third", ownerRef(second))
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "gc-"}}
	w.create(t, w.a, role)
	ofRole := w.createConfigMap(t, w.a, namespace, "of-role", ownerRef(role))
	w.delete(t, w.a, first, metav1.DeletePropagationBackground)
	w.delete(t, w.a, role, metav1.DeletePropagationBackground)
	for _, obj := range []client.Object{first, second, third, ofRole} {
		w.eventuallyDeleted(t, w.a, obj)
	}
}

func testOrphan(t *testing.T, w *env) {
	namespace := w.createNamespace(t, w.a)
	first := w.createConfigMap(t, w.a, namespace, "first")
	var dependents []*corev1.ConfigMap
	for i := range 20 {
		dependents = append(dependents, w.createConfigMap(t, w.a, namespace, fmt.Sprintf("dependent-%d", i), ownerRef(first)))
	}
	w.delete(t, w.a, first, metav1.DeletePropagationOrphan)
	w.eventuallyDeleted(t, w.a, first)
	w.waitForCollector(t, w.a, namespace)
	for _, dependent := range dependents {
		w.assertExists(t, w.a, dependent)
		if len(dependent.OwnerReferences) != 0 {
			t.Errorf("%s still has its owner", dependent.Name)
		}
	}
}

func testForeground(t *testing.T, w *env) {
	namespace := w.createNamespace(t, w.a)
	first := w.createConfigMap(t, w.a, namespace, "first")
	held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: "held", Finalizers: []string{"example.com/hold"}, OwnerReferences: []metav1.OwnerReference{withBlocking(ownerRef(first))},
	}}
	w.create(t, w.a, held)
	below := w.createConfigMap(t, w.a, namespace, "below", withBlocking(ownerRef(held)))
	w.delete(t, w.a, first, metav1.DeletePropagationForeground)
	w.eventuallyDeleted(t, w.a, below)
	shardtesting.Eventually(t, "the dependent to be deleted", func(ctx context.Context) error {
		if err := w.client.Get(shardtesting.In(ctx, w.a), client.ObjectKeyFromObject(held), held); err != nil {
			return err
		}
		if held.DeletionTimestamp == nil || slices.Contains(held.Finalizers, metav1.FinalizerDeleteDependents) {
			return fmt.Errorf("deleted at %v, finalizers %v", held.DeletionTimestamp, held.Finalizers)
		}
		return nil
	})
	if err := w.client.Get(shardtesting.In(t.Context(), w.a), client.ObjectKeyFromObject(first), first); err != nil {
		t.Fatalf("the owner was deleted before its blocking dependent: %v", err)
	}
	held.Finalizers = nil
	if err := w.client.Update(shardtesting.In(t.Context(), w.a), held); err != nil {
		t.Fatal(err)
	}
	w.eventuallyDeleted(t, w.a, held)
	w.eventuallyDeleted(t, w.a, first)
}

func testCycle(t *testing.T, w *env) {
	namespace := w.createNamespace(t, w.a)
	one := w.createConfigMap(t, w.a, namespace, "one")
	two := w.createConfigMap(t, w.a, namespace, "two", withBlocking(ownerRef(one)))
	one.OwnerReferences = []metav1.OwnerReference{withBlocking(ownerRef(two))}
	if err := w.client.Update(shardtesting.In(t.Context(), w.a), one); err != nil {
		t.Fatal(err)
	}
	w.delete(t, w.a, one, metav1.DeletePropagationForeground)
	w.eventuallyDeleted(t, w.a, one)
	w.eventuallyDeleted(t, w.a, two)
}

func testOwnerInOtherCluster(t *testing.T, w *env) {
	namespace := w.createNamespace(t, w.a)
	w.create(t, w.b, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	inB := w.createConfigMap(t, w.b, namespace, "owner")
	w.createConfigMap(t, w.a, namespace, "owner") // equal in everything but the UID
	w.eventuallyDeleted(t, w.a, w.createConfigMap(t, w.a, namespace, "dependent", ownerRef(inB)))
	w.assertExists(t, w.b, inB)
}

func testOwnerWithOtherUID(t *testing.T, w *env) {
	namespace := w.createNamespace(t, w.a)
	first := w.createConfigMap(t, w.a, namespace, "first")
	earlier := ownerRef(first)
	earlier.UID = "0000"
	w.eventuallyDeleted(t, w.a, w.createConfigMap(t, w.a, namespace, "dependent", earlier))
	w.assertExists(t, w.a, first)
}

func testClusterScopedDependent(t *testing.T, w *env) {
	namespace := w.createNamespace(t, w.a)
	first := w.createConfigMap(t, w.a, namespace, "first")
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "gc-", OwnerReferences: []metav1.OwnerReference{ownerRef(first)}}}
	w.create(t, w.a, role)
	w.eventuallyReported(t, "default", role)
	w.delete(t, w.a, first, metav1.DeletePropagationBackground)
	w.waitForCollector(t, w.a, namespace)
	w.assertExists(t, w.a, role)
	w.delete(t, w.a, role, metav1.DeletePropagationBackground)
}

func testUnknownOwnerKind(t *testing.T, w *env) {
	namespace := w.createNamespace(t, w.a)
	dependent := w.createConfigMap(t, w.a, namespace, "dependent", newOwnerReference("example.com/v1", "Thing", "x", "1"))
	both := w.createConfigMap(t, w.a, namespace, "both", newOwnerReference("example.com/v1", "Thing", "x", "1"), newOwnerReference("v1", "ConfigMap", "absent", "2"))
	w.waitForCollector(t, w.a, namespace)
	w.assertExists(t, w.a, dependent)
	w.assertExists(t, w.a, both)
	w.delete(t, w.a, dependent, metav1.DeletePropagationBackground)
	w.delete(t, w.a, both, metav1.DeletePropagationBackground)
}

func testTwoOwners(t *testing.T, w *env) {
	namespace := w.createNamespace(t, w.a)
	first, second := w.createConfigMap(t, w.a, namespace, "first"), w.createConfigMap(t, w.a, namespace, "second")
	dependent := w.createConfigMap(t, w.a, namespace, "dependent", ownerRef(first), ownerRef(second))
	w.delete(t, w.a, first, metav1.DeletePropagationBackground)
	shardtesting.Eventually(t, "the absent owner to be removed", func(ctx context.Context) error {
		if err := w.client.Get(shardtesting.In(ctx, w.a), client.ObjectKeyFromObject(dependent), dependent); err != nil {
			return err
		}
		if len(dependent.OwnerReferences) != 1 || dependent.OwnerReferences[0].UID != second.UID {
			return fmt.Errorf("owners are %v", dependent.OwnerReferences)
		}
		return nil
	})
	w.delete(t, w.a, second, metav1.DeletePropagationBackground)
	w.eventuallyDeleted(t, w.a, dependent)
}

func testAbsentOwner(t *testing.T, w *env) {
	namespace := w.createNamespace(t, w.a)
	dependent := w.createConfigMap(t, w.a, namespace, "dependent")
	dependent.OwnerReferences = []metav1.OwnerReference{newOwnerReference("v1", "Secret", "never", "3")}
	if err := w.client.Update(shardtesting.In(t.Context(), w.a), dependent); err != nil {
		t.Fatal(err)
	}
	w.eventuallyDeleted(t, w.a, dependent)
}

// A workspace that is restored, or moves back, has owners whose deletion was observed.
func testOwnerAgain(t *testing.T, w *env) {
	namespace := w.createNamespace(t, w.a)
	first := w.createConfigMap(t, w.a, namespace, "first")
	second := w.createConfigMap(t, w.a, namespace, "second", ownerRef(first))
	third := w.createConfigMap(t, w.a, namespace, "third", ownerRef(second))
	for dependent, owner := range map[*corev1.ConfigMap]*corev1.ConfigMap{second: first, third: second} {
		shardtesting.Eventually(t, dependent.Name+" to be collected", func(ctx context.Context) error {
			return w.collector.CollectAgain(ctx, logicalcluster.MustParseName(w.a), dependent.UID, owner.UID)
		})
		w.assertExists(t, w.a, dependent)
	}
	w.delete(t, w.a, first, metav1.DeletePropagationBackground)
	w.eventuallyDeleted(t, w.a, third)
}

func testManyDependents(t *testing.T, w *env) {
	namespace := w.createNamespace(t, w.a)
	first := w.createConfigMap(t, w.a, namespace, "first")
	w.createDependents(t, w.a, namespace, 2000, ownerRef(first))
	w.delete(t, w.a, first, metav1.DeletePropagationBackground)
	shardtesting.Eventually(t, "all dependents to be deleted", func(ctx context.Context) error {
		list := &corev1.ConfigMapList{}
		err := w.client.List(shardtesting.In(ctx, w.a), list, client.InNamespace(namespace))
		if left := len(list.Items); left > 1 { // kube-root-ca.crt stays
			return fmt.Errorf("%d remain", left)
		}
		return err
	})
	w.eventuallyForgotten(t, w.a)
}

func testDeletedCluster(t *testing.T, w *env) {
	workspace := w.NewWorkspace(t, "root", "short-lived")
	cluster := workspace.Spec.Cluster
	namespace := w.createNamespace(t, cluster)
	w.createDependents(t, cluster, namespace, 100, newOwnerReference("example.com/v1", "Thing", "x", "1"))
	w.createDependents(t, cluster, "default", 100, ownerRef(w.createConfigMap(t, cluster, "default", "first")))
	if err := w.client.Delete(shardtesting.In(t.Context(), "root"), &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: "short-lived"}}); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "all keys to be deleted", func(context.Context) error {
		if left := w.Keys(t, cluster); len(left) > 0 {
			return fmt.Errorf("%d keys, the first is %s", len(left), left[0])
		}
		return nil
	})
	w.eventuallyForgotten(t, cluster)
}

func (e *env) createDependents(t *testing.T, cluster, namespace string, count int, owner metav1.OwnerReference) {
	t.Helper()
	var writers errgroup.Group
	writers.SetLimit(16)
	for i := range count {
		writers.Go(func() error {
			return e.client.Create(shardtesting.In(t.Context(), cluster), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: fmt.Sprintf("dependent-%d", i), OwnerReferences: []metav1.OwnerReference{owner},
			}})
		})
	}
	if err := writers.Wait(); err != nil {
		t.Fatal(err)
	}
}

// eventuallyForgotten waits until the collector keeps nothing of a logical cluster.
func (e *env) eventuallyForgotten(t *testing.T, cluster string) {
	t.Helper()
	shardtesting.Eventually(t, "the graph to be empty", func(context.Context) error {
		if objects, owners := e.collector.SizeIn(logicalcluster.MustParseName(cluster)); objects+owners > 0 {
			return fmt.Errorf("%d objects and %d owners remain", objects, owners)
		}
		return nil
	})
}
