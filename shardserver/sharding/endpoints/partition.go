package endpoints

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	topologyv1alpha1 "github.com/atoll-dev/atoll/api/topology/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// Partitions resolves the shards that slices are for.
type Partitions struct {
	reader *storage.Reader[*topologyv1alpha1.Partition]
}

// NewPartitions returns Partitions that read from a registry.
func NewPartitions(registry *storage.Registry) Partitions {
	return Partitions{storage.NewReader[*topologyv1alpha1.Partition](registry, topologyv1alpha1.Resource("partitions"))}
}

// Selector returns the selector of the shards of a partition in the context's logical cluster; without a name, it
// matches all. If the partition is missing or invalid the selector is nil, and the message says how to correct it.
func (p Partitions) Selector(ctx context.Context, name string) (selector labels.Selector, message string, err error) {
	if name == "" {
		return labels.Everything(), "", nil
	}
	partition, err := p.reader.Get(ctx, "", name)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Sprintf("Partition %q was not found; create it, or take it out of the slice", name), nil
	}
	if err != nil {
		return nil, "", err
	}
	if partition.Spec.Selector == nil {
		return labels.Everything(), "", nil
	}
	if selector, err = metav1.LabelSelectorAsSelector(partition.Spec.Selector); err != nil {
		return nil, fmt.Sprintf("Partition %q cannot be used: %v; correct its selector", name, err), nil
	}
	return selector, "", nil
}
