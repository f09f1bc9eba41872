package testing

import (
	"context"
	"fmt"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
)

// NewExport creates an export of a namespaced kind with one version, v1, and any content under spec and status, in a
// logical cluster: the APIResourceSchema "v1.<resource>.<group>" and an APIExport with the name and the changes
// applied. It waits until the export has an identity, and returns it.
func (s *Shard) NewExport(t testing.TB, cluster, name string, gr schema.GroupResource, kind string, changes ...func(*apisv1alpha2.APIExport)) *apisv1alpha2.APIExport {
	t.Helper()
	return NewExport(t, s.Client(t, s.Admin(t)), cluster, name, gr, kind, changes...)
}

// NewExport is Shard.NewExport with a client that sends requests to the logical cluster of the context.
func NewExport(t testing.TB, c client.Client, cluster, name string, gr schema.GroupResource, kind string, changes ...func(*apisv1alpha2.APIExport)) *apisv1alpha2.APIExport {
	t.Helper()
	clusterCtx := In(context.Background(), cluster)
	resourceSchema := NewSchema("v1", gr, kind)
	if err := c.Create(clusterCtx, resourceSchema); err != nil {
		t.Fatalf("creating APIResourceSchema %s in %s: %v", resourceSchema.Name, cluster, err)
	}
	export := &apisv1alpha2.APIExport{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: apisv1alpha2.APIExportSpec{Resources: []apisv1alpha2.ResourceSchema{{
			Name: gr.Resource, Group: gr.Group, Schema: resourceSchema.Name,
			Storage: apisv1alpha2.ResourceSchemaStorage{CRD: &apisv1alpha2.ResourceSchemaStorageCRD{}},
		}}},
	}
	for _, change := range changes {
		change(export)
	}
	if err := c.Create(clusterCtx, export); err != nil {
		t.Fatalf("creating APIExport %s in %s: %v", name, cluster, err)
	}
	Eventually(t, "APIExport "+name+" gets an identity", func(ctx context.Context) error {
		if err := c.Get(In(ctx, cluster), client.ObjectKey{Name: name}, export); err != nil {
			return err
		}
		if export.Status.IdentityHash == "" {
			return fmt.Errorf("it has none; conditions %+v", export.Status.Conditions)
		}
		return nil
	})
	return export
}

// NewSchema returns an APIResourceSchema "<prefix>.<resource>.<group>" of a namespaced kind with one version, v1, a
// status, and any content.
func NewSchema(prefix string, gr schema.GroupResource, kind string) *apisv1alpha1.APIResourceSchema {
	anyObject := `{"type":"object","x-kubernetes-preserve-unknown-fields":true}`
	return &apisv1alpha1.APIResourceSchema{
		ObjectMeta: metav1.ObjectMeta{Name: prefix + "." + gr.Resource + "." + gr.Group},
		Spec: apisv1alpha1.APIResourceSchemaSpec{
			Group: gr.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: gr.Resource, Singular: strings.ToLower(kind), Kind: kind, ListKind: kind + "List"},
			Versions: []apisv1alpha1.APIResourceVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema:       runtime.RawExtension{Raw: []byte(`{"type":"object","properties":{"spec":` + anyObject + `,"status":` + anyObject + `}}`)},
				Subresources: apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
			}},
		},
	}
}

// Bind creates an APIBinding to an export of another logical cluster, with the name of the export and the changes
// applied, waits until it is Bound, and returns it.
func (s *Shard) Bind(t testing.TB, cluster, exportCluster, exportName string, changes ...func(*apisv1alpha2.APIBinding)) *apisv1alpha2.APIBinding {
	t.Helper()
	return Bind(t, s.Client(t, s.Admin(t)), cluster, exportCluster, exportName, changes...)
}

// Bind is Shard.Bind with a client that sends requests to the logical cluster of the context.
func Bind(t testing.TB, c client.Client, cluster, exportCluster, exportName string, changes ...func(*apisv1alpha2.APIBinding)) *apisv1alpha2.APIBinding {
	t.Helper()
	binding := &apisv1alpha2.APIBinding{
		ObjectMeta: metav1.ObjectMeta{Name: exportName},
		Spec: apisv1alpha2.APIBindingSpec{Reference: apisv1alpha2.BindingReference{
			Export: &apisv1alpha2.ExportBindingReference{Path: exportCluster, Name: exportName},
		}},
	}
	for _, change := range changes {
		change(binding)
	}
	Eventually(t, fmt.Sprintf("creation of APIBinding %s in %s", binding.Name, cluster), func(ctx context.Context) error {
		err := c.Create(In(ctx, cluster), binding)
		if err != nil && !apierrors.IsForbidden(err) { // it is Forbidden until the shard has the export and its access rules, which another one may store
			t.Fatalf("creating APIBinding %s in %s: %v", binding.Name, cluster, err)
		}
		return err
	})
	Eventually(t, "APIBinding "+binding.Name+" becomes Bound", func(ctx context.Context) error {
		if err := c.Get(In(ctx, cluster), client.ObjectKey{Name: binding.Name}, binding); err != nil {
			return err
		}
		if binding.Status.Phase != apisv1alpha2.APIBindingPhaseBound {
			return fmt.Errorf("phase is %q, conditions %+v", binding.Status.Phase, binding.Status.Conditions)
		}
		return nil
	})
	return binding
}
