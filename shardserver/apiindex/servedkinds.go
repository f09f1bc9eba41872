package apiindex

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/internal/subresources"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// maxServedKindsSize bounds the JSON of ServedKinds, because an object has room for 256 KiB of annotations.
const maxServedKindsSize = 128 << 10

// ServedKind is what a resource keeps once it is served, as for a CustomResourceDefinition: objects of consumers are stored
// under a key that depends on the scope, and with the kind. Group and plural name are the resource.
type ServedKind struct {
	Scope apiextensionsv1.ResourceScope `json:"scope"`
	Kind  string                        `json:"kind"`
}

// KindOf returns scope and kind of a schema.
func KindOf(schema *apisv1alpha1.APIResourceSchema) ServedKind {
	return ServedKind{schema.Spec.Scope, schema.Spec.Names.Kind}
}

// CheckUnchanged returns an error if a resource that was served with this kind cannot be served with another.
func (k ServedKind) CheckUnchanged(resource schema.GroupResource, other ServedKind) error {
	switch {
	case other.Scope != k.Scope:
		return fmt.Errorf("%s cannot be served with scope %s: it has been served with scope %s, in which objects are stored", resource, other.Scope, k.Scope)
	case other.Kind != k.Kind:
		return fmt.Errorf("%s cannot be served with kind %s: it has been served with kind %s, with which objects are stored", resource, other.Kind, k.Kind)
	}
	return nil
}

// ServedKinds are the kinds with which an export has offered resources since it was created, by resource. Those that it
// offers no longer are in it, too: bindings keep such resources.
type ServedKinds map[string]ServedKind

// ParseServedKinds returns what was recorded in an export. A record that cannot be read is ignored.
func ParseServedKinds(export *apisv1alpha2.APIExport) ServedKinds {
	var served ServedKinds
	if json.Unmarshal([]byte(export.Annotations[apisv1alpha2.ServedKindsAnnotationKey]), &served) != nil {
		return nil
	}
	return served
}

// Get returns the kind with which a resource was offered.
func (s ServedKinds) Get(resource schema.GroupResource) (ServedKind, bool) {
	kind, ok := s[resource.String()]
	return kind, ok
}

// String returns the record as JSON; "" if it is empty.
func (s ServedKinds) String() string {
	if len(s) == 0 {
		return ""
	}
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // strings can always be encoded
	}
	return string(text)
}

// SchemaGetter returns schemas, as *Resolver does.
type SchemaGetter interface {
	GetSchema(ctx context.Context, cluster logicalcluster.Name, name string) (*apisv1alpha1.APIResourceSchema, error)
}

// With returns the record with the resources of an export of a logical cluster whose schemas exist. The first kind of a
// resource stays. It ignores resources for which there is no room.
func (s ServedKinds) With(ctx context.Context, schemas SchemaGetter, cluster logicalcluster.Name, spec apisv1alpha2.APIExportSpec) (ServedKinds, error) {
	added, size := maps.Clone(s), len(s.String())
	if added == nil {
		added = ServedKinds{}
	}
	for _, resource := range spec.Resources {
		if subresources.IsEntry(resource) {
			continue
		}
		gr := schema.GroupResource{Group: resource.Group, Resource: resource.Name}
		if _, known := added[gr.String()]; known {
			continue
		}
		found, err := schemas.GetSchema(ctx, cluster, resource.Schema)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading APIResourceSchema %q: %w", resource.Schema, err)
		}
		kind := KindOf(found)
		if size += len(ServedKinds{gr.String(): kind}.String()); size > maxServedKindsSize {
			return added, nil
		}
		added[gr.String()] = kind
	}
	return added, nil
}
