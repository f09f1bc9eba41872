package shardbase

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/etcd"
	"github.com/atoll-dev/atoll/controllers/etcdserver"
	"github.com/atoll-dev/atoll/controllers/status"
)

const condition = operatorv1alpha1.ConditionAvailable

// Server applies everything of a shard's server but its certificates and reports on its pods. Gates are the results about
// what it stands on. It returns the Deployment as it is now, or nil.
func Server(ctx context.Context, c apply.Cluster, report *status.Report, shard desired.Shard, dependencies desired.Dependencies, image desired.Image, gates ...status.Result) (*appsv1.Deployment, error) {
	result, err := provide(ctx, c, report, shard, dependencies, image, gates)
	return c.SettleWorkload(ctx, report, condition, shard.Namespace(), shard.Server(), result, err)
}

func provide(ctx context.Context, c apply.Cluster, report *status.Report, shard desired.Shard, dependencies desired.Dependencies, image desired.Image, gates []status.Result) (status.Result, error) {
	if err := c.Object(ctx, condition, desired.ShardService(shard)); err != nil {
		return status.Result{}, err
	}
	kubeconfigs, err := desired.ShardKubeconfigs(shard)
	if err != nil {
		return status.Result{}, err
	}
	for _, secret := range kubeconfigs {
		if err := c.Object(ctx, condition, secret); err != nil {
			return status.Result{}, err
		}
	}
	if err := bundles(ctx, c, shard); err != nil {
		return status.Result{}, err
	}
	connection := etcd.Connection(shard.AsOwner(), shard.Spec().Etcd)
	return c.Workload(ctx, report, condition, desired.ShardDeployment(shard, image, connection, dependencies), gates...)
}

// bundles merge the CAs that the user adds to those of the installation.
func bundles(ctx context.Context, c apply.Cluster, shard desired.Shard) error {
	for _, bundle := range []struct {
		name string
		own  desired.CA
		refs []*corev1.LocalObjectReference
	}{
		{desired.MergedCABundle(shard.Name()), desired.ServerCA, shard.CABundleRefs()},
		{desired.MergedClientCA(shard.Name()), desired.ClientCA, shard.ClientCABundleRefs()},
	} {
		if len(bundle.refs) == 0 {
			continue
		}
		into := desired.Bundle(bundle.name, shard.Namespace(), shard.SecretLabels(), shard.Owner())
		if err := c.Bundle(ctx, condition, into, desired.CASecret(shard.Root(), bundle.own), bundle.refs...); err != nil {
			return err
		}
	}
	return nil
}

// Store runs the store of a shard, where it is the operator's to run, and reports on its quorum. The result has no type
// where the store is the user's.
func Store(ctx context.Context, c apply.Cluster, report *status.Report, shard desired.Shard, image desired.Image) (status.Result, error) {
	if etcd.IsManaged(shard.Spec().Etcd) {
		if err := etcdserver.Reconcile(ctx, c, report, etcd.NewForShard(shard), image); err != nil {
			return status.Result{}, err
		}
		return report.Get(operatorv1alpha1.ConditionEtcdAvailable), nil
	}
	result, err := etcdserver.Abandoned(ctx, c, shard.AsOwner())
	if err == nil && result.Type != "" {
		report.Set(result)
	}
	return result, err
}
