package apiexport_test

import (
	"context"
	"fmt"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/apis/core"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

func testAllKinds(t *testing.T, shard *shardtesting.Shard) {
	objects := func(name string) map[apisv1alpha2.GroupResource]client.Object {
		inNamespace, named := metav1.ObjectMeta{Namespace: "default", Name: name}, metav1.ObjectMeta{Name: name}
		return map[apisv1alpha2.GroupResource]client.Object{
			{Resource: "configmaps"}:                                       &corev1.ConfigMap{ObjectMeta: inNamespace},
			{Resource: "secrets"}:                                          &corev1.Secret{ObjectMeta: inNamespace},
			{Resource: "serviceaccounts"}:                                  &corev1.ServiceAccount{ObjectMeta: inNamespace},
			{Resource: "namespaces"}:                                       &corev1.Namespace{ObjectMeta: named},
			{Group: "rbac.authorization.k8s.io", Resource: "roles"}:        &rbacv1.Role{ObjectMeta: inNamespace},
			{Group: "rbac.authorization.k8s.io", Resource: "clusterroles"}: &rbacv1.ClusterRole{ObjectMeta: named},
		}
	}
	var claims []apisv1alpha2.PermissionClaim
	var accepted, rejected []apisv1alpha2.AcceptablePermissionClaim
	for resource := range objects("") {
		claim := newClaim(resource.Group, resource.Resource)
		claims, accepted = append(claims, claim), append(accepted, newAcceptedClaim(claim, nil))
		rejectedClaim := newAcceptedClaim(claim, nil)
		rejectedClaim.State = apisv1alpha2.ClaimRejected
		rejected = append(rejected, rejectedClaim)
	}
	p := newClaimsEnv(t, shard, claims...)
	before, after, later := objects("before"), objects("after"), objects("later")
	for _, obj := range before {
		p.create(obj)
	}
	binding := p.bind(rejected...)
	if len(binding.Status.ExportPermissionClaims) != len(claims) {
		t.Errorf("the status of the binding has the claims %v", binding.Status.ExportPermissionClaims)
	}
	p.waitApplied()
	for _, obj := range before {
		p.expectLabels(obj, map[string]string{})
	}
	p.claims(accepted...)
	p.waitApplied(claims...)
	for resource, obj := range after {
		p.create(obj)
		key, value := p.claimLabel(newClaim(resource.Group, resource.Resource))
		if got := claimLabels(obj); !maps.Equal(got, map[string]string{key: value}) {
			t.Errorf("%v is created with %v", resource, got)
		}
		p.expectLabels(before[resource], map[string]string{key: value})
	}
	p.claims(rejected...)
	p.waitApplied()
	for resource, obj := range later {
		p.create(obj)
		for _, obj := range []client.Object{before[resource], after[resource], obj} {
			p.expectLabels(obj, map[string]string{})
		}
	}
	p.claims(accepted...)
	p.waitApplied(claims...)
	if err := p.client.Delete(p.consumer, binding); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the binding is deleted", func(context.Context) error {
		if err := p.client.Get(p.consumer, client.ObjectKeyFromObject(binding), binding); client.IgnoreNotFound(err) != nil || err == nil {
			return fmt.Errorf("it still exists: %v, %+v", err, binding.Status)
		}
		return nil
	})
	for _, obj := range before {
		p.expectLabels(obj, map[string]string{})
	}
}

