// Package rootshard reconciles RootShards: it gathers what there is, applies what package desired, pki and etcd compute,
// and writes the status once. What an object looks like is decided there, not here.
package rootshard

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/etcd"
	"github.com/atoll-dev/atoll/controllers/ladder"
	"github.com/atoll-dev/atoll/controllers/pki"
	"github.com/atoll-dev/atoll/controllers/proxyserver"
	"github.com/atoll-dev/atoll/controllers/shardbase"
	"github.com/atoll-dev/atoll/controllers/status"
)

// Reconciler brings RootShards to their spec.
type Reconciler struct {
	Cluster  apply.Cluster
	Recorder events.EventRecorder
	Image    desired.Image // what runs where a spec names no image
}

// +kubebuilder:rbac:groups=operator.kcp.io,resources=rootshards,verbs=get;list;watch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=rootshards/status,verbs=get;patch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=rootshards/finalizers,verbs=update
// +kubebuilder:rbac:groups="",resources=secrets;configmaps;services,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=apps,resources=deployments;statefulsets,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=cert-manager.io,resources=certificates;issuers,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=cert-manager.io,resources=clusterissuers,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// scope is one RootShard as it was observed, and what was found about it.
type scope struct {
	root   *operatorv1alpha1.RootShard
	before *operatorv1alpha1.RootShard
	report status.Report

	references   status.Result // of what the spec names; without a type when all is there
	dependencies desired.Dependencies
	certificates status.Result
	store        status.Result
	deployment   *appsv1.Deployment // of the server, nil while there is none
}

func (s *scope) shard() desired.Shard { return desired.NewRootShard(s.root) }

// Reconcile brings one RootShard to its spec. Each step stands on those before it; one that has to wait leaves its
// result, and those after it say that they wait for it.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	root, err := ladder.Read[operatorv1alpha1.RootShard](ctx, r.Cluster, req)
	if err != nil || root == nil {
		return ctrl.Result{}, err
	}
	s := &scope{root: root, before: root.DeepCopy()}
	if root.DeletionTimestamp == nil { // else owner references do the rest
		err = ladder.Climb(ctx, s, r.membership, r.specification, r.surroundings, r.issue, r.etcd, r.server, r.internalProxy)
	}
	s.report.Transient = err
	computeStatus(s)
	return ladder.Look{Cluster: r.Cluster, Recorder: r.Recorder, Before: s.before, Object: s.root}.End(ctx, &s.report, err)
}

// specification ends the ladder where nothing can come of the spec. What runs already is left alone, and looked at.
func (r *Reconciler) specification(ctx context.Context, s *scope) (err error) {
	result := validateSpec(s.root)
	s.report.Set(result)
	if result.State != status.Stalled {
		return nil
	}
	s.deployment, err = ladder.Leave(ctx, r.Cluster, &s.report, s.root.Namespace, desired.RootShardServer(s.root))
	return err
}

// membership lists the Shards of the installation.
func (r *Reconciler) membership(ctx context.Context, s *scope) error {
	names, err := shardbase.Shards(ctx, r.Cluster, s.root)
	if err != nil {
		return err
	}
	s.root.Status.Shards = nil
	for _, name := range names {
		s.root.Status.Shards = append(s.root.Status.Shards, operatorv1alpha1.ShardMember{Name: name})
	}
	return nil
}

// surroundings looks for what the spec names, and for the other shards of the installation.
func (r *Reconciler) surroundings(ctx context.Context, s *scope) (err error) {
	s.dependencies, s.references, err = shardbase.OfShard(ctx, r.Cluster, s.shard())
	s.report.SetWorst(s.references)
	return err
}

// issue makes the PKI.
func (r *Reconciler) issue(ctx context.Context, s *scope) error {
	objects := pki.RootShard(s.root, s.dependencies.Cache)
	if etcd.IsManaged(s.root.Spec.Etcd) {
		objects.Append(etcd.NewForShard(s.shard()).Certificates())
	}
	result, err := r.Cluster.CertificatesWithCA(ctx, s.root.Namespace, objects, s.root.Spec.Certificates)
	if err := apply.Settle(&s.report, result, err); err != nil {
		return err
	}
	s.certificates = s.report.Get(operatorv1alpha1.ConditionCertificatesReady)
	return nil
}

// etcd runs the store, where it is the operator's to run, and reports on its quorum.
func (r *Reconciler) etcd(ctx context.Context, s *scope) (err error) {
	s.store, err = shardbase.Store(ctx, r.Cluster, &s.report, s.shard(), r.Image)
	return err
}

// server makes the root shard's own server, with the files it reads.
func (r *Reconciler) server(ctx context.Context, s *scope) (err error) {
	s.deployment, err = shardbase.Server(ctx, r.Cluster, &s.report, s.shard(), s.dependencies, r.Image, s.references, s.certificates, s.store)
	return err
}

// internalProxy makes the proxy through which the operator reaches workspaces.
func (r *Reconciler) internalProxy(ctx context.Context, s *scope) error {
	_, err := proxyserver.Reconcile(ctx, r.Cluster, &s.report, operatorv1alpha1.ConditionProxyAvailable,
		s.root, desired.NewInternalProxy(s.root), r.Image, s.certificates)
	return err
}
