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
	"github.com/atoll-dev/atoll/controllers/status"
	"github.com/atoll-dev/atoll/controllers/workload"
)

// server is what RootShards and Shards have in common during a reconcile: the server of a shard with its etcd.
type server struct {
	config reconcile.Config
	report *status.Report

	dependencies desired.Dependencies
	references   status.Result // of what the spec names; without a type if all of it exists
	etcd         etcdserver.Store
	deployment   workload.Deployment
}

func newServer(config reconcile.Config, report *status.Report, namespace, name string) server {
	return server{
		config: config, report: report,
		etcd:       etcdserver.Store{Cluster: config.Cluster, Gate: config.Gate, Report: report},
		deployment: config.NewDeployment(report, operatorv1alpha1.ConditionAvailable, namespace, name),
	}
}

// observe reads what a shard with a valid spec depends on.
func (s *server) observe(ctx context.Context, shard desired.Shard) (err error) {
	if s.dependencies, s.references, err = dependencies.ResolveDependencies(ctx, s.config.Cluster, shard); err != nil {
		return err
	}
	if etcd.IsManaged(shard.Spec().Etcd) {
		err = s.etcd.ObserveManaged(ctx, etcd.NewForShard(shard), s.config.Image)
	} else {
		err = s.etcd.ObserveAbandoned(ctx, shard.AsOwner())
	}
	if err != nil {
		return err
	}
	connection := etcd.Connection(shard.AsOwner(), shard.Spec().Etcd)
	rendered, err := shard.Render(s.config.Image, connection, s.dependencies)
	if err != nil {
		return err
	}
	return s.deployment.SetDesired(ctx, rendered)
}

// checkReferences reports on what the spec names.
func (s *server) checkReferences(context.Context) error {
	s.report.SetWorst(s.references)
	return nil
}

// prepare makes the server wait for its references, certificates and etcd. It does not wait for the root shard: the
// server itself does.
func (s *server) prepare(context.Context) error {
	s.deployment.Prepare(s.references, s.report.Get(operatorv1alpha1.ConditionCertificatesReady), s.report.Get(operatorv1alpha1.ConditionEtcdAvailable))
	return nil
}

// withEtcdCertificates adds the certificates of a managed etcd.
func withEtcdCertificates(objects pki.Objects, shard desired.Shard) pki.Objects {
	if etcd.IsManaged(shard.Spec().Etcd) {
		objects.Append(etcd.NewForShard(shard).Certificates())
	}
	return objects
}
