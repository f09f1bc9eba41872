package authorization

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// Phases of a logical cluster that the steps distinguish.
const (
	phaseInitializing = string(corev1alpha1.LogicalClusterPhaseInitializing)
	phaseReady        = string(corev1alpha1.LogicalClusterPhaseReady)
	phaseInactive     = string(corev1alpha1.LogicalClusterPhaseInactive)
	phaseTerminating  = string(corev1alpha1.LogicalClusterPhaseTerminating)
	phaseDeleting     = string(corev1alpha1.LogicalClusterPhaseDeleting)
)

// state is the part of a LogicalCluster that the steps evaluate.
type state struct {
	exists, deleting          bool
	phase                     string
	annotations               map[string]string
	initializers, terminators []string // those that have not finished
}

// logicalClusters reads the LogicalCluster object of the context's logical cluster.
type logicalClusters struct {
	registry *storage.Registry
	reader   *storage.Reader[*corev1alpha1.LogicalCluster]
}

func newLogicalClusters(registry *storage.Registry) logicalClusters {
	return logicalClusters{registry, storage.NewReader[*corev1alpha1.LogicalCluster](registry, schema.GroupResource{
		Group: corev1alpha1.SchemeGroupVersion.Group, Resource: "logicalclusters",
	})}
}

func (c logicalClusters) state(ctx context.Context) (state, error) {
	cluster, err := readerFor(ctx, c.reader).Get(ctx, "", corev1alpha1.LogicalClusterName)
	if apierrors.IsNotFound(err) {
		return state{}, nil
	}
	if err != nil {
		return state{}, fmt.Errorf("reading its LogicalCluster: %w", err)
	}
	s := state{exists: true, deleting: cluster.DeletionTimestamp != nil, phase: string(cluster.Status.Phase), annotations: cluster.Annotations}
	for _, name := range cluster.Status.Initializers {
		s.initializers = append(s.initializers, string(name))
	}
	for _, name := range cluster.Status.Terminators {
		s.terminators = append(s.terminators, string(name))
	}
	return s, nil
}
