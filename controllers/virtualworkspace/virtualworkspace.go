// Package virtualworkspace reconciles VirtualWorkspaces: virtual workspace servers that run beside a shard. Packages
// desired and pki render the objects; the shard publishes the address of the server if its spec names the
// VirtualWorkspace.
package virtualworkspace

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/dependencies"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/pki"
	"github.com/atoll-dev/atoll/controllers/reconcile"
	"github.com/atoll-dev/atoll/controllers/server"
	"github.com/atoll-dev/atoll/controllers/status"
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
			return &scope{Scope: server.NewScope(config, report, object.Namespace, desired.NewVirtualWorkspace(object, desired.Shard{}).Server()), object: object}
		},
	}
}

// scope is one VirtualWorkspace during a reconcile.
type scope struct {
	server.Scope
	object *operatorv1alpha1.VirtualWorkspace

	target *desired.Shard                // nil while the reference does not resolve
	cache  *operatorv1alpha1.CacheServer // of the target
}

func (s *scope) server() desired.VirtualWorkspace {
	return desired.NewVirtualWorkspace(s.object, *s.target)
}

// Observe implements reconcile.Scope.
func (s *scope) Observe(ctx context.Context) (err error) {
	if err := s.Deployment.Observe(ctx); err != nil {
		return err
	}
	s.Spec = validateSpec(s.object)
	s.target, s.Reference, err = findTarget(ctx, s.Cluster, s.object)
	if err != nil || s.target == nil || s.Spec.State == status.Stalled {
		return err
	}
	if s.cache, s.References, err = dependencies.ResolveCacheServer(ctx, s.Cluster, *s.target); err != nil {
		return err
	}
	return s.Deployment.SetDesired(ctx, s.server().Render(s.Image, s.cache))
}

// Steps implements reconcile.Scope.
func (s *scope) Steps() []reconcile.Step {
	return []reconcile.Step{
		{Name: "resolve the target", Run: s.ReportReference},
		{Name: "validate the spec", Run: s.Validate},
		{Name: "check references", Run: s.CheckReferences},
		{Name: "issue certificates", Run: s.issueCertificates},
		{Name: "configure the server", Run: s.Deployment.Configure},
		{Name: "prepare the server", Run: s.Prepare},
		{Name: "admit the rollout of the server", Run: s.Deployment.AdmitRollout},
		{Name: "apply the server", Run: s.Deployment.Apply},
	}
}

// issueCertificates applies the certificates, which the authorities of the installation sign.
func (s *scope) issueCertificates(ctx context.Context) error {
	objects := pki.VirtualWorkspace(s.server(), s.object, s.cache)
	s.Issued = slices.Concat(objects.Secrets(), pki.RootShard(s.target.Root(), nil).Secrets())
	if !s.target.IsRoot() {
		s.Issued = append(s.Issued, pki.Shard(*s.target, nil).Secrets()...)
	}
	if s.cache != nil {
		s.Issued = append(s.Issued, pki.CacheServer(s.cache, nil).Secrets()...)
	}
	return s.Report.SetResult(s.Cluster.ApplyCertificates(ctx, objects))
}

// SetStatus implements reconcile.Scope.
func (s *scope) SetStatus() {
	out := &s.object.Status
	out.ObservedGeneration = s.object.Generation
	if s.object.DeletionTimestamp != nil {
		out.Phase = operatorv1alpha1.VirtualWorkspacePhaseDeleting
		return
	}
	out.Conditions = s.Report.Conditions(out.Conditions, s.object.Generation)
	out.Version, out.Endpoint = status.Version(s.Deployment.Live()), desired.VirtualWorkspaceURL(s.object)
	out.Phase = operatorv1alpha1.VirtualWorkspacePhaseProvisioning
	if meta.IsStatusConditionTrue(out.Conditions, operatorv1alpha1.ConditionAvailable) {
		out.Phase = operatorv1alpha1.VirtualWorkspacePhaseRunning
	}
}
