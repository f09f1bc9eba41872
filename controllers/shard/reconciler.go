// Package shard reconciles Shards: shards beside the root shard of an installation. Most of a shard's server is as for a
// RootShard, and in package shardbase; here is what belongs to a Shard alone: whose it is, and when it may go.
package shard

import (
	"context"
	"errors"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/etcd"
	"github.com/atoll-dev/atoll/controllers/ladder"
	"github.com/atoll-dev/atoll/controllers/pki"
	"github.com/atoll-dev/atoll/controllers/shardbase"
	"github.com/atoll-dev/atoll/controllers/status"
)

// Reconciler brings Shards to their spec.
type Reconciler struct {
	Cluster  apply.Cluster
	Recorder events.EventRecorder
	Image    desired.Image // what runs where a spec names no image
	Shards   Shards
	Now      func() time.Time
}

// Shards asks installations about their shards.
type Shards interface {
	// LogicalClusters counts those on a shard that somebody would miss.
	LogicalClusters(ctx context.Context, root *operatorv1alpha1.RootShard, shard *operatorv1alpha1.Shard) (int, error)
	// Registered says whether the installation knows the shard.
	Registered(ctx context.Context, root *operatorv1alpha1.RootShard, shard *operatorv1alpha1.Shard) (bool, error)
	// Cordon keeps new ones off the shard.
	Cordon(ctx context.Context, root *operatorv1alpha1.RootShard, shard *operatorv1alpha1.Shard) error
	// Unregister removes what stands for the shard inside the installation.
	Unregister(ctx context.Context, root *operatorv1alpha1.RootShard, shard *operatorv1alpha1.Shard) error
}

// +kubebuilder:rbac:groups=operator.kcp.io,resources=shards,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=shards/status,verbs=get;patch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=shards/finalizers,verbs=update

// scope is one Shard as it was observed, and what was found about it.
type scope struct {
	shard  *operatorv1alpha1.Shard
	root   *operatorv1alpha1.RootShard // nil while the reference does not resolve
	before operatorv1alpha1.ShardStatus
	now    time.Time
	report status.Report

	references   status.Result // of what the spec names; without a type when all is there
	dependencies desired.Dependencies
	certificates status.Result
	store        status.Result
	deployment   *appsv1.Deployment
}

func (s *scope) member() desired.Shard { return desired.NewShard(s.shard, s.root) }

// Reconcile brings one Shard to its spec. Each step stands on those before it. While a Shard waits to be deleted its
// server is kept up: what is on it must be reachable to be taken off.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	shard, err := ladder.Read[operatorv1alpha1.Shard](ctx, r.Cluster, req)
	if err != nil || shard == nil {
		return ctrl.Result{}, err
	}
	s := &scope{shard: shard, before: *shard.Status.DeepCopy(), now: r.Now()}
	err = ladder.Climb(ctx, s, r.rootShard, r.deletion, r.hold, r.specification, r.surroundings, r.issue, r.etcd, r.server)
	if errors.Is(err, errGone) {
		return ctrl.Result{}, nil
	}
	s.report.Transient = err
	computeStatus(s)
	before := s.shard.DeepCopy() // with the finalizer, which may have been added on the way
	before.Status = s.before
	result, err := ladder.Look{Cluster: r.Cluster, Recorder: r.Recorder, Before: before, Object: s.shard}.End(ctx, &s.report, err)
	if err == nil && shard.DeletionTimestamp != nil {
		// What ends the wait happens inside the installation, where nothing tells the operator.
		result.RequeueAfter = deletionRequeue
	}
	return result, err
}

// rootShard resolves the reference to the installation.
func (r *Reconciler) rootShard(ctx context.Context, s *scope) error {
	root, result, err := shardbase.RootShard(ctx, r.Cluster, s.shard.Namespace, s.shard.Spec.RootShard)
	if err != nil {
		return err
	}
	s.root = root
	s.report.Set(result)
	return nil
}

// specification ends the ladder where nothing can come of the spec, or no installation is there to belong to. What runs
// already is left alone, and looked at.
func (r *Reconciler) specification(ctx context.Context, s *scope) (err error) {
	if s.root != nil {
		result := validateSpec(s.shard, s.root)
		s.report.Set(result)
		if result.State != status.Stalled {
			return nil
		}
	}
	s.deployment, err = ladder.Leave(ctx, r.Cluster, &s.report, s.shard.Namespace, desired.NewShard(s.shard, nil).Server())
	return err
}

// surroundings looks for what the spec names, and for the other shards of the installation.
func (r *Reconciler) surroundings(ctx context.Context, s *scope) (err error) {
	s.dependencies, s.references, err = shardbase.OfShard(ctx, r.Cluster, s.member())
	s.report.SetWorst(s.references)
	return err
}

// issue makes the certificates, below the authorities of the installation.
func (r *Reconciler) issue(ctx context.Context, s *scope) error {
	objects := pki.Shard(s.member(), s.dependencies.Cache)
	if etcd.IsManaged(s.shard.Spec.Etcd) {
		objects.Append(etcd.NewForShard(s.member()).Certificates())
	}
	result, err := r.Cluster.Certificates(ctx, objects)
	if err := apply.Settle(&s.report, result, err); err != nil {
		return err
	}
	s.certificates = s.report.Get(operatorv1alpha1.ConditionCertificatesReady)
	return nil
}

// etcd runs the store, where it is the operator's to run, and reports on its quorum.
func (r *Reconciler) etcd(ctx context.Context, s *scope) (err error) {
	s.store, err = shardbase.Store(ctx, r.Cluster, &s.report, s.member(), r.Image)
	return err
}

// server makes the shard's server, with the files it reads. It does not wait for the root shard: the server does, and
// says so.
func (r *Reconciler) server(ctx context.Context, s *scope) (err error) {
	s.deployment, err = shardbase.Server(ctx, r.Cluster, &s.report, s.member(), s.dependencies, r.Image, s.references, s.certificates, s.store)
	return err
}

func computeStatus(s *scope) {
	out := &s.shard.Status
	out.ObservedGeneration = s.shard.Generation
	out.Conditions = s.report.Conditions(out.Conditions, s.shard.Generation)
	if !etcd.IsManaged(s.shard.Spec.Etcd) && s.store.Type == "" {
		meta.RemoveStatusCondition(&out.Conditions, operatorv1alpha1.ConditionEtcdAvailable)
	}
	if s.root != nil {
		out.Endpoint = s.member().BaseURL()
	}
	out.Version = status.Version(s.deployment)
	out.Phase = operatorv1alpha1.ShardPhaseProvisioning
	switch {
	case s.shard.DeletionTimestamp != nil:
		out.Phase = operatorv1alpha1.ShardPhaseDeleting
	case meta.IsStatusConditionTrue(out.Conditions, operatorv1alpha1.ConditionAvailable):
		out.Phase = operatorv1alpha1.ShardPhaseRunning
	}
}
