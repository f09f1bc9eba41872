package runtimecluster_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/atoll-dev/atoll/infrastructure/runtimecluster"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// providers are several providers that share a runtime cluster.
type providers struct {
	client client.Client
}

func (p *providers) of(workspace string) *runtimecluster.Cluster {
	c := &runtimecluster.Cluster{Client: p.client, Group: group, Backend: "test"}
	c.SetProvider(runtimecluster.Provider(logicalcluster.MustParseName(workspace), "export.example.org"))
	return c
}

func (p *providers) apply(t *testing.T, workspace, tenant, instance string) error {
	t.Helper()
	config := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": instance}}}
	_, err := p.of(workspace).Apply(t.Context(), setOf(tenant, instance), []*unstructured.Unstructured{config})
	return err
}

func setOf(tenant, instance string) runtimecluster.Set {
	return runtimecluster.Set{Tenant: logicalcluster.MustParseName(tenant), Template: "config", Version: "1", Instance: instance}
}

func (p *providers) exists(t *testing.T, tenant, instance string) bool {
	t.Helper()
	err := p.client.Get(t.Context(), client.ObjectKey{Namespace: tenant, Name: instance}, &corev1.ConfigMap{})
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return err == nil
}

func (p *providers) wantTenants(t *testing.T, workspace string, want ...string) {
	t.Helper()
	tenants, err := p.of(workspace).Tenants(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, tenant := range tenants {
		got = append(got, tenant.String())
	}
	if !slices.Equal(got, want) {
		t.Errorf("the provider in %s has %v, want %v", workspace, got, want)
	}
}

// unmark removes the mark of a provider from the namespace and the inventories of a tenant.
func (p *providers) unmark(t *testing.T, tenant string) {
	t.Helper()
	namespace, inventories := &corev1.Namespace{}, &corev1.ConfigMapList{}
	if err := p.client.Get(t.Context(), client.ObjectKey{Name: tenant}, namespace); err != nil {
		t.Fatal(err)
	}
	if err := p.client.List(t.Context(), inventories, client.InNamespace(tenant), client.MatchingLabels{group + "/kind": "inventory"}); err != nil || len(inventories.Items) == 0 {
		t.Fatalf("%d inventories, %v", len(inventories.Items), err)
	}
	objects := []client.Object{namespace}
	for i := range inventories.Items {
		objects = append(objects, &inventories.Items[i])
	}
	for _, object := range objects {
		delete(object.GetLabels(), group+"/provider")
		if err := p.client.Update(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
}

func newProviders() *providers {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	return &providers{fake.NewClientBuilder().WithRESTMapper(mapper).Build()}
}

// TestProvidersShareARuntimeCluster checks that a provider does not list, delete or write objects of another provider of the same group.
func TestProvidersShareARuntimeCluster(t *testing.T) {
	p := newProviders()
	for workspace, tenant := range map[string]string{"first": "a", "second": "b"} {
		if err := p.apply(t, workspace, tenant, "one"); err != nil {
			t.Fatal(err)
		}
	}
	p.wantTenants(t, "first", "a")
	p.wantTenants(t, "second", "b")
	if err := p.apply(t, "second", "a", "two"); err == nil || !strings.Contains(err.Error(), "belongs to another provider") || p.exists(t, "a", "two") {
		t.Errorf("a namespace of another provider is used: %v", err)
	}
	tenant := logicalcluster.MustParseName("a")
	if err := p.of("second").Purge(t.Context(), tenant); err == nil || !p.exists(t, "a", "one") {
		t.Errorf("a namespace of another provider is purged: %v", err)
	}
	if gone, err := p.of("second").Delete(t.Context(), setOf("a", "one")); err != nil || !gone || !p.exists(t, "a", "one") {
		t.Errorf("an instance of another provider is deleted: %v, %v", gone, err)
	}
	if sets, err := p.of("second").Sets(t.Context(), tenant); err != nil || len(sets) > 0 {
		t.Errorf("sets of another provider are listed: %v, %v", sets, err)
	}
	if sets, err := p.of("first").Sets(t.Context(), tenant); err != nil || len(sets) != 1 {
		t.Errorf("the provider has the sets %v, %v", sets, err)
	}
	if err := p.of("first").Purge(t.Context(), tenant); err != nil || p.exists(t, "a", "one") {
		t.Errorf("the provider's own namespace is not purged: %v", err)
	}
}

// TestUnmarkedNamespacesAreAdoptedForInstances checks that objects without a mark have no owner until a provider serves an instance that uses
// them, and that the provider then adopts only the objects of that instance.
func TestUnmarkedNamespacesAreAdoptedForInstances(t *testing.T) {
	p := newProviders()
	for _, instance := range []string{"live", "unknown"} {
		if err := p.apply(t, "first", "a", instance); err != nil {
			t.Fatal(err)
		}
	}
	p.unmark(t, "a")
	p.wantTenants(t, "first")
	tenant := logicalcluster.MustParseName("a")
	if err := p.of("first").Purge(t.Context(), tenant); err == nil || !p.exists(t, "a", "live") {
		t.Errorf("a namespace without a mark is purged: %v", err)
	}
	if err := p.apply(t, "first", "a", "live"); err != nil {
		t.Fatal(err)
	}
	p.wantTenants(t, "first", "a")
	p.wantTenants(t, "second")
	if err := p.of("first").Purge(t.Context(), tenant); err != nil || p.exists(t, "a", "live") || !p.exists(t, "a", "unknown") {
		t.Errorf("a purge leaves the adopted instance: %v, or deletes the other: %v; %v", p.exists(t, "a", "live"), !p.exists(t, "a", "unknown"), err)
	}
	// A deleted instance may have objects from before marks existed.
	if gone, err := p.of("first").Delete(t.Context(), setOf("a", "unknown")); err != nil || !gone || p.exists(t, "a", "unknown") {
		t.Errorf("an instance without a mark is not deleted: %v, %v", gone, err)
	}
	if err := p.of("first").Purge(t.Context(), tenant); err != nil {
		t.Fatal(err)
	}
	if err := p.client.Get(t.Context(), client.ObjectKey{Name: "a"}, &corev1.Namespace{}); !apierrors.IsNotFound(err) {
		t.Errorf("the empty namespace: %v", err)
	}
}

// TestPurgeGoesOnAfterAnError checks that an instance that cannot be purged does not block others, and that its namespace stays.
func TestPurgeGoesOnAfterAnError(t *testing.T) {
	p := newProviders()
	inventories := &corev1.ConfigMapList{}
	if err := p.apply(t, "first", "a", "broken"); err != nil {
		t.Fatal(err)
	}
	if err := p.client.List(t.Context(), inventories, client.MatchingLabels{group + "/kind": "inventory"}); err != nil || len(inventories.Items) != 1 {
		t.Fatalf("%d inventories, %v", len(inventories.Items), err)
	}
	inventories.Items[0].Data["objects"] = "edited"
	if err := p.client.Update(t.Context(), &inventories.Items[0]); err != nil {
		t.Fatal(err)
	}
	for _, instance := range []string{"one", "two", "three"} { // names of inventories are hashes, so some are listed after the broken one
		if err := p.apply(t, "first", "a", instance); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.of("first").Purge(t.Context(), logicalcluster.MustParseName("a")); err == nil || !p.exists(t, "a", "broken") {
		t.Errorf("what cannot be read is purged: %v", err)
	}
	for _, instance := range []string{"one", "two", "three"} {
		if p.exists(t, "a", instance) {
			t.Errorf("%s is left", instance)
		}
	}
	p.wantTenants(t, "first", "a")
}

// TestObjectsAreAppliedInTheNamespaceOfTheTenant checks that objects are applied in the namespace of the tenant, regardless of the namespace
// that the values of an instance produce.
func TestObjectsAreAppliedInTheNamespaceOfTheTenant(t *testing.T) {
	p := newProviders()
	for _, namespace := range []string{"b", "kube-system"} {
		theirs := &corev1.ConfigMap{}
		theirs.Namespace, theirs.Name = namespace, "one"
		theirs.Data = map[string]string{"of": "others"}
		if err := p.client.Create(t.Context(), theirs); err != nil {
			t.Fatal(err)
		}
		object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"of": "a"}}}
		object.SetNamespace(namespace)
		object.SetName("one")
		if _, err := p.of("first").Apply(t.Context(), setOf("a", "one"), []*unstructured.Unstructured{object}); err != nil {
			t.Fatal(err)
		}
		if !p.exists(t, "a", "one") {
			t.Errorf("with %s, the object is not in the namespace of the tenant", namespace)
		}
		if gone, err := p.of("first").Delete(t.Context(), setOf("a", "one")); err != nil || !gone {
			t.Errorf("the instance is not deleted: %v, %v", gone, err)
		}
		if err := p.client.Get(t.Context(), client.ObjectKeyFromObject(theirs), theirs); err != nil || theirs.Data["of"] != "others" || len(theirs.Labels) > 0 {
			t.Errorf("the object in %s is %v, %v", namespace, theirs, err)
		}
	}
	cluster := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
	cluster.SetName("kube-public")
	_, err := p.of("first").Apply(t.Context(), setOf("a", "two"), []*unstructured.Unstructured{cluster})
	if _, ok := errors.AsType[*runtimecluster.KindError](err); !ok {
		t.Errorf("a cluster-scoped object: got error %v", err)
	}
}
