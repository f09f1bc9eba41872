package bootstrap

import (
	"encoding/json"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/bootstrap/rootapis"
)

// rootSchemas are the schemas of what root exports.
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

// rootExports are the exports. Their identities are in secrets beside them, which are older than the exports: storage
// needs them.
func rootExports() []client.Object {
	var objects []client.Object
	for _, export := range rootapis.Exports() {
		objects = append(objects, export.APIExport())
	}
	return objects
}

// rootBindings are what root binds of its own exports.
func rootBindings(options Options) []client.Object {
	names := []string{rootapis.Shards, rootapis.Tenancy, rootapis.Topology, rootapis.Migration}
	if options.CacheAPIs {
		names = append(names, rootapis.Cache)
	}
	return apiBindings(names...)
}

// shardBindings are what every shard binds in its own logical cluster.
func shardBindings() []client.Object {
	return apiBindings(rootapis.Shards, rootapis.Tenancy, rootapis.Topology, rootapis.Cache, rootapis.Migration)
}

// apiBindings are those of the shard itself: they are called as the exports are.
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

// overlayExport writes what we own over an export. Claims are the administrator's, and so is an identity that was there
// before ours.
func overlayExport(existing, desired *apisv1alpha2.APIExport) {
	existing.Spec.Resources = desired.Spec.Resources
	existing.Spec.MaximalPermissionPolicy = desired.Spec.MaximalPermissionPolicy
	if existing.Spec.Identity == nil || existing.Spec.Identity.SecretRef == nil {
		existing.Spec.Identity = desired.Spec.Identity
	}
}

// sameSchema tells whether two schemas accept the same objects: schemas cannot be changed, so one that says something
// else must be replaced, which all that are bound to it have to follow. Descriptions are not worth that.
func sameSchema(a, b *apisv1alpha1.APIResourceSchema) bool {
	return reflect.DeepEqual(shape(a.Spec), shape(b.Spec))
}

// shape returns what a schema says as plain JSON, without descriptions.
func shape(spec apisv1alpha1.APIResourceSchemaSpec) any {
	text, err := json.Marshal(spec)
	if err != nil {
		return nil // raw JSON that is none: not the same as anything
	}
	var plain any
	if err := json.Unmarshal(text, &plain); err != nil {
		return nil
	}
	return withoutDescriptions(plain)
}

// withoutDescriptions removes texts under the key "description". A field of that name is no text but a schema, and stays.
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
