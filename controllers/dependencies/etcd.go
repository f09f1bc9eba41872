package dependencies

import (
	"context"
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/etcd"
	"github.com/atoll-dev/atoll/controllers/status"
)

// ResolveEtcdConflict checks that no other custom resource of any namespace stores its data at the same location of an etcd. The result
// has no type if none does.
func ResolveEtcdConflict(ctx context.Context, c apply.Cluster, object client.Object) (status.Result, error) {
	var self *etcd.Usage
	usages, err := listEtcdUsages(ctx, c)
	if err != nil {
		return status.Result{}, fmt.Errorf("comparing the etcd of %s with those of others: %w", object.GetName(), err)
	}
	for i := range usages {
		if usages[i].Object.GetUID() == object.GetUID() && usages[i].Object.GetName() == object.GetName() && usages[i].Object.GetNamespace() == object.GetNamespace() {
			self = &usages[i]
		}
	}
	if self == nil {
		return status.Result{}, nil // deleted in the meantime
	}
	conflict := etcd.FindConflict(*self, usages)
	if conflict == nil {
		return status.Result{}, nil
	}
	return status.Stall(operatorv1alpha1.ConditionSpecHonored, "EtcdInUse",
		"%s keeps its data in the same etcd (%s) below the same prefix (%s), where each would overwrite the other's: set another etcd.prefix, or the endpoints of another etcd",
		conflict.With, strings.Join(conflict.Location.Servers, ", "), conflict.Location.Prefix), nil
}

func listEtcdUsages(ctx context.Context, c apply.Cluster) ([]etcd.Usage, error) {
	var roots operatorv1alpha1.RootShardList
	var shards operatorv1alpha1.ShardList
	var caches operatorv1alpha1.CacheServerList
	for _, list := range []client.ObjectList{&roots, &shards, &caches} {
		if err := c.List(ctx, list); err != nil {
			return nil, err
		}
	}
	var out []etcd.Usage
	for i := range roots.Items {
		out = append(out, etcd.RootShardUsage(&roots.Items[i]))
	}
	for i := range shards.Items {
		out = append(out, etcd.ShardUsage(&shards.Items[i]))
	}
	for i := range caches.Items {
		out = append(out, etcd.CacheServerUsage(&caches.Items[i]))
	}
	return out, nil
}
