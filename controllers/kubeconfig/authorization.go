package kubeconfig

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/status"
	"github.com/atoll-dev/atoll/logicalcluster"
)

const (
	// unreachableTimeout is how long a deletion waits for an installation that does not answer. The bindings that may be
	// left behind name a group that only this Kubeconfig's certificate was in.
	unreachableTimeout = 2 * time.Minute
	// forbiddenTimeout is how long it waits while told that the workspace may not be entered. The operator may enter every
	// workspace, so that is the answer for one that does not exist; and, for a moment, for one not known to the proxy yet.
	forbiddenTimeout = 20 * time.Second
	cleanupRequeue   = 5 * time.Second
)

// authorization makes the bindings in the workspace that the spec names, and removes those in another one. The workspace
// is recorded before anything is made there: a crash leaves no binding that nobody remembers.
func (r *Reconciler) authorization(ctx context.Context, s *scope) error {
	wanted, recorded := bindingWorkspace(s.kubeconfig), recordedWorkspace(s.kubeconfig)
	if s.target == nil {
		return nil
	}
	if result := validateWorkspace(wanted); result.State == status.Stalled {
		s.report.Set(result)
		return nil
	}
	if recorded != "" && recorded != wanted {
		if result := r.inWorkspace(ctx, s.target, recorded, func(b bindings) error { return b.remove(ctx, s.kubeconfig) }); result.State != status.Satisfied {
			s.report.Set(result)
			return nil
		}
		s.kubeconfig.Status.Authorization.ProvisionedCluster = ""
	}
	if wanted == "" {
		meta.RemoveStatusCondition(&s.kubeconfig.Status.Conditions, operatorv1alpha1.ConditionAuthorizationProvisioned)
		return r.Cluster.SetFinalizer(ctx, s.kubeconfig, operatorv1alpha1.FinalizerKubeconfigRBAC, false)
	}
	if err := r.Cluster.SetFinalizer(ctx, s.kubeconfig, operatorv1alpha1.FinalizerKubeconfigRBAC, true); err != nil {
		return err
	}
	if recorded != wanted {
		s.kubeconfig.Status.Authorization = &operatorv1alpha1.KubeconfigAuthorizationStatus{ProvisionedCluster: wanted}
		s.report.Set(status.Wait(operatorv1alpha1.ConditionAuthorizationProvisioned, "Provisioning", "making the bindings in workspace %s", wanted))
		s.again = true
		return nil
	}
	s.report.Set(r.inWorkspace(ctx, s.target, wanted, func(b bindings) error { return b.reconcile(ctx, s.kubeconfig) }))
	return nil
}

// validateWorkspace refuses what is no path of a workspace. It becomes part of a URL that the operator calls with rights of
// its own, so nothing else may stand there.
func validateWorkspace(workspace string) status.Result {
	if workspace == "" {
		return status.Result{}
	}
	if path, err := logicalcluster.ParsePath(workspace); err != nil || path == logicalcluster.Wildcard.Path() {
		return status.Stall(operatorv1alpha1.ConditionAuthorizationProvisioned, "InvalidWorkspace",
			"%q is no path of a workspace: correct authorization.clusterRoleBindings.cluster, or name the workspace in targetWorkspace", workspace)
	}
	return status.Result{}
}

// cleanUp removes the bindings of a Kubeconfig that is deleted, and lets it go. It does not wait for ever: an
// installation that is gone, or does not answer for a while, lets it go too.
func (r *Reconciler) cleanUp(ctx context.Context, s *scope) (ctrl.Result, error) {
	if !controllerutil.ContainsFinalizer(s.kubeconfig, operatorv1alpha1.FinalizerKubeconfigRBAC) {
		return ctrl.Result{}, nil
	}
	recorded := recordedWorkspace(s.kubeconfig)
	if recorded == "" {
		return ctrl.Result{}, r.Cluster.SetFinalizer(ctx, s.kubeconfig, operatorv1alpha1.FinalizerKubeconfigRBAC, false)
	}
	found, err := r.installation(ctx, s)
	if err != nil {
		return ctrl.Result{}, err
	}
	if found == nil { // the bindings are gone with the installation
		return ctrl.Result{}, r.Cluster.SetFinalizer(ctx, s.kubeconfig, operatorv1alpha1.FinalizerKubeconfigRBAC, false)
	}
	result := r.inWorkspace(ctx, found, recorded, func(b bindings) error { return b.remove(ctx, s.kubeconfig) })
	if result.State == status.Satisfied {
		return ctrl.Result{}, r.Cluster.SetFinalizer(ctx, s.kubeconfig, operatorv1alpha1.FinalizerKubeconfigRBAC, false)
	}
	patience := unreachableTimeout
	if result.Reason == reasonForbidden {
		patience = forbiddenTimeout
	}
	if s.now.Sub(s.kubeconfig.DeletionTimestamp.Time) > patience {
		r.Recorder.Eventf(s.kubeconfig, nil, corev1.EventTypeWarning, "BindingsLeftBehind", "Delete",
			"bindings in workspace %s could not be removed: %s", recorded, result.Message)
		return ctrl.Result{}, r.Cluster.SetFinalizer(ctx, s.kubeconfig, operatorv1alpha1.FinalizerKubeconfigRBAC, false)
	}
	result.Message = "deletion waits to remove the bindings in workspace " + recorded + ": " + result.Message
	s.report.Set(result)
	if err := r.look(s).WriteStatus(ctx); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: cleanupRequeue}, nil
}

func recordedWorkspace(k *operatorv1alpha1.Kubeconfig) string {
	if k.Status.Authorization == nil {
		return ""
	}
	return k.Status.Authorization.ProvisionedCluster
}
