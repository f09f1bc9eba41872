package shard

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/dependencies"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/etcd"
	"github.com/atoll-dev/atoll/controllers/pki"
	"github.com/atoll-dev/atoll/controllers/reconcile"
	"github.com/atoll-dev/atoll/controllers/status"
	"github.com/atoll-dev/atoll/controllers/workload"
)

// +kubebuilder:rbac:groups=operator.kcp.io,resources=rootshards,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=rootshards/status,verbs=get;patch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=rootshards/finalizers,verbs=update
// +kubebuilder:rbac:groups="",resources=secrets;configmaps;services,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=list
// +kubebuilder:rbac:groups=apps,resources=deployments;statefulsets,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=cert-manager.io,resources=certificates;issuers,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=cert-manager.io,resources=clusterissuers,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// NewRootShardReconciler returns the reconciler of RootShards.
func NewRootShardReconciler(config reconcile.Config, registry Registry) *reconcile.Reconciler[*operatorv1alpha1.RootShard] {
	return &reconcile.Reconciler[*operatorv1alpha1.RootShard]{
		Config: config,
		Watches: reconcile.Watches[*operatorv1alpha1.RootShard]{
			Name:       "rootshard",
			For:        &operatorv1alpha1.RootShard{},
			List:       &operatorv1alpha1.RootShardList{},
			Owns:       slices.Concat(reconcile.ServerKinds(), reconcile.StoreKinds()),
			References: []client.Object{&operatorv1alpha1.Shard{}, &operatorv1alpha1.CacheServer{}, &operatorv1alpha1.VirtualWorkspace{}, &operatorv1alpha1.Restore{}},
			Files:      reconcile.FileKinds(),
		},
		NewScope: func(root *operatorv1alpha1.RootShard, report *status.Report) reconcile.Scope {
			return &rootShardScope{
				scope: newScope(config, report, root.Namespace, desired.NewRootShard(root).Server()),
				root:  root, registry: registry, now: config.Now(),
				shards: root.Status.Shards, cas: map[desired.CA]*operatorv1alpha1.CertificateAuthorityStatus{},
				proxy: config.NewDeployment(report, operatorv1alpha1.ConditionProxyAvailable, root.Namespace, desired.NewInternalProxy(root).Server()),
			}
		},
	}
}

// rootShardScope is one RootShard during a reconcile.
type rootShardScope struct {
	scope
	root     *operatorv1alpha1.RootShard
	registry Registry
	now      time.Time

	shards   []operatorv1alpha1.ShardMember                              // of the installation
	cas      map[desired.CA]*operatorv1alpha1.CertificateAuthorityStatus // the new records of its keys
	caSource status.Result
	proxy    workload.Deployment // the internal proxy, through which the operator reaches workspaces
}

// Observe implements reconcile.Scope.
func (s *rootShardScope) Observe(ctx context.Context) error {
	if err := s.Deployment.Observe(ctx); err != nil {
		return err
	}
	names, err := dependencies.ListShards(ctx, s.Cluster, s.root)
	if err != nil {
		return err
	}
	s.shards = nil
	for _, name := range names {
		s.shards = append(s.shards, operatorv1alpha1.ShardMember{Name: name})
	}
	if s.Spec = validateRootShard(s.root); s.Spec.State == status.Stalled {
		return nil
	}
	if s.awaits, err = s.awaitRestore(ctx, s.root); err != nil || s.awaits.Type != "" {
		return err
	}
	if conflict, err := dependencies.ResolveEtcdConflict(ctx, s.Cluster, s.root); err != nil || conflict.Type != "" {
		s.Spec = conflict
		return err
	}
	if err := s.observe(ctx, desired.NewRootShard(s.root)); err != nil {
		return err
	}
	s.caSource, err = s.Cluster.ObserveCASource(ctx, s.root.Namespace, s.root.Spec.Certificates.Certificates)
	if err != nil {
		return err
	}
	if err := s.proxy.Observe(ctx); err != nil {
		return err
	}
	rendered, err := desired.NewInternalProxy(s.root).Render(s.Image)
	if err != nil {
		return err
	}
	return s.proxy.SetDesired(ctx, rendered)
}

// Steps implements reconcile.Scope.
func (s *rootShardScope) Steps() []reconcile.Step {
	return append([]reconcile.Step{
		{Name: "await the Restore", Run: s.reportRestore},
		{Name: "add the finalizer", Run: s.addFinalizer},
		{Name: "re-key the certificate authorities", Run: s.rekey}, // before the steps that wait for a rollout, as the next
		{Name: "rebalance the shards", Run: s.rebalance},
	}, s.serverSteps()...)
}

// FinalizeSteps implements reconcile.Finalizer. The servers run while the RootShard waits for the deletion of the installation's
// workspaces, because the workspaces must be reachable for that.
func (s *rootShardScope) FinalizeSteps() []reconcile.Step {
	return append([]reconcile.Step{
		{Name: "finalize", Run: s.finalize},
		{Name: "await the Restore", Run: s.reportRestore},
		{Name: "find the certificate authorities", Run: s.findUnknownCAs},
	}, s.serverSteps()...)
}

func (s *rootShardScope) serverSteps() []reconcile.Step {
	return append(s.EtcdServerSteps(s.issueCertificates), []reconcile.Step{
		{Name: "configure the internal proxy", Run: s.proxy.Configure},
		{Name: "prepare the internal proxy", Run: s.prepareProxy},
		{Name: "admit the rollout of the internal proxy", Run: s.proxy.AdmitRollout},
		{Name: "apply the internal proxy", Run: s.proxy.Apply},
	}...)
}

// issueCertificates applies the certificate authorities of the installation and the certificates of its root shard.
func (s *rootShardScope) issueCertificates(ctx context.Context) error {
	objects := withEtcdCertificates(pki.RootShard(s.root, s.dependencies.Cache), desired.NewRootShard(s.root))
	s.Issued = append(objects.Secrets(), ofCacheServer(s.dependencies.Cache)...)
	return s.Report.SetResult(s.Cluster.ApplyCertificatesWithCA(ctx, objects, s.caSource))
}

func (s *rootShardScope) prepareProxy(context.Context) error {
	s.proxy.Prepare(s.Report.Get(operatorv1alpha1.ConditionCertificatesReady))
	return nil
}

// SetStatus implements reconcile.Scope.
func (s *rootShardScope) SetStatus() {
	out := &s.root.Status
	out.ObservedGeneration = s.root.Generation
	if !etcd.IsManaged(s.root.Spec.Etcd) {
		s.Report.RemoveCondition(operatorv1alpha1.ConditionEtcdAvailable)
		s.Report.RemoveCondition(operatorv1alpha1.ConditionEtcdHealthy)
	}
	s.root.Status.Etcd = s.Etcd.Status(s.root.Status.Etcd)
	out.Conditions = s.Report.Conditions(out.Conditions, s.root.Generation)
	out.Shards, out.Endpoint, out.Version = s.shards, desired.RootShardBaseURL(s.root), status.Version(s.Deployment.Live())
	s.recordCAs()
	out.ShardCount = int32(1 + len(s.shards))
	out.Phase = operatorv1alpha1.RootShardPhaseProvisioning
	switch {
	case s.root.DeletionTimestamp != nil:
		out.Phase = operatorv1alpha1.RootShardPhaseDeleting
	case meta.IsStatusConditionTrue(out.Conditions, operatorv1alpha1.ConditionAvailable):
		out.Phase = operatorv1alpha1.RootShardPhaseRunning
	}
}
