package binding

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiexport/claims"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
)

// writeReservations stores the locks, if they still are what this pass has begun with.
func (p *scope) writeReservations(ctx context.Context) error {
	written, err := patchReservations(ctx, p.cfg.Clients.Typed, p.cluster, p.reservations)
	if err != nil {
		return err
	}
	_, _ = p.clusters.GetNotOlderThan(ctx, "", written.Name, written.ResourceVersion) // the next pass shall see them; a cache that lags costs time, not truth
	return nil
}

// patchReservations writes the locks of the context's logical cluster, if they still are those of the object. Nothing else of
// the LogicalCluster matters, so that others may write it meanwhile. It fails with a Conflict if somebody has written
// locks since.
func patchReservations(ctx context.Context, typed client.Client, cluster *corev1alpha1.LogicalCluster, wanted reservations) (*corev1alpha1.LogicalCluster, error) {
	const path = "/metadata/annotations/internal.apis.kcp.io~1resource-bindings"
	before, exists := cluster.Annotations[corev1alpha1.ResourceBindingsAnnotationKey]
	var patch client.Patch
	if exists {
		operations, err := json.Marshal([]map[string]any{
			{"op": "test", "path": path, "value": before},
			{"op": "replace", "path": path, "value": wanted.String()},
		})
		if err != nil {
			return nil, err
		}
		patch = client.RawPatch(types.JSONPatchType, operations)
	} else {
		merged, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"resourceVersion": cluster.ResourceVersion,
			"annotations":     map[string]string{corev1alpha1.ResourceBindingsAnnotationKey: wanted.String()},
		}})
		if err != nil {
			return nil, err
		}
		patch = client.RawPatch(types.MergePatchType, merged)
	}
	written := &corev1alpha1.LogicalCluster{}
	written.Name = corev1alpha1.LogicalClusterName
	err := typed.Patch(ctx, written, patch)
	if exists && apierrors.IsInvalid(err) { // the test has failed: somebody has written locks since
		return nil, apierrors.NewConflict(logicalClusters, written.Name, err)
	}
	if err != nil {
		return nil, fmt.Errorf("writing the locks of logical cluster %q: %w", logicalcluster.Of(cluster), err)
	}
	return written, nil
}

// writeStatuses stores what follows for each binding.
func (p *scope) writeStatuses(ctx context.Context) (errs []error) {
	var last string
	for _, state := range p.states {
		written, err := p.writeStatus(ctx, state)
		if client.IgnoreNotFound(err) != nil {
			errs = append(errs, err)
		}
		if written != "" {
			last = written
		}
	}
	if last != "" {
		_, _ = p.clusterController.bindings.GetNotOlderThan(ctx, "", p.states[0].binding.Name, last)
	}
	return errs
}

// writeStatus stores what changes for one binding, and returns the resource version of that, or "".
func (p *scope) writeStatus(ctx context.Context, state *bindingState) (string, error) {
	binding := state.binding.DeepCopy()
	written := ""
	if export := state.inputs.export; export != nil {
		if change := extraAnnotationsPatch(binding.Annotations, export.Annotations); len(change) > 0 {
			if err := p.annotate(ctx, binding, change); err != nil {
				return "", err
			}
			written = binding.ResourceVersion
		}
	}
	before := binding.Status.DeepCopy()
	decide(binding, state.inputs)
	claims.UpdateStatus(binding)
	if equality.Semantic.DeepEqual(*before, binding.Status) {
		return written, nil
	}
	if err := p.cfg.Clients.Typed.Status().Update(ctx, binding); err != nil {
		return written, fmt.Errorf("writing the status of APIBinding %q of %q: %w", binding.Name, p.name, err)
	}
	if before.Phase != apisv1alpha2.APIBindingPhaseBound && binding.Status.Phase == apisv1alpha2.APIBindingPhaseBound {
		apiindex.ObserveBindingReady(p.cfg.ShardName, binding.CreationTimestamp, p.cfg.Clock.Now())
	}
	return binding.ResourceVersion, nil
}

// extraAnnotationsPatch returns what has to change for a binding to have the extra annotations of its export: a value, or nil for
// what has to go.
func extraAnnotationsPatch(has, wants map[string]string) map[string]any {
	change := map[string]any{}
	for key := range extraAnnotations(has) {
		if _, wanted := wants[key]; !wanted {
			change[key] = nil
		}
	}
	for key, value := range extraAnnotations(wants) {
		if had, ok := has[key]; !ok || had != value {
			change[key] = value
		}
	}
	return change
}

// annotate changes annotations of a binding, and takes in what became of it.
func (p *scope) annotate(ctx context.Context, binding *apisv1alpha2.APIBinding, change map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": binding.UID, "resourceVersion": binding.ResourceVersion, "annotations": change}})
	if err != nil {
		return err
	}
	if err := p.cfg.Clients.Typed.Patch(ctx, binding, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("copying annotations to APIBinding %q of %q: %w", binding.Name, p.name, err)
	}
	return nil
}
