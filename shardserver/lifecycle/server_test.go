package lifecycle_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/etcdkeys"
	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

var (
	crds   = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	things = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "things"}
	plots  = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "plots"}
)

type env struct {
	*shardtesting.Shard
	client client.Client
}

// TestLifecycle runs everything against one shard.
func TestLifecycle(t *testing.T) {
	shard := shardtesting.Start(t, func(o *options.Options) { o.Objects.ScanInterval = 500 * time.Millisecond })
	w := &env{Shard: shard, client: shard.Client(t, shard.Masters(t))}
	for name, test := range map[string]func(*testing.T, *env){
		"roles are aggregated within one logical cluster":              testAggregation,
		"custom resources are deleted with their namespace":            testNamespaceDeletion,
		"custom resources as owners and dependents":                    testCustomOwners,
		"quota counts custom resources":                                testCustomQuota,
		"definitions and objects are deleted with the logical cluster": testClusterDeletion,
		"orphaned objects are deleted with the logical cluster":        testOrphans,
		"object limit of a logical cluster":                            testObjectLimit,
		"byte limit of a logical cluster":                              testByteLimit,
		"byte limit while objects are rewritten":                       testByteLimitUnderRewrites,
		"byte limit with custom resources":                             testByteLimitOfCustomResources,
	} {
		t.Run(name, func(t *testing.T) { test(t, w) })
	}
}

func (e *env) dynamicClient(t *testing.T, cluster string) dynamic.Interface {
	t.Helper()
	return dynamic.NewForConfigOrDie(shardtesting.At(e.Masters(t), cluster))
}

// createCRD creates the definition of a resource and waits until it is served.
func (e *env) createCRD(t *testing.T, cluster string, resource schema.GroupVersionResource, kind, scope string) {
	t.Helper()
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": resource.GroupResource().String()},
		"spec": map[string]any{
			"group": resource.Group, "scope": scope,
			"names": map[string]any{"plural": resource.Resource, "singular": strings.ToLower(kind), "kind": kind, "listKind": kind + "List"},
			"versions": []any{map[string]any{
				"name": resource.Version, "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	}}
	if _, err := e.dynamicClient(t, cluster).Resource(crds).Create(t.Context(), definition, metav1.CreateOptions{}); err != nil {
		t.Fatalf("defining %s: %v", resource, err)
	}
	shardtesting.Eventually(t, "the resource to be served", func(ctx context.Context) error {
		_, err := e.dynamicClient(t, cluster).Resource(resource).List(ctx, metav1.ListOptions{})
		return err
	})
}

func (e *env) createThing(t *testing.T, cluster, namespace, name string, change func(*unstructured.Unstructured)) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": map[string]any{"name": name}}}
	if change != nil {
		change(object)
	}
	created, err := e.dynamicClient(t, cluster).Resource(things).Namespace(namespace).Create(t.Context(), object, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

func (e *env) create(t *testing.T, cluster string, obj client.Object) {
	t.Helper()
	if err := e.client.Create(shardtesting.In(t.Context(), cluster), obj); err != nil {
		t.Fatalf("creating %T %s: %v", obj, obj.GetName(), err)
	}
}

func (e *env) eventuallyDeleted(t *testing.T, cluster string, obj client.Object) {
	t.Helper()
	shardtesting.Eventually(t, obj.GetName()+" to be deleted", func(ctx context.Context) error {
		err := e.client.Get(shardtesting.In(ctx, cluster), client.ObjectKeyFromObject(obj), obj)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it exists: %v", err)
	})
}

func (e *env) deleteWorkspace(t *testing.T, name, cluster string) {
	t.Helper()
	if err := e.client.Delete(shardtesting.In(t.Context(), "root"), &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "all keys of the logical cluster to be deleted", func(context.Context) error {
		if left := e.Keys(t, "/"+cluster+"/"); len(left) > 0 {
			return fmt.Errorf("%d keys: %v", len(left), left[:min(len(left), 5)])
		}
		return nil
	})
}

func testAggregation(t *testing.T, w *env) {
	a, b := w.NewWorkspace(t, "root", "aggregating").Spec.Cluster, w.NewWorkspace(t, "root", "other").Spec.Cluster
	aggregated := &rbacv1.ClusterRole{
		ObjectMeta:      metav1.ObjectMeta{Name: "sum"},
		AggregationRule: &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"sum": "yes"}}}},
	}
	part := func(name, resource string) *rbacv1.ClusterRole {
		return &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"sum": "yes"}},
			Rules:      []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{resource}}},
		}
	}
	w.create(t, b, part("foreign", "secrets"))
	w.create(t, a, part("z", "configmaps"))
	w.create(t, a, aggregated)
	first := part("y", "events")
	w.create(t, a, first)
	eventuallyAllows := func(resources ...string) {
		t.Helper()
		shardtesting.Eventually(t, fmt.Sprintf("the role to allow %v", resources), func(ctx context.Context) error {
			if err := w.client.Get(shardtesting.In(ctx, a), client.ObjectKeyFromObject(aggregated), aggregated); err != nil {
				return err
			}
			var got []string
			for _, rule := range aggregated.Rules {
				got = append(got, rule.Resources...)
			}
			if !slices.Equal(got, resources) {
				return fmt.Errorf("it allows %v", got)
			}
			return nil
		})
	}
	eventuallyAllows("events", "configmaps")
	if err := w.client.Delete(shardtesting.In(t.Context(), a), first); err != nil {
		t.Fatal(err)
	}
	eventuallyAllows("configmaps")
	managers := slices.ContainsFunc(aggregated.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == "clusterrole-aggregation-controller" && entry.Operation == metav1.ManagedFieldsOperationApply
	})
	if !managers {
		t.Errorf("managed fields are %v", aggregated.ManagedFields)
	}
	t.Run("bootstrap roles of system:admin", func(t *testing.T) {
		view := &rbacv1.ClusterRole{}
		shardtesting.Eventually(t, "rules of view", func(ctx context.Context) error {
			if err := w.client.Get(shardtesting.In(ctx, "system:admin"), client.ObjectKey{Name: "view"}, view); err != nil {
				return err
			}
			if len(view.Rules) == 0 {
				return fmt.Errorf("no rules, aggregation %+v", view.AggregationRule)
			}
			return nil
		})
	})
}

