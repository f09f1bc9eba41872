package shardserver_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// TestServerSideApply applies every kind of apis.kcp.io in every version twice; the second apply must not change
// anything.
func TestServerSideApply(t *testing.T) {
	p := startProviderEnv(t)
	client, err := dynamic.NewForConfig(shardtesting.At(p.Masters(t), p.provider))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		`{apiVersion: apis.kcp.io/v1alpha1, kind: APIResourceSchema, metadata: {name: v2.gadgets.example.com}, spec: {group: example.com, scope: Cluster,
			names: {plural: gadgets, singular: gadget, kind: Gadget, listKind: GadgetList, shortNames: [g]},
			versions: [{name: v1, served: true, storage: true, schema: {type: object, properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true}}},
				subresources: {status: {}}, additionalPrinterColumns: [{name: A, type: string, jsonPath: .spec.a}], selectableFields: []}]}}`,
		`{apiVersion: apis.kcp.io/v1alpha2, kind: APIExport, metadata: {name: gadgets}, spec: {resources: [{name: gadgets, group: example.com, schema: v2.gadgets.example.com}],
			maximalPermissionPolicy: {local: {}}, permissionClaims: [{resource: secrets, verbs: [get]}, {resource: configmaps, verbs: ["*"], defaultSelector: {matchAll: true}}]}}`,
		`{apiVersion: apis.kcp.io/v1alpha1, kind: APIExport, metadata: {name: older}, spec: {latestResourceSchemas: [v2.gadgets.example.com],
			permissionClaims: [{resource: secrets, all: true}, {resource: configmaps, resourceSelector: [{name: a, namespace: b}]}]}}`,
		`{apiVersion: apis.kcp.io/v1alpha2, kind: APIBinding, metadata: {name: widgets}, spec: {reference: {export: {name: widgets}},
			permissionClaims: [{resource: secrets, verbs: [get], state: Rejected, selector: {matchLabels: {a: b}}}]}}`,
		`{apiVersion: apis.kcp.io/v1alpha1, kind: APIBinding, metadata: {name: gadgets}, spec: {reference: {export: {path: ` + p.parent + `:provider, name: gadgets}},
			permissionClaims: [{resource: secrets, all: true, state: Accepted}]}}`,
		`{apiVersion: apis.kcp.io/v1alpha1, kind: APIExportEndpointSlice, metadata: {name: more}, spec: {export: {name: widgets}}}`,
		`{apiVersion: apis.kcp.io/v1alpha1, kind: APIConversion, metadata: {name: v2.gadgets.example.com}, spec: {conversions: [{from: v1, to: v2, rules: [{field: .a, destination: .b}]}]}}`,
	} {
		obj := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &obj.Object); err != nil {
			t.Fatal(err)
		}
		resources := map[string]string{
			"APIResourceSchema": "apiresourceschemas", "APIExport": "apiexports", "APIBinding": "apibindings",
			"APIExportEndpointSlice": "apiexportendpointslices", "APIConversion": "apiconversions",
		}
		kind := obj.GroupVersionKind()
		resource := client.Resource(schema.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: resources[kind.Kind]})
		options := metav1.ApplyOptions{FieldManager: "tester"}
		first, err := resource.Apply(t.Context(), obj.GetName(), obj, options)
		if err != nil {
			t.Errorf("applying %s: %v", kind, err)
			continue
		}
		again, err := resource.Apply(t.Context(), obj.GetName(), obj, options)
		// The server sets the identity of an export asynchronously.
		for _, applied := range []*unstructured.Unstructured{first, again} {
			if applied != nil {
				unstructured.RemoveNestedField(applied.Object, "spec", "identity")
			}
		}
		if err != nil || !equality.Semantic.DeepEqual(first.Object["spec"], again.Object["spec"]) {
			t.Errorf("applying %s again: %v; from %v to %v", kind, err, first.Object, again)
		}
	}
}
