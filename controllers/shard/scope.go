package shard

import (
	"context"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/dependencies"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/etcd"
	"github.com/atoll-dev/atoll/controllers/etcdserver"
	"github.com/atoll-dev/atoll/controllers/pki"
	"github.com/atoll-dev/atoll/controllers/reconcile"
	"github.com/atoll-dev/atoll/controllers/server"
	"github.com/atoll-dev/atoll/controllers/status"
)

// scope is the common part of RootShards and Shards during a reconcile: the server of a shard with its etcd.
type scope struct {
	server.Scope
	dependencies desired.Dependencies
	awaits       status.Result // why the shard does not start before a Restore; without a type if it may
	replaced     string        // the ID of the etcd cluster whose data a Restore of this shard has replaced
}

func newScope(config reconcile.Config, report *status.Report, namespace, name string) scope {
	return scope{Scope: server.NewScope(config, report, namespace, name)}
}

// observe reads the dependencies of a shard with a valid spec.
func (s *scope) observe(ctx context.Context, shard desired.Shard) (err error) {
	if s.dependencies, s.References, err = dependencies.ResolveDependencies(ctx, s.Cluster, shard); err != nil {
		return err
	}
	if etcd.IsManaged(shard.Spec().Etcd) {
		err = s.Etcd.ObserveManaged(ctx, etcdserver.Input{
			Cluster: etcd.NewForShard(shard), Image: s.Image, Served: s.Deployment.Live() != nil, Annotations: shard.Annotations(), Status: shard.EtcdStatus(), Replaced: s.replaced,
		})
	} else {
		err = s.Etcd.ObserveAbandoned(ctx, shard.AsOwner())
	}
	if err != nil {
		return err
	}
	s.CheckEndpoints(ctx, shard.Namespace(), shard.Spec().Etcd)
	connection := etcd.Connection(shard.AsOwner(), shard.Spec().Etcd)
	connection.Owner = shard.EtcdOwner(s.ClusterID)
	rendered, err := shard.Render(s.Image, connection, s.dependencies)
	if err != nil {
		return err
	}
	return s.Deployment.SetDesired(ctx, rendered)
}

// awaitRestore returns why a shard that has not started waits for a Restore of its installation.
func (s *scope) awaitRestore(ctx context.Context, root *operatorv1alpha1.RootShard) (status.Result, error) {
	if s.Deployment.Live() != nil {
		return status.Result{}, nil
	}
	return dependencies.AwaitRestore(ctx, s.Cluster, root)
}

// reportRestore stops before anything of the shard exists while it waits for a Restore: certificate authorities are restored, too.
func (s *scope) reportRestore(context.Context) error {
	if s.awaits.Type == "" {
		return nil
	}
	s.Report.Set(s.awaits)
	return reconcile.ErrStop
}

// ofCacheServer returns the Secrets that cert-manager creates for the CacheServer of a shard.
func ofCacheServer(cache *operatorv1alpha1.CacheServer) []string {
	if cache == nil {
		return nil
	}
	return pki.CacheServer(cache, nil).Secrets()
}

// withEtcdCertificates adds the certificates of a managed etcd.
func withEtcdCertificates(objects pki.Objects, shard desired.Shard) pki.Objects {
	if etcd.IsManaged(shard.Spec().Etcd) {
		objects.Append(etcd.NewForShard(shard).Certificates())
	}
	return objects
}
