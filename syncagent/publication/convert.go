package publication

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
)

// FromPublishedResource returns what a PublishedResource publishes. The object is kept, its spec is copied.
func FromPublishedResource(object *syncagentv1alpha1.PublishedResource) *Publication {
	p := &Publication{Object: object, Spec: *object.Spec.DeepCopy(), SchemaName: object.Status.ResourceSchemaName}
	p.Allowed, p.Invalid = ParseAllowed(object)
	p.Invalid = append(p.Invalid, Validate(&p.Spec, field.NewPath("spec"))...)
	return p
}

// Syncs says whether objects are synced, or only the schema is published.
func (p *Publication) Syncs() bool {
	return p.Spec.Synchronization == nil || p.Spec.Synchronization.Enabled
}