func testNamespaceDeletion(t *testing.T, w *env) {
	cluster := w.NewWorkspace(t, "root", "emptying").Spec.Cluster
	w.createCRD(t, cluster, things, "Thing", "Namespaced")
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "going"}}
	w.create(t, cluster, namespace)
	for i := range 20 {
		w.createThing(t, cluster, "going", fmt.Sprintf("free-%d", i), nil)
	}
	unaffected := w.createThing(t, cluster, "default", "stays", nil)
	w.createThing(t, cluster, "going", "held", func(u *unstructured.Unstructured) { u.SetFinalizers([]string{"example.com/hold"}) })
	if err := w.client.Delete(shardtesting.In(t.Context(), cluster), namespace); err != nil {
		t.Fatal(err)
	}
	namespaceThings := w.dynamicClient(t, cluster).Resource(things).Namespace("going")
	shardtesting.Eventually(t, "only the object with a finalizer to remain, and the condition", func(ctx context.Context) error {
		list, err := namespaceThings.List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 {
			return fmt.Errorf("%d are left: %v", len(list.Items), err)
		}
		if err := w.client.Get(shardtesting.In(ctx, cluster), client.ObjectKeyFromObject(namespace), namespace); err != nil {
			return err
		}
		for _, condition := range namespace.Status.Conditions {
			if condition.Type == corev1.NamespaceFinalizersRemaining && condition.Status == corev1.ConditionTrue && strings.Contains(condition.Message, "example.com/hold in 1 resource instances") {
				return nil
			}
		}
		return fmt.Errorf("conditions %+v", namespace.Status.Conditions)
	})
	if _, err := namespaceThings.Patch(t.Context(), "held", "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventuallyDeleted(t, cluster, namespace)
	if _, err := w.dynamicClient(t, cluster).Resource(things).Namespace("default").Get(t.Context(), unaffected.GetName(), metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	w.deleteWorkspace(t, "emptying", cluster)
}

func testCustomOwners(t *testing.T, w *env) {
	cluster, other := w.NewWorkspace(t, "root", "owning").Spec.Cluster, w.NewWorkspace(t, "root", "bystander").Spec.Cluster
	reference := func(u *unstructured.Unstructured) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: u.GetAPIVersion(), Kind: u.GetKind(), Name: u.GetName(), UID: u.GetUID()}
	}
	// The kind is not served yet.
	early := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "early", OwnerReferences: []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Thing", Name: "x", UID: "1"}}}}
	w.create(t, cluster, early)
	w.createCRD(t, cluster, things, "Thing", "Namespaced")
	w.createCRD(t, other, things, "Thing", "Namespaced")
	w.eventuallyDeleted(t, cluster, early)

	owner := w.createThing(t, cluster, "default", "owner", nil)
	foreignOwner := w.createThing(t, other, "default", "owner", nil)
	owned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "owned", OwnerReferences: []metav1.OwnerReference{reference(owner)}}}
	w.create(t, cluster, owned)
	grandchild := w.createThing(t, cluster, "default", "below", func(u *unstructured.Unstructured) {
		u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owned", UID: owned.UID}})
	})
	foreign := w.createThing(t, cluster, "default", "strange", func(u *unstructured.Unstructured) {
		u.SetOwnerReferences([]metav1.OwnerReference{reference(foreignOwner)})
	})
	inCluster := w.dynamicClient(t, cluster).Resource(things).Namespace("default")
	eventuallyDeleted := func(name string) {
		t.Helper()
		shardtesting.Eventually(t, name+" to be deleted", func(ctx context.Context) error {
			if _, err := inCluster.Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("it exists: %v", err)
			}
			return nil
		})
	}
	eventuallyDeleted(foreign.GetName())
	foreground := metav1.DeletePropagationForeground
	if err := inCluster.Delete(t.Context(), "owner", metav1.DeleteOptions{PropagationPolicy: &foreground}); err != nil {
		t.Fatal(err)
	}
	eventuallyDeleted("owner")
	eventuallyDeleted(grandchild.GetName())
	w.eventuallyDeleted(t, cluster, owned)
	if _, err := w.dynamicClient(t, other).Resource(things).Namespace("default").Get(t.Context(), "owner", metav1.GetOptions{}); err != nil {
		t.Errorf("the owner of the same name in another workspace: %v", err)
	}
	t.Run("orphaning", func(t *testing.T) {
		owner := w.createThing(t, cluster, "default", "letting-go", nil)
		w.createThing(t, cluster, "default", "kept", func(u *unstructured.Unstructured) { u.SetOwnerReferences([]metav1.OwnerReference{reference(owner)}) })
		orphan := metav1.DeletePropagationOrphan
		if err := inCluster.Delete(t.Context(), "letting-go", metav1.DeleteOptions{PropagationPolicy: &orphan}); err != nil {
			t.Fatal(err)
		}
		eventuallyDeleted("letting-go")
		kept, err := inCluster.Get(t.Context(), "kept", metav1.GetOptions{})
		if err != nil || len(kept.GetOwnerReferences()) > 0 || kept.GetDeletionTimestamp() != nil {
			t.Errorf("%v, %v", kept, err)
		}
	})
}

