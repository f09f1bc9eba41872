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
	views  *operatorv1alpha1.VirtualWorkspace
	before *operatorv1alpha1.VirtualWorkspace
	target *desired.Shard // nil while the reference does not resolve
	report status.Report

	references   status.Finding // of what else is named; without a type when all is there
	cache        *operatorv1alpha1.CacheServer
	certificates status.Finding
	deployment   *appsv1.Deployment
}

func (s *scope) server() desired.VirtualWorkspace {
	return desired.VirtualWorkspaceOf(s.views, *s.target)
}

// Reconcile brings one VirtualWorkspace to its spec. Each step stands on those before it.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	views, err := ladder.Read[operatorv1alpha1.VirtualWorkspace](ctx, r.Cluster, req)
	if err != nil || views == nil {
		return ctrl.Result{}, err
	}
	s := &scope{views: views, before: views.DeepCopy()}
	if views.DeletionTimestamp == nil { // else owner references do the rest
		err = ladder.Climb(ctx, s, r.resolve, r.specification, r.surroundings, r.issue, r.serve)
	}
	s.report.Transient = err
	computeStatus(s)
	return ladder.Look{Cluster: r.Cluster, Recorder: r.Recorder, Before: s.before, Object: s.views}.End(ctx, &s.report, err)
}

// resolve finds the shard that the server stands beside.
func (r *Reconciler) resolve(ctx context.Context, s *scope) error {
	target, finding, err := r.findTarget(ctx, s.views)
	if err != nil {
		return err
	}
	s.target = target
	s.report.Add(finding)
	return nil
}

// specification ends the ladder where nothing can come of the spec, or the target is not there. What runs already is left
// alone, and looked at.
func (r *Reconciler) specification(ctx context.Context, s *scope) (err error) {
	finding := checkSpec(s.views)
	s.report.Add(finding)
	if s.target != nil && finding.Kind != status.Stalled {
		return nil
	}
	s.deployment, err = ladder.Leave(ctx, r.Cluster, &s.report, s.views.Namespace, desired.VirtualWorkspaceServer(s.views))
	return err
}

// surroundings looks for the cache server of the target.
func (r *Reconciler) surroundings(ctx context.Context, s *scope) (err error) {
	s.cache, s.references, err = shardbase.Cache(ctx, r.Cluster, *s.target)
	s.report.AddWorse(s.references)
	return err
}

// issue makes the certificates, below the authorities of the installation.
func (r *Reconciler) issue(ctx context.Context, s *scope) error {
	finding, err := r.Cluster.Certificates(ctx, pki.VirtualWorkspace(s.server(), s.views, s.cache))
	if err := apply.Settle(&s.report, finding, err); err != nil {
		return err
	}
	s.certificates = s.report.Find(operatorv1alpha1.ConditionCertificatesReady)
	return nil
}

// serve makes the Service, the bundles of certificate authorities and the pods.
func (r *Reconciler) serve(ctx context.Context, s *scope) error {
	finding, err := r.provide(ctx, s)
	s.deployment, err = r.Cluster.SettleWorkload(ctx, &s.report, operatorv1alpha1.ConditionAvailable, s.views.Namespace, s.server().Server(), finding, err)
	return err
}

func (r *Reconciler) provide(ctx context.Context, s *scope) (status.Finding, error) {
	const condition = operatorv1alpha1.ConditionAvailable
	server := s.server()
	if err := r.Cluster.Object(ctx, condition, desired.VirtualWorkspaceService(server)); err != nil {
		return status.Finding{}, err
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
		into := desired.Bundle(bundle.name, s.views.Namespace, server.SecretLabels(), server.Owner())
		if err := r.Cluster.Bundle(ctx, condition, into, desired.CASecret(server.Root(), bundle.own), bundle.refs...); err != nil {
			return status.Finding{}, err
		}
	}
	return r.Cluster.Workload(ctx, &s.report, condition, desired.VirtualWorkspaceDeployment(server, r.Image, s.cache), s.references, s.certificates)
}

func computeStatus(s *scope) {
	out := &s.views.Status
	out.ObservedGeneration = s.views.Generation
	if s.views.DeletionTimestamp != nil {
		out.Phase = operatorv1alpha1.VirtualWorkspacePhaseDeleting
		return
	}
	out.Conditions = s.report.Conditions(out.Conditions, s.views.Generation)
	out.Version, out.Endpoint = status.Version(s.deployment), desired.VirtualWorkspaceURL(s.views)
	out.Phase = operatorv1alpha1.VirtualWorkspacePhaseProvisioning
	if meta.IsStatusConditionTrue(out.Conditions, operatorv1alpha1.ConditionAvailable) {
		out.Phase = operatorv1alpha1.VirtualWorkspacePhaseRunning
	}
}