func testIdentityClaim(t *testing.T, shard *shardtesting.Shard) {
	gadgets := schema.GroupResource{Group: "other.io", Resource: "gadgets"}
	owner := shard.NewWorkspace(t, "root", "owner-"+rand.String(6)).Spec.Cluster
	owned := shard.NewExport(t, owner, "owned", gadgets, "Gadget")
	claim := newClaim(gadgets.Group, gadgets.Resource)
	claim.IdentityHash = owned.Status.IdentityHash
	p := newClaimsEnv(t, shard, claim)
	p.bind(newAcceptedClaim(claim, nil))
	p.waitApplied(claim) // the claimed resource is not bound yet, so there are no objects to label

	shard.Bind(t, p.consumerName, owner, "owned")
	gadget := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "other.io/v1", "kind": "Gadget", "metadata": map[string]any{"name": "one", "namespace": "default"},
	}}
	objects := newDynamicClient(t, shard, p.consumerName).Resource(gadgets.WithVersion("v1")).Namespace("default")
	var created *unstructured.Unstructured
	shardtesting.Eventually(t, "gadgets are served", func(ctx context.Context) (err error) {
		created, err = objects.Create(ctx, gadget, metav1.CreateOptions{})
		return err
	})
	key, value := p.claimLabel(claim)
	want := map[string]string{key: value}
	if got := claimLabels(created); !maps.Equal(got, want) {
		t.Errorf("created with %v, want %v", got, want)
	}
	created.SetLabels(nil)
	created.Object["status"] = map[string]any{"phase": "Done"}
	updated, err := objects.UpdateStatus(t.Context(), created, metav1.UpdateOptions{})
	if err != nil || !maps.Equal(claimLabels(updated), want) {
		t.Errorf("after an update of the status: %v, %v", claimLabels(updated), err)
	}
	p.claims()
	p.waitApplied()
	if got, err := objects.Get(t.Context(), "one", metav1.GetOptions{}); err != nil || len(claimLabels(got)) != 0 {
		t.Errorf("labels are kept: %v, %v", got.GetLabels(), err)
	}
	p.claims(newAcceptedClaim(claim, nil))
	p.waitApplied(claim)
	if got, err := objects.Get(t.Context(), "one", metav1.GetOptions{}); err != nil || !maps.Equal(claimLabels(got), want) {
		t.Errorf("labels are set: %v, %v", got.GetLabels(), err)
	}
}

func testSelector(t *testing.T, shard *shardtesting.Shard) {
	claim := newClaim("", "configmaps")
	p := newClaimsEnv(t, shard, claim)
	key, value := p.claimLabel(claim)
	shown, hidden := map[string]string{key: value}, map[string]string{}
	red, blue := newConfigMap("red", map[string]string{"colour": "red"}), newConfigMap("blue", map[string]string{"colour": "blue"})
	p.create(red)
	p.create(blue)
	p.bind(newAcceptedClaim(claim, map[string]string{"colour": "red"}))
	p.waitApplied(claim)
	p.expectLabels(red, shown)
	p.expectLabels(blue, hidden)

	p.update(blue, func(obj client.Object) { obj.SetLabels(map[string]string{"colour": "red"}) })
	p.expectLabels(blue, shown)
	p.update(blue, func(obj client.Object) { obj.SetLabels(map[string]string{"colour": "blue"}) })
	p.expectLabels(blue, hidden)

	p.claims() // selectors are immutable
	p.claims(newAcceptedClaim(claim, map[string]string{"colour": "blue"}))
	shardtesting.Eventually(t, "the other one is labelled", func(context.Context) error {
		for obj, want := range map[client.Object]map[string]string{red: hidden, blue: shown} {
			if err := p.client.Get(p.consumer, client.ObjectKeyFromObject(obj), obj); err != nil {
				return err
			}
			if got := claimLabels(obj); !maps.Equal(got, want) {
				return fmt.Errorf("%s has the labels %v", obj.GetName(), got)
			}
		}
		return nil
	})
	p.waitApplied(claim)
}