func testCustomQuota(t *testing.T, w *env) {
	cluster := w.NewWorkspace(t, "root", "counting").Spec.Cluster
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "two"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/things.example.com": resource.MustParse("2")}},
	}
	w.create(t, cluster, quota) // before the resource exists
	w.createCRD(t, cluster, things, "Thing", "Namespaced")
	shardtesting.Eventually(t, "the count of the resource", func(ctx context.Context) error {
		if err := w.client.Get(shardtesting.In(ctx, cluster), client.ObjectKeyFromObject(quota), quota); err != nil {
			return err
		}
		if _, counted := quota.Status.Used["count/things.example.com"]; !counted {
			return fmt.Errorf("status is %+v", quota.Status)
		}
		return nil
	})
	w.createThing(t, cluster, "default", "one", nil)
	w.createThing(t, cluster, "default", "two", nil)
	third := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": map[string]any{"name": "three"}}}
	client := w.dynamicClient(t, cluster).Resource(things).Namespace("default")
	if _, err := client.Create(t.Context(), third, metav1.CreateOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "exceeded quota: two") {
		t.Errorf("got %v", err)
	}
	if err := client.Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the deletion to be credited", func(ctx context.Context) error {
		_, err := client.Create(ctx, third, metav1.CreateOptions{})
		return err
	})
}

