package endpoints

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// Consumers reports which shards have consumers of an export: this shard by its bindings, others by their
// ExportConsumers.
type Consumers struct {
	registry  *storage.Registry
	reader    *storage.Reader[*shardingv1alpha1.ExportConsumers]
	shardName string
}

// NewConsumers returns Consumers for the shard of that name.
func NewConsumers(registry *storage.Registry, shardName string) Consumers {
	reader := storage.NewReader[*shardingv1alpha1.ExportConsumers](registry, shardingv1alpha1.Resource("exportconsumers")).Global()
	return Consumers{registry, reader, shardName}
}

// ForExport returns a function that reports whether a shard has consumers of an export, and whether that is known.
// local is the result for this shard. Another shard that has published nothing has none, once the published objects are
// synced.
func (c Consumers) ForExport(ctx context.Context, export bindings.ExportKey, local bool) (func(shard string) (consumed, known bool), error) {
	all, err := c.reader.List(logicalcluster.With(ctx, export.Cluster), "", nil)
	if err != nil && !apierrors.IsServiceUnavailable(err) {
		return nil, fmt.Errorf("listing the shards with consumers of APIExport %q of %q: %w", export.Name, export.Cluster, err)
	}
	complete := err == nil && c.registry.RemoteStore().CheckSynced(c.reader.Resource()) == nil
	consuming := map[string]bool{}
	for _, consumers := range all {
		if consumers.Name == export.Name {
			consuming[consumers.Annotations[client.ShardAnnotation]] = true
		}
	}
	return func(shard string) (consumed, known bool) {
		if shard == c.shardName {
			return local, true
		}
		return consuming[shard], complete || consuming[shard]
	}, nil
}
