package drain

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// List reads what is on a shard with a client of all its logical clusters, which needs system:masters of that shard.
func List(ctx context.Context, all dynamic.Interface) (Inventory, error) {
	var found Inventory
	err := forEach(ctx, all.Resource(corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters")), func(object *unstructured.Unstructured) error {
		cluster := &corev1alpha1.LogicalCluster{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, cluster); err != nil {
			return err
		}
		found.LogicalClusters = append(found.LogicalClusters, LogicalCluster{
			Name: logicalcluster.Of(cluster), Path: cluster.Annotations[corev1alpha1.LogicalClusterPathAnnotationKey],
			Owner: cluster.Spec.Owner, Phase: cluster.Status.Phase, Deleting: cluster.DeletionTimestamp != nil,
		})
		return nil
	})
	if err != nil {
		return Inventory{}, fmt.Errorf("reading the logical clusters of the shard: %w", err)
	}
	return found, nil
}
