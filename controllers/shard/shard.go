// Package shard reconciles the shards of an installation: RootShards, which also have the certificate authorities and the internal proxy,
// and Shards, which belong to a RootShard and may be deleted when they have no workspaces.
package shard

import (
	"context"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/dependencies"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/etcd"
	"github.com/atoll-dev/atoll/controllers/pki"
	"github.com/atoll-dev/atoll/controllers/reconcile"
	"github.com/atoll-dev/atoll/controllers/status"
	"github.com/atoll-dev/atoll/internal/drain"
	"github.com/atoll-dev/atoll/internal/rebalance"
)

// Registry is the registry of shards inside installations.
type Registry interface {
	// LogicalClusters counts the logical clusters on a shard whose data would be lost with it.
	LogicalClusters(ctx context.Context, root *operatorv1alpha1.RootShard, shard *operatorv1alpha1.Shard) (int, error)
	// Registered reports whether the shard is registered in the installation.
	Registered(ctx context.Context, root *operatorv1alpha1.RootShard, shard *operatorv1alpha1.Shard) (bool, error)
	// Cordon prevents the scheduling of new workspaces to the shard.
	Cordon(ctx context.Context, root *operatorv1alpha1.RootShard, shard *operatorv1alpha1.Shard) error
	// Workspaces counts the workspaces of an installation, on all its shards.
	Workspaces(ctx context.Context, root *operatorv1alpha1.RootShard) (int, error)
	// CordonAll prevents the scheduling of new workspaces to all shards of an installation.
	CordonAll(ctx context.Context, root *operatorv1alpha1.RootShard) error
	// Unregister deletes the object of the shard inside the installation.
	Unregister(ctx context.Context, root *operatorv1alpha1.RootShard, shard *operatorv1alpha1.Shard) error
	// Drain closes a shard for new workspaces, and starts to move some of those that it has, unless as many as may move do already.
	Drain(ctx context.Context, root *operatorv1alpha1.RootShard, shard *operatorv1alpha1.Shard, now time.Time) (drain.Progress, error)
	// StopDrain ends a drain: it gives up the moves that can be given up, and opens the shard again if the drain has closed it. It returns the
	// moves that have not ended.
	StopDrain(ctx context.Context, root *operatorv1alpha1.RootShard, shard *operatorv1alpha1.Shard) (running drain.Progress, err error)
	// Rebalance compares the shards of an installation, and begins as many moves between them as the options allow.
	Rebalance(ctx context.Context, root *operatorv1alpha1.RootShard, options rebalance.Options, now time.Time) (rebalance.Decision, error)
	// StopRebalancing gives up the moves of the rebalancer that have not taken over, and returns how many have not ended.
	StopRebalancing(ctx context.Context, root *operatorv1alpha1.RootShard) (running int, err error)
	// Migrations returns the names of the migrations from or to a shard that have not ended.
	Migrations(ctx context.Context, root *operatorv1alpha1.RootShard, shard *operatorv1alpha1.Shard) ([]string, error)
}

// +kubebuilder:rbac:groups=operator.kcp.io,resources=shards,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=shards/status,verbs=get;patch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=shards/finalizers,verbs=update

// NewShardReconciler returns the reconciler of Shards.
func NewShardReconciler(config reconcile.Config, registry Registry) *reconcile.Reconciler[*operatorv1alpha1.Shard] {
	return &reconcile.Reconciler[*operatorv1alpha1.Shard]{
		Config: config,
		Watches: reconcile.Watches[*operatorv1alpha1.Shard]{
			Name: "shard",
			For:  &operatorv1alpha1.Shard{},
			List: &operatorv1alpha1.ShardList{},
			Owns: slices.Concat(reconcile.ServerKinds(), reconcile.StoreKinds()),
			// Events of other Shards arrive through their Secrets.
			References: []client.Object{&operatorv1alpha1.RootShard{}, &operatorv1alpha1.CacheServer{}, &operatorv1alpha1.VirtualWorkspace{}, &operatorv1alpha1.Restore{}},
			Files:      reconcile.FileKinds(),
		},
		NewScope: func(shard *operatorv1alpha1.Shard, report *status.Report) reconcile.Scope {
			return &shardScope{
				scope: newScope(config, report, shard.Namespace, desired.NewShard(shard, nil).Server()),
				shard: shard, registry: registry, now: config.Now(),
			}
		},
	}
}

// shardScope is one Shard during a reconcile.
type shardScope struct {
	scope
	shard    *operatorv1alpha1.Shard
	registry Registry
	now      time.Time

	root  *operatorv1alpha1.RootShard // nil if there is no installation
	stops bool                        // for a Restore of this shard
}

func (s *shardScope) desiredShard() desired.Shard { return desired.NewShard(s.shard, s.root) }

