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

// writeReservations stores the reservations unless they changed since observe.
func (s *clusterState) writeReservations(ctx context.Context) error {
	written, err := patchReservations(ctx, s.cfg.Clients.Typed, s.cluster, s.reservations)
	if err != nil {
		return err
	}
	_, _ = s.clusters.GetNotOlderThan(ctx, "", written.Name, written.ResourceVersion) // best effort: the next reconciliation should read them
	return nil
}

// patchReservations writes the reservations of the context's logical cluster. It fails with a Conflict if they are no
// longer those of cluster; other changes of the LogicalCluster do not matter.
func patchReservations(ctx context.Context, typed client.Client, cluster *corev1alpha1.LogicalCluster, desired reservations) (*corev1alpha1.LogicalCluster, error) {
	const path = "/metadata/annotations/internal.apis.kcp.io~1resource-bindings"
	current, exists := cluster.Annotations[corev1alpha1.ResourceBindingsAnnotationKey]
	var patch client.Patch
	if exists {
		operations, err := json.Marshal([]map[string]any{
			{"op": "test", "path": path, "value": current},
			{"op": "replace", "path": path, "value": desired.String()},
		})
		if err != nil {
			return nil, err
		}
		patch = client.RawPatch(types.JSONPatchType, operations)
	} else {
		merged, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"resourceVersion": cluster.ResourceVersion,
			"annotations":     map[string]string{corev1alpha1.ResourceBindingsAnnotationKey: desired.String()},
		}})
		if err != nil {
			return nil, err
		}
		patch = client.RawPatch(types.MergePatchType, merged)
	}
	written := &corev1alpha1.LogicalCluster{}
	written.Name = corev1alpha1.LogicalClusterName
	err := typed.Patch(ctx, written, patch)
	if exists && apierrors.IsInvalid(err) { // the "test" operation failed
		return nil, apierrors.NewConflict(logicalClusters, written.Name, err)
	}
	if err != nil {
		return nil, fmt.Errorf("writing the resource reservations of logical cluster %q: %w", logicalcluster.Of(cluster), err)
	}
	return written, nil
}

// writeStatuses writes the status of every binding that changed.
func (s *clusterState) writeStatuses(ctx context.Context) (errs []error) {
	var last string
	for _, state := range s.states {
		written, err := s.writeStatus(ctx, state)
		if client.IgnoreNotFound(err) != nil {
			errs = append(errs, err)
		}
		if written != "" {
			last = written
		}
	}
	if last != "" {
		_, _ = s.clusterController.bindings.GetNotOlderThan(ctx, "", s.states[0].binding.Name, last)
	}
	return errs
}

// writeStatus copies the extra annotations of the export to a binding and writes its status, each if changed. It returns
// the resource version of the last write, or "".
func (s *clusterState) writeStatus(ctx context.Context, state *bindingState) (string, error) {
	binding := state.binding.DeepCopy()
	written := ""
	if export := state.inputs.export; export != nil {
		if change := extraAnnotationsPatch(binding.Annotations, export.Annotations); len(change) > 0 {
			if err := s.annotate(ctx, binding, change); err != nil {
				return "", err
			}
			written = binding.ResourceVersion
		}
	}
	oldStatus := binding.Status.DeepCopy()
	decide(binding, state.inputs)
	claims.UpdateStatus(binding)
	if equality.Semantic.DeepEqual(*oldStatus, binding.Status) {
		return written, nil
	}
	if err := s.cfg.Clients.Typed.Status().Update(ctx, binding); err != nil {
		return written, fmt.Errorf("writing the status of APIBinding %q of %q: %w", binding.Name, s.name, err)
	}
	if oldStatus.Phase != apisv1alpha2.APIBindingPhaseBound && binding.Status.Phase == apisv1alpha2.APIBindingPhaseBound {
		apiindex.ObserveBindingReady(s.cfg.ShardName, binding.CreationTimestamp, s.cfg.Clock.Now())
	}
	return binding.ResourceVersion, nil
}

// extraAnnotationsPatch returns the merge patch of annotations that gives a binding the extra annotations of its export;
// nil values remove annotations.
func extraAnnotationsPatch(current, desired map[string]string) map[string]any {
	change := map[string]any{}
	for key := range extraAnnotations(current) {
		if _, required := desired[key]; !required {
			change[key] = nil
		}
	}
	for key, value := range extraAnnotations(desired) {
		if previous, ok := current[key]; !ok || previous != value {
			change[key] = value
		}
	}
	return change
}

// annotate patches annotations of a binding and updates it with the result.
func (s *clusterState) annotate(ctx context.Context, binding *apisv1alpha2.APIBinding, change map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": binding.UID, "resourceVersion": binding.ResourceVersion, "annotations": change}})
	if err != nil {
		return err
	}
	if err := s.cfg.Clients.Typed.Patch(ctx, binding, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("copying annotations to APIBinding %q of %q: %w", binding.Name, s.name, err)
	}
	return nil
}
