package admission

import (
	"context"
	"maps"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apiserver/pkg/admission"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// dryRunAnnotator sets the logical cluster of the request in the result of dry runs, as storage does, which a dry run
// does not reach: otherwise the value that the client sent would be returned. It wraps the whole chain, whose plug-ins
// see the same object as in other requests.
type dryRunAnnotator struct {
	reinvocationHandler
	registry *storage.Registry
}

// Admit implements admission.MutationInterface.
func (d dryRunAnnotator) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	writes := a.GetOperation() == admission.Create || a.GetOperation() == admission.Update
	if err := d.reinvocationHandler.Admit(ctx, a, o); err != nil || !a.IsDryRun() || !writes || a.GetObject() == nil {
		return err
	}
	if stored, err := d.registry.Resolve(ctx, a.GetResource().GroupResource()); err != nil || stored == nil {
		return err // a review, which must have no metadata
	}
	cluster, ok := logicalcluster.From(ctx)
	object, err := meta.Accessor(a.GetObject())
	if err != nil || !ok {
		return nil // a subresource without metadata
	}
	annotations := maps.Clone(object.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[logicalcluster.AnnotationKey] = cluster.String()
	object.SetAnnotations(annotations)
	return nil
}