// Observe implements reconcile.Scope.
func (s *shardScope) Observe(ctx context.Context) (err error) {
	if err := s.Deployment.Observe(ctx); err != nil {
		return err
	}
	s.root, s.Reference, err = dependencies.ResolveRootShard(ctx, s.Cluster, s.shard.Namespace, s.shard.Spec.RootShard)
	if err != nil {
		return err
	}
	// Before anything is validated: a mistake must not leave pods that write into volumes which a Restore fills.
	set, err := apply.Get[appsv1.StatefulSet](ctx, s.Cluster, s.shard.Namespace, etcd.StatefulSetName(s.desiredShard().AsOwner()))
	if err != nil {
		return err
	}
	restore, err := dependencies.ObserveShardRestore(ctx, s.Cluster, s.shard, set != nil || s.Deployment.Live() != nil)
	if err != nil {
		return err
	}
	s.awaits, s.replaced, s.stops = restore.Stopped, restore.Replaced, restore.Stopped.Type != ""
	if s.stops || s.Reference.State != status.Satisfied {
		return nil
	}
	if s.awaits = restore.Held; s.awaits.Type != "" {
		return nil
	}
	if s.Spec = validateShard(s.shard, s.root); s.Spec.State == status.Stalled {
		return nil
	}
	if s.awaits, err = s.awaitRestore(ctx, s.root); err != nil || s.awaits.Type != "" {
		return err
	}
	if conflict, err := dependencies.ResolveEtcdConflict(ctx, s.Cluster, s.shard); err != nil || conflict.Type != "" {
		s.Spec = conflict
		return err
	}
	return s.observe(ctx, s.desiredShard())
}

// Steps implements reconcile.Scope.
func (s *shardScope) Steps() []reconcile.Step {
	return append([]reconcile.Step{
		{Name: "resolve the RootShard", Run: s.ReportReference},
		{Name: "stop for the Restore", Run: s.stop},
		{Name: "await the Restore", Run: s.reportRestore},
		{Name: "add the finalizer", Run: s.addFinalizer},
		{Name: "drain the shard", Run: s.drain}, // before the steps that wait for a rollout
	}, s.EtcdServerSteps(s.issueCertificates)...)
}

// FinalizeSteps implements reconcile.Finalizer. The server runs while the Shard waits for the deletion of its workspaces, because the
// workspaces must be reachable for that.
func (s *shardScope) FinalizeSteps() []reconcile.Step {
	return append([]reconcile.Step{
		{Name: "resolve the RootShard", Run: s.ReportReference},
		{Name: "finalize", Run: s.finalize},
		{Name: "stop for the Restore", Run: s.stop},
		{Name: "await the Restore", Run: s.reportRestore},
	}, s.EtcdServerSteps(s.issueCertificates)...)
}

func (s *shardScope) addFinalizer(ctx context.Context) error {
	return s.Cluster.SetFinalizer(ctx, s.shard, operatorv1alpha1.FinalizerShard, true)
}

// issueCertificates applies the certificates, which the authorities of the installation sign.
func (s *shardScope) issueCertificates(ctx context.Context) error {
	objects := withEtcdCertificates(pki.Shard(s.desiredShard(), s.dependencies.Cache), s.desiredShard())
	s.Issued = slices.Concat(objects.Secrets(), pki.RootShard(s.root, s.dependencies.Cache).Secrets(), ofCacheServer(s.dependencies.Cache))
	return s.Report.SetResult(s.Cluster.ApplyCertificates(ctx, objects))
}

// SetStatus implements reconcile.Scope.
func (s *shardScope) SetStatus() {
	if !etcd.IsManaged(s.shard.Spec.Etcd) {
		s.Report.RemoveCondition(operatorv1alpha1.ConditionEtcdAvailable)
		s.Report.RemoveCondition(operatorv1alpha1.ConditionEtcdHealthy)
	}
	s.shard.Status.Etcd = s.Etcd.Status(s.shard.Status.Etcd)
	out := &s.shard.Status
	out.ObservedGeneration = s.shard.Generation
	out.Conditions = s.Report.Conditions(out.Conditions, s.shard.Generation)
	if s.root != nil {
		out.Endpoint = s.desiredShard().BaseURL()
	}
	out.Version = status.Version(s.Deployment.Live())
	out.Phase = operatorv1alpha1.ShardPhaseProvisioning
	switch {
	case s.shard.DeletionTimestamp != nil:
		out.Phase = operatorv1alpha1.ShardPhaseDeleting
	case meta.IsStatusConditionTrue(out.Conditions, operatorv1alpha1.ConditionAvailable):
		out.Phase = operatorv1alpha1.ShardPhaseRunning
	}
}