func testUsersCannotSetLabels(t *testing.T, shard *shardtesting.Shard) {
	claim := newClaim("", "configmaps")
	p := newClaimsEnv(t, shard, claim)
	p.bind(newAcceptedClaim(claim, map[string]string{"shown": "yes"}))
	p.waitApplied(claim)
	key, value := p.claimLabel(claim)
	wantLabels := map[string]string{key: value}
	otherKey := apisv1alpha2.ClaimedLabelKeyPrefix + "foreign"

	forged := newConfigMap("forged", map[string]string{key: value, otherKey: "x", "own": "stays"})
	p.create(forged)
	p.expectLabels(forged, map[string]string{})
	if forged.Labels["own"] != "stays" {
		t.Errorf("the labels are %v", forged.Labels)
	}
	p.update(forged, func(obj client.Object) { obj.SetLabels(map[string]string{key: value}) })
	p.expectLabels(forged, map[string]string{})

	shown := newConfigMap("shown", map[string]string{"shown": "yes", key: "another"})
	p.create(shown)
	p.expectLabels(shown, wantLabels)
	for description, patch := range map[string]client.Patch{
		"removed": client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+key+`":null}}}`)),
		"changed": client.RawPatch(types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"`+key+`":"x","`+otherKey+`":"x"}}}`)),
	} {
		if err := p.client.Patch(p.consumer, shown, patch); err != nil {
			t.Errorf("%s: %v", description, err)
		}
		p.expectLabels(shown, wantLabels)
	}
	applied := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": "shown", "namespace": "default", "labels": map[string]any{"shown": "yes", key: "x", otherKey: "x"}},
	}}
	if err := p.client.Apply(p.consumer, client.ApplyConfigurationFromUnstructured(applied), client.FieldOwner("user"), client.ForceOwnership); err != nil {
		t.Error(err)
	}
	p.expectLabels(shown, wantLabels)
	p.update(shown, func(obj client.Object) { obj.SetLabels(nil) })
	p.expectLabels(shown, map[string]string{})

	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "forged"}}
	p.create(namespace)
	namespace.Labels = map[string]string{otherKey: "x"}
	if err := p.client.Status().Update(p.consumer, namespace); err != nil {
		t.Error(err)
	}
	p.expectLabels(namespace, map[string]string{})
}

func testBindingLabels(t *testing.T, shard *shardtesting.Shard) {
	claim := newClaim("apis.kcp.io", "apibindings")
	p := newClaimsEnv(t, shard, claim)
	key, value := p.claimLabel(claim)
	binding := p.bind()
	p.expectLabels(binding, map[string]string{key: apiindex.ReflexiveClaimValue})

	owner := shard.NewWorkspace(t, "root", "owner-"+rand.String(6)).Spec.Cluster
	owned := shard.NewExport(t, owner, "owned", schema.GroupResource{Group: "other.io", Resource: "gadgets"}, "Gadget")
	other := shard.Bind(t, p.consumerName, owner, "owned")
	otherKey := apiindex.ClaimLabelKey(apiindex.ExportKeyOf(owned))
	p.expectLabels(other, map[string]string{otherKey: apiindex.ReflexiveClaimValue})

	p.claims(newAcceptedClaim(claim, nil))
	p.waitApplied(claim)
	p.expectLabels(binding, map[string]string{key: value})
	p.expectLabels(other, map[string]string{otherKey: apiindex.ReflexiveClaimValue, key: value})
	p.claims()
	p.waitApplied()
	p.expectLabels(binding, map[string]string{key: apiindex.ReflexiveClaimValue})
	p.expectLabels(other, map[string]string{otherKey: apiindex.ReflexiveClaimValue})
}

// testObjectsWithoutAdmission: objects written by requests that admission saw before a claim was added or removed, or
// written to etcd while the shard was stopped, get correct labels.
func testObjectsWithoutAdmission(t *testing.T, shard *shardtesting.Shard) {
	claim := newClaim("", "configmaps")
	p := newClaimsEnv(t, shard, claim)
	p.bind(newAcceptedClaim(claim, nil))
	p.waitApplied(claim)
	key, value := p.claimLabel(claim)
	unbound := shard.NewWorkspace(t, "root", "alone-"+rand.String(6)).Spec.Cluster
	write := func(cluster, name string, labels map[string]string) {
		t.Helper()
		resource, err := shard.Server.Registry.Get(schema.GroupResource{Resource: "configmaps"})
		if err != nil {
			t.Fatal(err)
		}
		ctx := request.WithNamespace(request.WithUser(shardtesting.In(t.Context(), cluster), &user.DefaultInfo{Name: "test"}), "default")
		ctx = request.WithRequestInfo(ctx, &request.RequestInfo{APIVersion: "v1", Resource: "configmaps"})
		obj := &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: labels}}
		if _, err := resource.Store.(rest.Creater).Create(ctx, obj, rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	write(p.consumerName, "missing", nil)
	write(unbound, "stale", map[string]string{key: value, "own": "stays"})
	shardtesting.Eventually(t, "labels are repaired", func(ctx context.Context) error {
		missing, stale := newConfigMap("missing", nil), newConfigMap("stale", nil)
		if err := p.client.Get(p.consumer, client.ObjectKeyFromObject(missing), missing); err != nil {
			return err
		}
		if err := p.client.Get(shardtesting.In(ctx, unbound), client.ObjectKeyFromObject(stale), stale); err != nil {
			return err
		}
		if !maps.Equal(missing.Labels, map[string]string{key: value}) || !maps.Equal(stale.Labels, map[string]string{"own": "stays"}) {
			return fmt.Errorf("they are %v and %v", missing.Labels, stale.Labels)
		}
		return nil
	})
}

// testClaimsDuringDeletion: a provider may need claimed objects to clean up before an object of its API is deleted.
func testClaimsDuringDeletion(t *testing.T, shard *shardtesting.Shard) {
	claim := newClaim("", "configmaps")
	p := newClaimsEnv(t, shard, claim)
	key, value := p.claimLabel(claim)
	labelled, unlabelled := map[string]string{key: value}, map[string]string{}
	before := newConfigMap("before", nil)
	p.create(before)
	binding := p.bind(newAcceptedClaim(claim, nil))
	p.waitApplied(claim)
	widget := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.io/v1", "kind": "Widget",
		"metadata": map[string]any{"name": "held", "namespace": "default", "finalizers": []any{"example.io/held"}},
	}}
	objects := newDynamicClient(t, shard, p.consumerName).Resource(widgets.WithVersion("v1")).Namespace("default")
	shardtesting.Eventually(t, "widgets are served", func(ctx context.Context) error {
		_, err := objects.Create(ctx, widget, metav1.CreateOptions{})
		return err
	})
	if err := p.client.Delete(p.consumer, binding); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the binding waits for the widget", func(context.Context) error {
		if err := p.client.Get(p.consumer, client.ObjectKeyFromObject(binding), binding); err != nil {
			return err
		}
		if !conditionsv1alpha1.IsFalse(binding, apisv1alpha2.BindingResourceDeleteSuccess) {
			return fmt.Errorf("conditions are %+v", binding.Status.Conditions)
		}
		return nil
	})
	after := newConfigMap("after", nil)
	p.create(after)
	p.expectLabels(before, labelled)
	p.expectLabels(after, labelled)
	if _, err := objects.Patch(t.Context(), "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the binding is deleted", func(context.Context) error {
		err := p.client.Get(p.consumer, client.ObjectKeyFromObject(binding), binding)
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("it still exists: %v, %+v", err, binding.Status.Conditions)
		}
		return nil
	})
	p.expectLabels(before, unlabelled)
	p.expectLabels(after, unlabelled)
}

// testDeletionOfClaimingWorkspace: objects with finalizers in a workspace that is being deleted stay visible to the provider, and
// are deleted with the workspace.
func testDeletionOfClaimingWorkspace(t *testing.T, shard *shardtesting.Shard) {
	claim := newClaim("", "configmaps")
	p := newClaimsEnv(t, shard, claim)
	workspace := shard.NewWorkspace(t, "root", "leaving-"+rand.String(6))
	p.consumerName, p.consumer = workspace.Spec.Cluster, shardtesting.In(t.Context(), workspace.Spec.Cluster)
	held := newConfigMap("held", nil)
	held.Finalizers = []string{"example.io/held"}
	p.create(held)
	p.bind(newAcceptedClaim(claim, nil))
	p.waitApplied(claim)
	root := shardtesting.In(t.Context(), "root")
	if err := p.client.Delete(root, workspace); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the object is being deleted", func(context.Context) error {
		if err := p.client.Get(p.consumer, client.ObjectKeyFromObject(held), held); err != nil || held.DeletionTimestamp == nil {
			return fmt.Errorf("it is not: %v", err)
		}
		return nil
	})
	key, value := p.claimLabel(claim)
	p.expectLabels(held, map[string]string{key: value})
	p.update(held, func(obj client.Object) { obj.SetFinalizers(nil) })
	shardtesting.Eventually(t, "the workspace is deleted", func(context.Context) error {
		if err := p.client.Get(root, client.ObjectKeyFromObject(workspace), workspace); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it still exists: %v, %+v", err, workspace.Status.Conditions)
		}
		return nil
	})
}

func testEvents(t *testing.T, shard *shardtesting.Shard) {
	claim := newClaim("", "events")
	p := newClaimsEnv(t, shard, claim)
	before := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "before"}, InvolvedObject: corev1.ObjectReference{Namespace: "default"}}
	p.create(before)
	p.bind(newAcceptedClaim(claim, nil))
	p.waitApplied(claim)
	key, value := p.claimLabel(claim)
	p.expectLabels(before, map[string]string{key: value})
	after := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "after"}, EventTime: metav1.NowMicro(), Action: "test", Reason: "test", Type: "Normal",
		ReportingController: "example.io/test", ReportingInstance: "test", Regarding: corev1.ObjectReference{Namespace: "default"},
	}
	p.create(after)
	p.expectLabels(after, map[string]string{key: value})
}

func testManyObjects(t *testing.T, shard *shardtesting.Shard) {
	const count = 1000
	claim := newClaim("", "configmaps")
	p := newClaimsEnv(t, shard, claim)
	for i := range count {
		p.create(newConfigMap(fmt.Sprintf("c%d", i), nil))
	}
	p.bind(newAcceptedClaim(claim, nil))
	p.waitApplied(claim)
	key, value := p.claimLabel(claim)
	labelled := func() int {
		list := &corev1.ConfigMapList{}
		if err := p.client.List(p.consumer, list, client.InNamespace("default"), client.MatchingLabels{key: value}); err != nil {
			t.Fatal(err)
		}
		return len(list.Items)
	}
	if got := labelled(); got < count {
		t.Errorf("%d of %d objects are labelled", got, count)
	}
	p.claims()
	p.waitApplied()
	if got := labelled(); got != 0 {
		t.Errorf("%d objects are still labelled", got)
	}
}

func testUnclaimedResource(t *testing.T, shard *shardtesting.Shard) {
	maps, secrets := newClaim("", "configmaps"), newClaim("", "secrets")
	p := newClaimsEnv(t, shard, maps)
	p.bind(newAcceptedClaim(maps, nil), newAcceptedClaim(secrets, nil))
	p.waitApplied(maps)
	binding := &apisv1alpha2.APIBinding{}
	if err := p.client.Get(p.consumer, client.ObjectKey{Name: "claiming"}, binding); err != nil {
		t.Fatal(err)
	}
	if got := conditionsv1alpha1.GetReason(binding, apisv1alpha2.PermissionClaimsValid); got != apisv1alpha2.InvalidPermissionClaimsReason {
		t.Errorf("the reason is %q", got)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one"}}
	p.create(secret)
	p.expectLabels(secret, map[string]string{})

	t.Log("the export claims it later")
	shardtesting.Eventually(t, "changing the export", func(ctx context.Context) error {
		if err := p.client.Get(p.provider, client.ObjectKeyFromObject(p.export), p.export); err != nil {
			return err
		}
		p.export.Spec.PermissionClaims = []apisv1alpha2.PermissionClaim{secrets}
		return p.client.Update(p.provider, p.export)
	})
	p.waitApplied(secrets)
	key, value := p.claimLabel(secrets)
	p.expectLabels(secret, map[string]string{key: value})
}
