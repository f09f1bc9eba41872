package admission

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/lifecycle/objectcount"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// eventResources are what the limit never stops.
var eventResources = map[schema.GroupResource]bool{
	{Resource: "events"}:                         true,
	{Group: "events.k8s.io", Resource: "events"}: true,
}

// objectLimit keeps a logical cluster that is in use from growing beyond its total number of objects. It is
// approximate: what other replicas let pass is seen with the next scan.
type objectLimit struct {
	*admission.Handler
	clusters *storage.Reader[*corev1alpha1.LogicalCluster]
	counts   *objectcount.Tracker
}

func newObjectLimit(config Config) admission.Interface {
	return &objectLimit{
		Handler:  admission.NewHandler(admission.Create, admission.Delete),
		clusters: storage.NewReader[*corev1alpha1.LogicalCluster](config.Registry, logicalClusters),
		counts:   config.Counts,
	}
}

// Validate implements admission.ValidationInterface.
func (l *objectLimit) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if l.counts == nil || a.GetSubresource() != "" || isUncounted(a) || eventResources[a.GetResource().GroupResource()] {
		return nil
	}
	name, ok := logicalcluster.From(ctx)
	if !ok {
		return apierrors.NewInternalError(errNoCluster)
	}
	if a.GetOperation() == admission.Delete {
		if !a.IsDryRun() && goes(a) {
			l.counts.Remove(name)
		}
		return nil
	}
	cluster, err := l.clusters.Get(ctx, "", corev1alpha1.LogicalClusterName)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("reading logical cluster %q: %w", name, err))
	}
	limit := l.counts.Limit(cluster)
	if limit == 0 || cluster.Status.Phase != corev1alpha1.LogicalClusterPhaseReady {
		return nil
	}
	held, fits, err := l.counts.Add(ctx, name, limit, a.IsDryRun())
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("counting the objects of logical cluster %q: %w", name, err))
	}
	if !fits {
		return forbid(a, "logical cluster %q holds as many objects as it may (%d/%d objects), delete objects to create others", name, held, limit)
	}
	return nil
}

// goes tells whether a deletion makes its object go at once. One that is held goes later, when nobody asks again: it is
// counted until the next scan, since whoever deletes it twice would else have made room for two.
func goes(a admission.Attributes) bool {
	if options, ok := a.GetOperationOptions().(*metav1.DeleteOptions); ok && options.PropagationPolicy != nil && *options.PropagationPolicy != metav1.DeletePropagationBackground {
		return false
	}
	object, err := meta.Accessor(a.GetOldObject())
	return err == nil && object.GetDeletionTimestamp() == nil && len(object.GetFinalizers()) == 0
}
