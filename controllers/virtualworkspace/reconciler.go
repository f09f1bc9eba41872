// Package virtualworkspace reconciles VirtualWorkspaces: servers of virtual workspaces beside a shard. What an object looks
// like is decided in packages desired and pki, not here; that a shard publishes the server's address is said on the shard.
package virtualworkspace

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/ladder"
	"github.com/atoll-dev/atoll/controllers/pki"
	"github.com/atoll-dev/atoll/controllers/shardbase"
	"github.com/atoll-dev/atoll/controllers/status"
)

// Reconciler brings VirtualWorkspaces to their spec.
type Reconciler struct {
	Cluster  apply.Cluster
	Recorder events.EventRecorder
	Image    desired.Image // what runs where a spec names no image
}

// +kubebuilder:rbac:groups=operator.kcp.io,resources=virtualworkspaces,verbs=get;list;watch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=virtualworkspaces/status,verbs=get;patch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=virtualworkspaces/finalizers,verbs=update

// scope is one VirtualWorkspace as it was observed, and what was found about it.
type scope struct {
	virtualWorkspace *operatorv1alpha1.VirtualWorkspace
	before           *operatorv1alpha1.VirtualWorkspace
	target           *desired.Shard // nil while the reference does not resolve
	report           status.Report

	references   status.Result // of what else is named; without a type when all is there
	cache        *operatorv1alpha1.CacheServer
	certificates status.Result
	deployment   *appsv1.Deployment
}

func (s *scope) server() desired.VirtualWorkspace {
	return desired.NewVirtualWorkspace(s.virtualWorkspace, *s.target)
}

// Reconcile brings one VirtualWorkspace to its spec. Each step stands on those before it.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	virtualWorkspace, err := ladder.Read[operatorv1alpha1.VirtualWorkspace](ctx, r.Cluster, req)
	if err != nil || virtualWorkspace == nil {
		return ctrl.Result{}, err
	}
	s := &scope{virtualWorkspace: virtualWorkspace, before: virtualWorkspace.DeepCopy()}
	if virtualWorkspace.DeletionTimestamp == nil { // else owner references do the rest
		err = ladder.Climb(ctx, s, r.resolve, r.specification, r.surroundings, r.issue, r.serve)
	}
	s.report.Transient = err
	computeStatus(s)
	return ladder.Look{Cluster: r.Cluster, Recorder: r.Recorder, Before: s.before, Object: s.virtualWorkspace}.End(ctx, &s.report, err)
}

// resolve finds the shard that the server stands beside.
func (r *Reconciler) resolve(ctx context.Context, s *scope) error {
	target, result, err := r.findTarget(ctx, s.virtualWorkspace)
	if err != nil {
		return err
	}
	s.target = target
	s.report.Set(result)
	return nil
}

// specification ends the ladder where nothing can come of the spec, or the target is not there. What runs already is left
// alone, and looked at.
func (r *Reconciler) specification(ctx context.Context, s *scope) (err error) {
	result := validateSpec(s.virtualWorkspace)
	s.report.Set(result)
	if s.target != nil && result.State != status.Stalled {
		return nil
	}
	s.deployment, err = ladder.Leave(ctx, r.Cluster, &s.report, s.virtualWorkspace.Namespace, desired.VirtualWorkspaceServer(s.virtualWorkspace))
	return err
}

// surroundings looks for the cache server of the target.
func (r *Reconciler) surroundings(ctx context.Context, s *scope) (err error) {
	s.cache, s.references, err = shardbase.Cache(ctx, r.Cluster, *s.target)
	s.report.SetWorst(s.references)
	return err
}

// issue makes the certificates, below the authorities of the installation.
func (r *Reconciler) issue(ctx context.Context, s *scope) error {
	result, err := r.Cluster.Certificates(ctx, pki.VirtualWorkspace(s.server(), s.virtualWorkspace, s.cache))
	if err := apply.Settle(&s.report, result, err); err != nil {
		return err
	}
	s.certificates = s.report.Get(operatorv1alpha1.ConditionCertificatesReady)
	return nil
}

// serve makes the Service, the bundles of certificate authorities and the pods.
func (r *Reconciler) serve(ctx context.Context, s *scope) error {
	result, err := r.provide(ctx, s)
	s.deployment, err = r.Cluster.SettleWorkload(ctx, &s.report, operatorv1alpha1.ConditionAvailable, s.virtualWorkspace.Namespace, s.server().Server(), result, err)
	return err
}

func (r *Reconciler) provide(ctx context.Context, s *scope) (status.Result, error) {
	const condition = operatorv1alpha1.ConditionAvailable
	server := s.server()
	if err := r.Cluster.Object(ctx, condition, desired.VirtualWorkspaceService(server)); err != nil {
		return status.Result{}, err
	}
	for _, bundle := range []struct {
		name string
		own  desired.CA
		refs []*corev1.LocalObjectReference
	}{
		{desired.MergedCABundle(server.Name()), desired.ServerCA, server.CABundleRefs()},
		{desired.MergedClientCA(server.Name()), desired.ClientCA, server.ClientCABundleRefs()},
	} {
		if len(bundle.refs) == 0 {
			continue
		}
		into := desired.Bundle(bundle.name, s.virtualWorkspace.Namespace, server.SecretLabels(), server.Owner())
		if err := r.Cluster.Bundle(ctx, condition, into, desired.CASecret(server.Root(), bundle.own), bundle.refs...); err != nil {
			return status.Result{}, err
		}
	}
	return r.Cluster.Workload(ctx, &s.report, condition, desired.VirtualWorkspaceDeployment(server, r.Image, s.cache), s.references, s.certificates)
}

func computeStatus(s *scope) {
	out := &s.virtualWorkspace.Status
	out.ObservedGeneration = s.virtualWorkspace.Generation
	if s.virtualWorkspace.DeletionTimestamp != nil {
		out.Phase = operatorv1alpha1.VirtualWorkspacePhaseDeleting
		return
	}
	out.Conditions = s.report.Conditions(out.Conditions, s.virtualWorkspace.Generation)
	out.Version, out.Endpoint = status.Version(s.deployment), desired.VirtualWorkspaceURL(s.virtualWorkspace)
	out.Phase = operatorv1alpha1.VirtualWorkspacePhaseProvisioning
	if meta.IsStatusConditionTrue(out.Conditions, operatorv1alpha1.ConditionAvailable) {
		out.Phase = operatorv1alpha1.VirtualWorkspacePhaseRunning
	}
}
