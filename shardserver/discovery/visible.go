package discovery

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// Visible is the rule that says which logical clusters show a resource that is compiled in: all show all, but for
// shards, which are where the reference binds them. Requests over all logical clusters see what any shows.
func Visible(ctx context.Context, resource schema.GroupResource) bool {
	if resource != corev1alpha1.Resource("shards") {
		return true
	}
	cluster, _ := logicalcluster.From(ctx)
	return cluster == logicalcluster.Root || cluster == logicalcluster.Shard || cluster.IsWildcard()
}
