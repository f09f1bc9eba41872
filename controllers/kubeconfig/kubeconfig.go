// Package kubeconfig reconciles Kubeconfigs: a client certificate, the Secret with the kubeconfig that contains it, and the bindings of
// its spec. The bindings are the only objects that the operator writes inside a workspace of users.
package kubeconfig

import (
	"context"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/reconcile"
	"github.com/atoll-dev/atoll/controllers/status"
)

// +kubebuilder:rbac:groups=operator.kcp.io,resources=kubeconfigs,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=kubeconfigs/status,verbs=get;patch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=kubeconfigs/finalizers,verbs=update

// NewReconciler returns the reconciler of Kubeconfigs.
func NewReconciler(config reconcile.Config) *reconcile.Reconciler[*operatorv1alpha1.Kubeconfig] {
	return &reconcile.Reconciler[*operatorv1alpha1.Kubeconfig]{
		Config: config,
		Watches: reconcile.Watches[*operatorv1alpha1.Kubeconfig]{
			Name:       "kubeconfig",
			For:        &operatorv1alpha1.Kubeconfig{},
			List:       &operatorv1alpha1.KubeconfigList{},
			Owns:       []client.Object{&certmanagerv1.Certificate{}},
			References: []client.Object{&operatorv1alpha1.RootShard{}, &operatorv1alpha1.Shard{}, &operatorv1alpha1.FrontProxy{}},
			Files:      []client.Object{&corev1.Secret{}}, // a renewed certificate is written to the kubeconfig at once
		},
		NewScope: func(kubeconfig *operatorv1alpha1.Kubeconfig, report *status.Report) reconcile.Scope {
			return &scope{config: config, report: report, kubeconfig: kubeconfig, now: config.Now(), expiresAt: kubeconfig.Status.ExpiresAt}
		},
	}
}

// scope is one Kubeconfig during a reconcile.
type scope struct {
	config     reconcile.Config
	report     *status.Report
	kubeconfig *operatorv1alpha1.Kubeconfig
	now        time.Time

	target    *target       // nil while the reference does not resolve
	reference status.Result // to the target
	secrets   secrets
	user      *desired.UserKubeconfig // nil until the Secret is written
	issuedAt  time.Time               // start of validity of the certificate in the Secret; zero until the Secret is written
	expiresAt *metav1.Time
}

// Observe implements reconcile.Scope.
func (s *scope) Observe(ctx context.Context) (err error) {
	if s.kubeconfig.DeletionTimestamp != nil {
		s.target, err = findInstallation(ctx, s.config.Cluster, s.kubeconfig)
		return err
	}
	s.target, s.reference, err = findTarget(ctx, s.config.Cluster, s.kubeconfig)
	if err != nil || s.target == nil {
		return err
	}
	return s.observeSecrets(ctx)
}

// Steps implements reconcile.Scope.
func (s *scope) Steps() []reconcile.Step {
	return []reconcile.Step{
		{Name: "resolve the target", Run: s.reportTarget},
		{Name: "issue the certificate", Run: s.issueCertificate},
		{Name: "write the Secret", Run: s.writeSecret},
		{Name: "register in Argo CD", Run: s.registerInArgoCD},
		{Name: "provision the authorization", Run: s.provisionAuthorization},
		{Name: "report ignored fields", Run: s.reportIgnoredFields},
	}
}

// FinalizeSteps implements reconcile.Finalizer.
func (s *scope) FinalizeSteps() []reconcile.Step {
	return []reconcile.Step{{Name: "remove the cluster of Argo CD", Run: s.unregister}, {Name: "remove the bindings", Run: s.finalize}}
}

func (s *scope) reportTarget(context.Context) error {
	s.report.Set(s.reference)
	return nil
}

func (s *scope) reportIgnoredFields(context.Context) error {
	s.report.Set(status.SpecHonored(ignoredFields(s.kubeconfig, s.config.ArgoCDNamespace)))
	return nil
}

// SetStatus implements reconcile.Scope.
func (s *scope) SetStatus() {
	out := &s.kubeconfig.Status
	out.ObservedGeneration = s.kubeconfig.Generation
	out.Conditions = s.report.Conditions(out.Conditions, s.kubeconfig.Generation)
	out.ExpiresAt = s.expiresAt
	if s.target != nil && s.target.name != "" {
		out.TargetName = s.target.name
	}
	out.Phase = phase(out.Conditions)
}

// phase returns Ready only if the Secret exists, because clients that wait for the phase read the Secret next.
func phase(conditions []metav1.Condition) operatorv1alpha1.KubeconfigPhase {
	switch {
	case meta.IsStatusConditionFalse(conditions, operatorv1alpha1.ConditionReferenceValid):
		return operatorv1alpha1.KubeconfigPhaseFailed
	case meta.IsStatusConditionTrue(conditions, operatorv1alpha1.ConditionAvailable):
		return operatorv1alpha1.KubeconfigPhaseReady
	}
	return operatorv1alpha1.KubeconfigPhaseProvisioning
}
