// Package kubeconfig reconciles Kubeconfigs: a client certificate, the Secret with the kubeconfig made of it, and the
// bindings inside kcp that the user asks for. The bindings are the only thing the operator does inside an installation.
package kubeconfig

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/ladder"
	"github.com/atoll-dev/atoll/controllers/status"
)

// Reconciler brings Kubeconfigs to their spec.
type Reconciler struct {
	Cluster  apply.Cluster
	Recorder events.EventRecorder
	Now      func() time.Time
}

// +kubebuilder:rbac:groups=operator.kcp.io,resources=kubeconfigs,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=kubeconfigs/status,verbs=get;patch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=kubeconfigs/finalizers,verbs=update

// scope is one Kubeconfig as it was observed, and what was found about it.
type scope struct {
	kubeconfig *operatorv1alpha1.Kubeconfig
	before     operatorv1alpha1.KubeconfigStatus
	target     *target // nil while it does not resolve
	now        time.Time
	report     status.Report
	expires    *metav1.Time
	again      bool // go on at once: the status had to be written in between
}

// Reconcile brings one Kubeconfig to its spec.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	kubeconfig, err := ladder.Read[operatorv1alpha1.Kubeconfig](ctx, r.Cluster, req)
	if err != nil || kubeconfig == nil {
		return ctrl.Result{}, err
	}
	s := &scope{kubeconfig: kubeconfig, before: *kubeconfig.Status.DeepCopy(), now: r.Now(), expires: kubeconfig.Status.ExpiresAt}
	if kubeconfig.DeletionTimestamp != nil {
		return r.cleanUp(ctx, s)
	}
	err = ladder.Climb(ctx, s, r.resolve, r.secret, r.authorization, r.specification)
	s.report.Transient = err
	result, err := r.look(s).End(ctx, &s.report, err)
	if err == nil && s.again {
		result.RequeueAfter = time.Millisecond
	}
	return result, err
}

// look brings the status up to date.
func (r *Reconciler) look(s *scope) ladder.Look {
	computeStatus(s)
	before := s.kubeconfig.DeepCopy() // with the finalizer, which may have been changed on the way
	before.Status = s.before
	return ladder.Look{Cluster: r.Cluster, Recorder: r.Recorder, Before: before, Object: s.kubeconfig}
}

func computeStatus(s *scope) {
	out := &s.kubeconfig.Status
	out.ObservedGeneration = s.kubeconfig.Generation
	out.Conditions = s.report.Conditions(out.Conditions, s.kubeconfig.Generation)
	out.ExpiresAt = s.expires
	if s.target != nil {
		out.TargetName = s.target.name
	}
	out.Phase = phase(out.Conditions)
}

// phase is Ready only once the Secret is there: who waits for it goes on to read the Secret.
func phase(conditions []metav1.Condition) operatorv1alpha1.KubeconfigPhase {
	switch {
	case meta.IsStatusConditionFalse(conditions, operatorv1alpha1.ConditionReferenceValid):
		return operatorv1alpha1.KubeconfigPhaseFailed
	case meta.IsStatusConditionTrue(conditions, operatorv1alpha1.ConditionAvailable):
		return operatorv1alpha1.KubeconfigPhaseReady
	}
	return operatorv1alpha1.KubeconfigPhaseProvisioning
}
