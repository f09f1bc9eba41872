package infrastructure_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/backends/manifest"
	"github.com/atoll-dev/atoll/infrastructure/template/removal"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// testRetirement retires the version in which a tenant has applied an instance: the tenant continues in the next version.
func (e *instancesEnv) testRetirement(t *testing.T) {
	e.create(t, newTemplate("versioned", "Versioned", func(t *infrastructurev1alpha1.Template) {
		t.Spec.Backend, t.Spec.BackendConfig = manifest.Name, &runtime.RawExtension{Raw: []byte(strings.ReplaceAll(manifests, "redis-", "versioned-"))}
	}))
	e.ready(t, "versioned")
	resource := schema.GroupVersionResource{Group: group, Resource: "versioned"}
	tenant := dynamic.NewForConfigOrDie(shardtesting.At(e.shard.Admin(t), e.second))
	apply := func(ctx context.Context, manager, version, name, size string) (*unstructured.Unstructured, error) {
		return tenant.Resource(resource.GroupResource().WithVersion(version)).Apply(ctx, "applied", &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": group + "/" + version, "kind": "Versioned", "metadata": map[string]any{"name": "applied"}, "spec": map[string]any{"name": name, "size": size},
		}}, metav1.ApplyOptions{FieldManager: manager, Force: true})
	}
	shardtesting.Eventually(t, "the kind to be served", func(ctx context.Context) error {
		_, err := apply(ctx, "gitops", "v1alpha1", "mine", "small")
		return err
	})
	e.waitData(t, e.second, "versioned-applied", "small")
	e.change(t, "versioned", func(t *infrastructurev1alpha1.Template) { t.Spec.InstanceCRD.Version = "v1beta1" })
	e.ready(t, "versioned")
	shardtesting.Eventually(t, "the new version to be served", func(ctx context.Context) error {
		_, err := apply(ctx, "other", "v1beta1", "mine", "small")
		return err
	})
	e.change(t, "versioned", func(t *infrastructurev1alpha1.Template) { t.Spec.RetiredVersions = []string{"v1alpha1"} })
	e.ready(t, "versioned")
	cleaner := &removal.Cleaner{Client: e.c, Group: group, Export: export, Instances: e.view, Events: events.NewFakeRecorder(100), Log: logr.Discard()}
	shardtesting.Eventually(t, "the version to be gone", func(ctx context.Context) error {
		if err := cleaner.Retire(ctx); err != nil {
			return err
		}
		return e.checkVersions(ctx, t, "versioned", "v1beta1")
	})
	applied, err := apply(t.Context(), "gitops", "v1beta1", "mine", "large")
	if err != nil {
		t.Fatalf("applying an instance that was applied in a retired version: %v", err)
	}
	for _, owner := range applied.GetManagedFields() {
		if owner.APIVersion == group+"/v1alpha1" {
			t.Errorf("%s owns fields in the retired version: %v", owner.Manager, owner)
		}
	}
	if !slices.ContainsFunc(applied.GetManagedFields(), func(owner metav1.ManagedFieldsEntry) bool { return owner.Manager == "other" }) {
		t.Errorf("an owner is lost: %v", applied.GetManagedFields())
	}
	e.waitData(t, e.second, "versioned-applied", "large")
	if err := tenant.Resource(resource.GroupResource().WithVersion("v1beta1")).Delete(t.Context(), "applied", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	e.waitAbsent(t, e.second, "versioned-applied")
	deleted := &infrastructurev1alpha1.Template{ObjectMeta: metav1.ObjectMeta{Name: "versioned"}}
	e.remove(t, deleted)
}

// checkVersions checks that the second tenant has bound a schema of a kind with exactly these versions.
func (e *instancesEnv) checkVersions(ctx context.Context, t *testing.T, resource string, versions ...string) error {
	binding := &apisv1alpha2.APIBinding{}
	if err := e.shard.Client(t, e.shard.Admin(t)).Get(shardtesting.In(ctx, e.second), client.ObjectKey{Name: export}, binding); err != nil {
		return err
	}
	at := slices.IndexFunc(binding.Status.BoundResources, func(bound apisv1alpha2.BoundAPIResource) bool { return bound.Resource == resource })
	if at < 0 {
		return fmt.Errorf("%s is not bound", resource)
	}
	bound := &apisv1alpha1.APIResourceSchema{}
	if err := e.c.Get(ctx, client.ObjectKey{Name: binding.Status.BoundResources[at].Schema.Name}, bound); err != nil {
		return err
	}
	var got []string
	for _, version := range bound.Spec.Versions {
		got = append(got, version.Name)
	}
	if !slices.Equal(got, versions) {
		return fmt.Errorf("the schema %s has versions %v", bound.Name, got)
	}
	return nil
}
