// Package limits contains the plug-ins that bound what tenants store, whatever its kind, and what the server spends on it.
package limits

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
	"github.com/atoll-dev/atoll/shardserver/admission/rules"
	"github.com/atoll-dev/atoll/shardserver/lifecycle/objectcount"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// eventResources are exempt from the limit.
var eventResources = map[schema.GroupResource]bool{
	{Resource: "events"}:                         true,
	{Group: "events.k8s.io", Resource: "events"}: true,
}

// objectLimit enforces the total number of objects of a logical cluster. It is approximate: objects that other replicas
// admit are counted by the next scan.
type objectLimit struct {
	*admission.Handler
	clusters *storage.Reader[*corev1alpha1.LogicalCluster]
	counts   *objectcount.Tracker
}

// NewObjectLimit returns the plug-in core.kcp.io/LogicalClusterObjectCountLimit.
func NewObjectLimit(config rules.Config) admission.Interface {
	return &objectLimit{
		Handler:  admission.NewHandler(admission.Create, admission.Delete),
		clusters: storage.NewReader[*corev1alpha1.LogicalCluster](config.Registry, rules.LogicalClusters),
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
		return apierrors.NewInternalError(rules.ErrNoCluster)
	}
	if a.GetOperation() == admission.Delete {
		if !a.IsDryRun() && removesImmediately(a) {
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
	count, fits, err := l.counts.Add(ctx, name, limit, a.IsDryRun())
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("counting the objects of logical cluster %q: %w", name, err))
	}
	if !fits {
		return rules.Forbid(a, "total object count limit reached for logical cluster %q (%d/%d objects), delete objects to create others", name, count, limit)
	}
	return nil
}

// removesImmediately reports whether a deletion removes its object immediately. An object with finalizers is removed
// later, outside of admission, and counts until the next scan; otherwise deleting it twice would decrement the count
// twice.
func removesImmediately(a admission.Attributes) bool {
	if options, ok := a.GetOperationOptions().(*metav1.DeleteOptions); ok && options.PropagationPolicy != nil && *options.PropagationPolicy != metav1.DeletePropagationBackground {
		return false
	}
	object, err := meta.Accessor(a.GetOldObject())
	return err == nil && object.GetDeletionTimestamp() == nil && len(object.GetFinalizers()) == 0
}
