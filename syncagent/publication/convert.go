package publication

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
)

// FromPublishedResource converts a PublishedResource to a publication. The publication references the object and has a copy of its spec.
func FromPublishedResource(object *syncagentv1alpha1.PublishedResource) *Publication {
	p := &Publication{Object: object, Spec: *object.Spec.DeepCopy(), SchemaName: object.Status.ResourceSchemaName}
	p.Allowed, p.Invalid = ParseAllowed(object)
	p.Invalid = append(p.Invalid, Validate(&p.Spec, field.NewPath("spec"))...)
	return p
}

// Syncs reports whether objects are synced. If not, the agent publishes the schema only.
func (p *Publication) Syncs() bool {
	return p.Spec.Synchronization == nil || p.Spec.Synchronization.Enabled
}