func testClusterDeletion(t *testing.T, w *env) {
	cluster, other := w.NewWorkspace(t, "root", "going").Spec.Cluster, w.NewWorkspace(t, "root", "staying").Spec.Cluster
	for _, current := range []string{cluster, other} {
		w.createCRD(t, current, things, "Thing", "Namespaced")
		w.createCRD(t, current, plots, "Plot", "Cluster")
		for i := range 30 {
			w.createThing(t, current, "default", fmt.Sprintf("thing-%d", i), nil)
			plot := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Plot", "metadata": map[string]any{"name": fmt.Sprintf("plot-%d", i)}}}
			if _, err := w.dynamicClient(t, current).Resource(plots).Create(t.Context(), plot, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.deleteWorkspace(t, "going", cluster)
	for _, resource := range []schema.GroupVersionResource{things, plots} {
		list, err := w.dynamicClient(t, other).Resource(resource).List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != 30 {
			t.Errorf("%s of the other workspace: %d remain: %v", resource.Resource, len(list.Items), err)
		}
	}
}

// testOrphans removes a definition without its finalizer, so that an orphaned object stays in etcd.
func testOrphans(t *testing.T, w *env) {
	orphaned := schema.GroupVersionResource{Group: "torn.example.com", Version: "v1", Resource: "things"}
	var clusters []string
	for _, name := range []string{"torn", "whole"} {
		cluster := w.NewWorkspace(t, "root", name).Spec.Cluster
		clusters = append(clusters, cluster)
		w.createCRD(t, cluster, orphaned, "Thing", "Namespaced")
		object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "torn.example.com/v1", "kind": "Thing", "metadata": map[string]any{"name": "x", "finalizers": []any{"example.com/hold"}}}}
		if _, err := w.dynamicClient(t, cluster).Resource(orphaned).Namespace("default").Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.orphan(t, cluster, orphaned)
		if keys := w.Keys(t, "/torn.example.com/things/customresources/"+cluster+"/"); len(keys) != 1 {
			t.Fatalf("orphaned keys are %v", keys)
		}
	}
	t.Run("they stay if the logical cluster is not the one that was read", func(t *testing.T) { testFencedPurge(t, w, clusters[0]) })
	w.deleteWorkspace(t, "torn", clusters[0])
	if keys := w.Keys(t, "/torn.example.com/things/customresources/"+clusters[1]+"/"); len(keys) != 1 {
		t.Errorf("the other workspace has %v", keys)
	}
	w.deleteWorkspace(t, "whole", clusters[1])
}

// testFencedPurge purges as a replica that has read a logical cluster, and then lost the lease of controllers.
func testFencedPurge(t *testing.T, w *env, cluster string) {
	keys := etcdkeys.New(etcdkeys.Config{Transport: w.Server.StorageTransport(), Prefix: "/registry", Registry: w.Server.Registry})
	defer func() {
		if err := keys.Close(); err != nil {
			t.Error(err)
		}
	}()
	seen := &corev1alpha1.LogicalCluster{}
	if err := w.client.Get(shardtesting.In(t.Context(), cluster), client.ObjectKey{Name: corev1alpha1.LogicalClusterName}, seen); err != nil {
		t.Fatal(err)
	}
	now := metav1.Now()
	for name, change := range map[string]func(*corev1alpha1.LogicalCluster){
		"it was created again since": func(c *corev1alpha1.LogicalCluster) { c.DeletionTimestamp, c.ResourceVersion = &now, "1" },
		"it does not exist any more": func(c *corev1alpha1.LogicalCluster) { c.DeletionTimestamp, c.Name = &now, "another" },
		"it is not being deleted":    func(*corev1alpha1.LogicalCluster) {},
		"it has no resource version": func(c *corev1alpha1.LogicalCluster) { c.DeletionTimestamp, c.ResourceVersion = &now, "" },
	} {
		stale := seen.DeepCopy()
		change(stale)
		removed, err := keys.PurgeOrphans(logicalcluster.With(t.Context(), logicalcluster.MustParseName(cluster)), stale)
		if err == nil || removed != 0 {
			t.Errorf("%s: removed %d, %v", name, removed, err)
		}
	}
	if left := w.Keys(t, "/torn.example.com/things/customresources/"+cluster+"/"); len(left) != 1 {
		t.Errorf("keys are %v", left)
	}
}

// orphan deletes the definition of a resource without its objects.
func (e *env) orphan(t *testing.T, cluster string, resource schema.GroupVersionResource) {
	t.Helper()
	definitions, definition := e.dynamicClient(t, cluster).Resource(crds), resource.GroupResource().String()
	if err := definitions.Delete(t.Context(), definition, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the definition to be deleted", func(ctx context.Context) error {
		_, err := definitions.Patch(ctx, definition, "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it exists: %v", err)
	})
}

