// Package frontproxy reconciles FrontProxies: the certificates, the configuration and the pods of the proxy through which clients reach
// an installation. Packages desired and pki render the objects.
package frontproxy

import (
	"context"

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

// +kubebuilder:rbac:groups=operator.kcp.io,resources=frontproxies,verbs=get;list;watch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=frontproxies/status,verbs=get;patch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=frontproxies/finalizers,verbs=update

// NewReconciler returns the reconciler of FrontProxies.
func NewReconciler(config reconcile.Config) *reconcile.Reconciler[*operatorv1alpha1.FrontProxy] {
	return &reconcile.Reconciler[*operatorv1alpha1.FrontProxy]{
		Config: config,
		Watches: reconcile.Watches[*operatorv1alpha1.FrontProxy]{
			Name:       "frontproxy",
			For:        &operatorv1alpha1.FrontProxy{},
			List:       &operatorv1alpha1.FrontProxyList{},
			Owns:       reconcile.ServerKinds(),
			References: []client.Object{&operatorv1alpha1.RootShard{}, &operatorv1alpha1.Shard{}},
			Files:      reconcile.FileKinds(),
		},
		NewScope: func(front *operatorv1alpha1.FrontProxy, report *status.Report) reconcile.Scope {
			return &scope{Scope: server.NewScope(config, report, front.Namespace, desired.NewFrontProxy(front, nil).Server()), front: front}
		},
	}
}

// scope is one FrontProxy during a reconcile.
type scope struct {
	server.Scope
	front *operatorv1alpha1.FrontProxy

	root  *operatorv1alpha1.RootShard // nil if there is no installation
	proxy desired.Proxy
}

// Observe implements reconcile.Scope.
func (s *scope) Observe(ctx context.Context) (err error) {
	if err := s.Deployment.Observe(ctx); err != nil {
		return err
	}
	s.root, s.Reference, err = dependencies.ResolveRootShard(ctx, s.Cluster, s.front.Namespace, s.front.Spec.RootShard)
	if err != nil || s.Reference.State != status.Satisfied {
		return err
	}
	if s.Spec = validateSpec(s.front, s.root); s.Spec.State == status.Stalled {
		return nil
	}
	shards, err := dependencies.ListShards(ctx, s.Cluster, s.root)
	if err != nil {
		return err
	}
	keys, err := dependencies.ListTokenKeys(ctx, s.Cluster, s.root, shards)
	if err != nil {
		return err
	}
	s.proxy = desired.NewFrontProxy(s.front, s.root, keys...)
	rendered, err := s.proxy.Render(s.Image)
	if err != nil {
		return err
	}
	return s.Deployment.SetDesired(ctx, rendered)
}

// Steps implements reconcile.Scope.
func (s *scope) Steps() []reconcile.Step {
	return []reconcile.Step{
		{Name: "resolve the RootShard", Run: s.ReportReference},
		{Name: "validate the spec", Run: s.Validate},
		{Name: "issue certificates", Run: s.issueCertificates},
		{Name: "configure the proxy", Run: s.Deployment.Configure},
		{Name: "prepare the proxy", Run: s.Prepare},
		{Name: "admit the rollout of the proxy", Run: s.Deployment.AdmitRollout},
		{Name: "apply the proxy", Run: s.Deployment.Apply},
	}
}

func (s *scope) issueCertificates(ctx context.Context) error {
	objects := pki.Proxy(s.proxy, s.root)
	s.Issued = append(objects.Secrets(), pki.RootShard(s.root, nil).Secrets()...)
	return s.Report.SetResult(s.Cluster.ApplyCertificates(ctx, objects))
}

// SetStatus implements reconcile.Scope.
func (s *scope) SetStatus() {
	out := &s.front.Status
	out.ObservedGeneration = s.front.Generation
	if s.front.DeletionTimestamp != nil {
		out.Phase = operatorv1alpha1.FrontProxyPhaseDeleting
		return
	}
	out.Conditions = s.Report.Conditions(out.Conditions, s.front.Generation)
	out.Version, out.Endpoint = status.Version(s.Deployment.Live()), ""
	if s.root != nil && s.Spec.State != status.Stalled {
		out.Endpoint = desired.FrontProxyURL(s.front, s.root)
	}
	out.Phase = operatorv1alpha1.FrontProxyPhaseProvisioning
	if meta.IsStatusConditionTrue(out.Conditions, operatorv1alpha1.ConditionAvailable) {
		out.Phase = operatorv1alpha1.FrontProxyPhaseRunning
	}
}
