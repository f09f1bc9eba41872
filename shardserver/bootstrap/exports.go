package bootstrap

import (
	"encoding/json"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	exactjson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/bootstrap/rootapis"
)

// rootSchemas returns the schemas of root's exports.
func rootSchemas() ([]client.Object, error) {
	var objects []client.Object
	for _, export := range rootapis.Exports() {
		for _, resource := range export.Resources {
			schema, err := resource.APIResourceSchema()
			if err != nil {
				return nil, err
			}
			objects = append(objects, schema)
		}
	}
	return objects, nil
}

// rootExports returns the exports. The secrets of their identities are created before them, because storage needs the
// identities.
func rootExports() []client.Object {
	var objects []client.Object
	for _, export := range rootapis.Exports() {
		objects = append(objects, export.APIExport())
	}
	return objects
}

// rootBindings returns the bindings in root to its own exports.
func rootBindings(options Options) []client.Object {
	names := []string{rootapis.Shards, rootapis.Tenancy, rootapis.Topology, rootapis.Migration}
	if options.CacheAPIs {
		names = append(names, rootapis.Cache)
	}
	return apiBindings(names...)
}

// shardBindings returns the bindings in every shard's own logical cluster.
func shardBindings() []client.Object {
	return apiBindings(rootapis.Shards, rootapis.Tenancy, rootapis.Topology, rootapis.Cache, rootapis.Migration)
}

// apiBindings returns bindings of the shard itself, named like the exports.
func apiBindings(exports ...string) []client.Object {
	var objects []client.Object
	for _, export := range exports {
		objects = append(objects, &apisv1alpha2.APIBinding{
			ObjectMeta: metav1.ObjectMeta{Name: export},
			Spec: apisv1alpha2.APIBindingSpec{Reference: apisv1alpha2.BindingReference{
				Export: &apisv1alpha2.ExportBindingReference{Path: logicalcluster.Root.String(), Name: export},
			}},
		})
	}
	return objects
}

// overlayExport sets the fields of an export that the bootstrap owns. Permission claims are the administrator's, and an
// existing identity is kept.
func overlayExport(existing, desired *apisv1alpha2.APIExport) {
	existing.Spec.Resources = desired.Spec.Resources
	existing.Spec.MaximalPermissionPolicy = desired.Spec.MaximalPermissionPolicy
	if existing.Spec.Identity == nil || existing.Spec.Identity.SecretRef == nil {
		existing.Spec.Identity = desired.Spec.Identity
	}
}

// sameSchema reports whether two schemas accept the same objects. Schemas are immutable, so a different one must be
// replaced, and all bindings have to be updated; differences in descriptions do not justify that.
func sameSchema(a, b *apisv1alpha1.APIResourceSchema) bool {
	return reflect.DeepEqual(normalizeSchema(a.Spec), normalizeSchema(b.Spec))
}

// normalizeSchema returns a schema as plain JSON without descriptions.
func normalizeSchema(spec apisv1alpha1.APIResourceSchemaSpec) any {
	text, err := json.Marshal(spec)
	if err != nil {
		return nil // invalid raw JSON is never equal
	}
	var plain any
	if err := exactjson.Unmarshal(text, &plain); err != nil {
		return nil
	}
	return withoutDescriptions(plain)
}

// withoutDescriptions removes strings under the key "description". A property of that name is a schema and is kept.
func withoutDescriptions(plain any) any {
	switch value := plain.(type) {
	case map[string]any:
		if _, ok := value["description"].(string); ok {
			delete(value, "description")
		}
		for key := range value {
			value[key] = withoutDescriptions(value[key])
		}
	case []any:
		for i := range value {
			value[i] = withoutDescriptions(value[i])
		}
	}
	return plain
}
