// Package virtualworkspace reconciles VirtualWorkspaces: virtual workspace servers that run beside a shard. Packages
// desired and pki render the objects; the shard publishes the address of the server if its spec names the
// VirtualWorkspace.
package virtualworkspace

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/dependencies"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/pki"
	"github.com/atoll-dev/atoll/controllers/reconcile"
	"github.com/atoll-dev/atoll/controllers/status"
	"github.com/atoll-dev/atoll/controllers/workload"
)

// +kubebuilder:rbac:groups=operator.kcp.io,resources=virtualworkspaces,verbs=get;list;watch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=virtualworkspaces/status,verbs=get;patch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=virtualworkspaces/finalizers,verbs=update

// NewReconciler returns the reconciler of VirtualWorkspaces.
func NewReconciler(config reconcile.Config) *reconcile.Reconciler[*operatorv1alpha1.VirtualWorkspace] {
	return &reconcile.Reconciler[*operatorv1alpha1.VirtualWorkspace]{
		Config: config,
		Watches: reconcile.Watches[*operatorv1alpha1.VirtualWorkspace]{
			Name:       "virtualworkspace",
			For:        &operatorv1alpha1.VirtualWorkspace{},
			List:       &operatorv1alpha1.VirtualWorkspaceList{},
			Owns:       reconcile.ServerKinds(),
			References: []client.Object{&operatorv1alpha1.RootShard{}, &operatorv1alpha1.Shard{}, &operatorv1alpha1.CacheServer{}},
			Files:      reconcile.FileKinds(),
		},
		NewScope: func(object *operatorv1alpha1.VirtualWorkspace, report *status.Report) reconcile.Scope {
			return &scope{
				config: config, report: report, object: object,
				spec:       validateSpec(object),
				deployment: config.NewDeployment(report, operatorv1alpha1.ConditionAvailable, object.Namespace, desired.VirtualWorkspaceServer(object)),
			}
		},
	}
}

// scope is one VirtualWorkspace during a reconcile.
type scope struct {
	config reconcile.Config
	report *status.Report
	object *operatorv1alpha1.VirtualWorkspace
	spec   status.Result

	target     *desired.Shard // nil while the reference does not resolve
	reference  status.Result  // to the target
	cache      *operatorv1alpha1.CacheServer
	cacheRef   status.Result // of the target; without a type if it resolves
	deployment workload.Deployment
}

func (s *scope) server() desired.VirtualWorkspace {
	return desired.NewVirtualWorkspace(s.object, *s.target)
}

// Observe implements reconcile.Scope.
func (s *scope) Observe(ctx context.Context) (err error) {
	if err := s.deployment.Observe(ctx); err != nil {
		return err
	}
	s.target, s.reference, err = findTarget(ctx, s.config.Cluster, s.object)
	if err != nil || s.target == nil || s.spec.State == status.Stalled {
		return err
	}
	if s.cache, s.cacheRef, err = dependencies.ResolveCacheServer(ctx, s.config.Cluster, *s.target); err != nil {
		return err
	}
	return s.deployment.SetDesired(ctx, s.server().Render(s.config.Image, s.cache))
}

// Steps implements reconcile.Scope.
func (s *scope) Steps() []reconcile.Step {
	return []reconcile.Step{
		{Name: "resolve the target", Run: s.reportTarget},
		{Name: "validate the spec", Run: s.validate},
		{Name: "check references", Run: s.checkReferences},
		{Name: "issue certificates", Run: s.issueCertificates},
		{Name: "configure the server", Run: s.deployment.Configure},
		{Name: "prepare the server", Run: s.prepare},
		{Name: "admit the rollout of the server", Run: s.deployment.AdmitRollout},
		{Name: "apply the server", Run: s.deployment.Apply},
	}
}

func (s *scope) reportTarget(context.Context) error {
	s.report.Set(s.reference)
	return nil
}

// validate stops the reconcile if the spec is invalid, or without a target. Running pods are kept, and their state is
// reported.
func (s *scope) validate(context.Context) error {
	s.report.Set(s.spec)
	if s.target == nil || s.spec.State == status.Stalled {
		s.deployment.ReportLive()
		return reconcile.ErrStop
	}
	return nil
}

func (s *scope) checkReferences(context.Context) error {
	s.report.SetWorst(s.cacheRef)
	return nil
}

// issueCertificates applies the certificates, which the authorities of the installation sign.
func (s *scope) issueCertificates(ctx context.Context) error {
	return s.report.SetResult(s.config.Cluster.ApplyCertificates(ctx, pki.VirtualWorkspace(s.server(), s.object, s.cache)))
}

func (s *scope) prepare(context.Context) error {
	s.deployment.Prepare(s.cacheRef, s.report.Get(operatorv1alpha1.ConditionCertificatesReady))
	return nil
}

// SetStatus implements reconcile.Scope.
func (s *scope) SetStatus() {
	out := &s.object.Status
	out.ObservedGeneration = s.object.Generation
	if s.object.DeletionTimestamp != nil {
		out.Phase = operatorv1alpha1.VirtualWorkspacePhaseDeleting
		return
	}
	out.Conditions = s.report.Conditions(out.Conditions, s.object.Generation)
	out.Version, out.Endpoint = status.Version(s.deployment.Live()), desired.VirtualWorkspaceURL(s.object)
	out.Phase = operatorv1alpha1.VirtualWorkspacePhaseProvisioning
	if meta.IsStatusConditionTrue(out.Conditions, operatorv1alpha1.ConditionAvailable) {
		out.Phase = operatorv1alpha1.VirtualWorkspacePhaseRunning
	}
}