func testObjectLimit(t *testing.T, w *env) {
	cluster := w.NewWorkspace(t, "root", "limited").Spec.Cluster
	initial := len(w.Keys(t, "/"+cluster+"/"))
	setLimit := func(limit string) {
		t.Helper()
		w.annotate(t, cluster, corev1alpha1.MaxTotalObjectsAnnotationKey, limit)
	}
	createConfigMap := func(ctx context.Context, name string) error {
		return w.client.Create(shardtesting.In(ctx, cluster), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
	}
	setLimit(fmt.Sprint(initial + 5))
	shardtesting.Eventually(t, "the limit to be enforced", func(ctx context.Context) error {
		for i := range 10 {
			err := createConfigMap(ctx, fmt.Sprintf("c-%d-%d", time.Now().UnixNano(), i))
			if apierrors.IsForbidden(err) && strings.Contains(err.Error(), cluster) && strings.Contains(err.Error(), fmt.Sprintf("/%d objects)", initial+5)) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("an unexpected error: %w", err)
			}
		}
		return fmt.Errorf("the limit is not enforced")
	})
	if now := len(w.Keys(t, "/"+cluster+"/")); now > initial+5 {
		t.Errorf("%d objects, want at most %d", now, initial+5)
	}
	event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "e"}, InvolvedObject: corev1.ObjectReference{Namespace: "default"}}
	if err := w.client.Create(shardtesting.In(t.Context(), cluster), event); err != nil {
		t.Errorf("an event: %v", err)
	}
	config := w.Kubernetes(t, w.Masters(t)).Discovery().RESTClient()
	shardtesting.Eventually(t, "the metric", func(ctx context.Context) error {
		body, err := config.Get().AbsPath("/metrics").DoRaw(ctx)
		if err != nil || !strings.Contains(string(body), fmt.Sprintf(`kcp_logicalcluster_object_limit{cluster=%q,shard="root"} %d`, cluster, initial+5)) {
			return fmt.Errorf("no metric: %v", err)
		}
		return nil
	})
	setLimit("0")
	shardtesting.Eventually(t, "the removal of the limit", func(ctx context.Context) error { return createConfigMap(ctx, "free") })
	setLimit(fmt.Sprint(initial))
	shardtesting.Eventually(t, "the restored limit", func(ctx context.Context) error {
		if err := createConfigMap(ctx, fmt.Sprintf("d-%d", time.Now().UnixNano())); !apierrors.IsForbidden(err) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
	if err := w.client.DeleteAllOf(shardtesting.In(t.Context(), cluster), &corev1.ConfigMap{}, client.InNamespace("default")); err != nil {
		t.Fatal(err)
	}
	setLimit(fmt.Sprint(initial + 5))
	shardtesting.Eventually(t, "the deletion to be credited", func(ctx context.Context) error { return createConfigMap(ctx, "roomy") })
}
