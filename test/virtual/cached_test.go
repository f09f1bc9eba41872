package virtual

import (
	"context"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	cachev1alpha1 "github.com/atoll-dev/atoll/api/cache/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// createCachedResources has the provider publish flavors of its own workspace, read-only, to the workspace "bound".
func (e *env) createCachedResources() {
	e.Helper()
	e.createObjects("provider", &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "flavors." + group}, Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Group: group, Scope: apiextensionsv1.ClusterScoped,
		Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "flavors", Singular: "flavor", Kind: "Flavor", ListKind: "FlavorList"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}}}},
	}})
	for name, label := range map[string]string{"existing": "yes", "unselected": "no"} {
		body := `{"apiVersion":"` + group + `/v1","kind":"Flavor","metadata":{"name":"` + name + `","labels":{"selected":"` + label + `"}}}`
		shardtesting.Eventually(e.T, "creating "+name, func(context.Context) error {
			if got, content := e.result("masters", http.MethodPost, "/clusters/"+e.clusters["provider"]+"/apis/"+group+"/v1/flavors", body, "application/json"); got != "201" {
				return fmt.Errorf("%s: %s", got, content)
			}
			return nil
		})
	}
	cachedResource := &cachev1alpha1.ClusterCachedResource{ObjectMeta: metav1.ObjectMeta{Name: "flavors"}, Spec: cachev1alpha1.ClusterCachedResourceSpec{
		GroupVersionResource: cachev1alpha1.GroupVersionResource{Group: group, Version: "v1", Resource: "flavors"},
		LabelSelector:        &metav1.LabelSelector{MatchLabels: map[string]string{"selected": "yes"}},
	}}
	e.createObjects("provider", cachedResource, &cachev1alpha1.ClusterCachedResourceEndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "flavors"}, Spec: cachev1alpha1.ClusterCachedResourceEndpointSliceSpec{
		ClusterCachedResource: cachev1alpha1.ClusterCachedResourceReference{Name: "flavors"}, APIExport: cachev1alpha1.ExportBindingReference{Name: "flavors"},
	}})
	shardtesting.Eventually(e.T, "the ClusterCachedResource has an identity", func(context.Context) error {
		if err := e.masters.Get(e.workspaceContext("provider"), client.ObjectKeyFromObject(cachedResource), cachedResource); err != nil {
			return err
		}
		if cachedResource.Status.IdentityHash == "" || cachedResource.Status.Phase != cachev1alpha1.ClusterCachedResourcePhaseReady {
			return fmt.Errorf("status %+v", cachedResource.Status)
		}
		return nil
	})
	apiSchema := shardtesting.NewSchema("v1", schema.GroupResource{Group: group, Resource: "flavors"}, "Flavor")
	apiSchema.Spec.Scope = apiextensionsv1.ClusterScoped
	apiSchema.Spec.Versions[0].Subresources = apiextensionsv1.CustomResourceSubresources{}
	e.createObjects("provider", apiSchema, &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: "flavors"}, Spec: apisv1alpha2.APIExportSpec{Resources: []apisv1alpha2.ResourceSchema{{
		Name: "flavors", Group: group, Schema: apiSchema.Name,
		Storage: apisv1alpha2.ResourceSchemaStorage{Virtual: &apisv1alpha2.ResourceSchemaStorageVirtual{
			Reference:    corev1.TypedLocalObjectReference{APIGroup: ptr.To("cache.kcp.io"), Kind: "ClusterCachedResourceEndpointSlice", Name: "flavors"},
			IdentityHash: cachedResource.Status.IdentityHash,
		}},
	}}}})
	e.bind("bound", "provider", "flavors", apisv1alpha2.ClaimAccepted)
	path := "/services/replication/" + e.clusters["provider"] + "/flavors/clusters/" + e.clusters["bound"] + "/apis/" + group + "/v1/flavors/existing"
	shardtesting.Eventually(e.T, "the published object is served", func(context.Context) error {
		if got, content := e.result("provider", http.MethodGet, path, "", ""); got != "200" {
			return fmt.Errorf("%s: %s", got, content)
		}
		return nil
	})
}
