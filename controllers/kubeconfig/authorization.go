package kubeconfig

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/reconcile"
	"github.com/atoll-dev/atoll/controllers/status"
	"github.com/atoll-dev/atoll/logicalcluster"
)

const (
	// unreachableTimeout is how long a deletion waits for an installation that does not respond. Bindings that remain after that name a
	// group that only the certificate of this Kubeconfig is in.
	unreachableTimeout = 2 * time.Minute
	// forbiddenTimeout is how long it waits while access to the workspace is forbidden. The operator has access to every workspace, so
	// Forbidden means that the workspace does not exist or, for a moment, that the proxy has not indexed it yet.
	forbiddenTimeout = 20 * time.Second
	finalizeInterval = 5 * time.Second
)

// provisionAuthorization reconciles the bindings in the workspace that the spec names, and removes those in another one. It records the
// workspace in the status before it creates anything there, so that a crash leaves no unrecorded binding.
func (s *scope) provisionAuthorization(ctx context.Context) error {
	if s.target == nil {
		return nil
	}
	k := s.kubeconfig
	desired, recorded := bindingWorkspace(k), recordedWorkspace(k)
	if result := validateWorkspace(desired); result.State == status.Stalled {
		s.report.Set(result)
		return nil
	}
	if recorded != "" && recorded != desired {
		if result := s.removeBindings(ctx, recorded); result.State != status.Satisfied {
			s.report.Set(result)
			return nil
		}
		k.Status.Authorization.ProvisionedCluster = ""
	}
	if err := s.config.Cluster.SetFinalizer(ctx, k, operatorv1alpha1.FinalizerKubeconfigRBAC, desired != ""); err != nil {
		return err
	}
	switch desired {
	case "":
		s.report.RemoveCondition(operatorv1alpha1.ConditionAuthorizationProvisioned)
	case recorded:
		if wait := s.formerGroupTime(); wait > 0 {
			s.report.RequeueWithin(wait)
		}
		s.report.Set(s.withBindings(ctx, desired, func(b bindings) error { return b.reconcile(ctx, k) }))
	default:
		k.Status.Authorization = &operatorv1alpha1.KubeconfigAuthorizationStatus{ProvisionedCluster: desired}
		s.report.Set(status.Wait(operatorv1alpha1.ConditionAuthorizationProvisioned, "Provisioning", "creating the bindings in workspace %s", desired))
		s.report.Requeue = time.Millisecond // the next reconcile creates them, with the workspace recorded
	}
	return nil
}

// validateWorkspace rejects values that are not the path of a workspace. The path becomes part of a URL that the operator requests with
// its own permissions.
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

// finalize removes the bindings of a Kubeconfig that is being deleted, and then its finalizer. It waits a limited time for an
// installation that does not respond.
func (s *scope) finalize(ctx context.Context) error {
	if !controllerutil.ContainsFinalizer(s.kubeconfig, operatorv1alpha1.FinalizerKubeconfigRBAC) {
		return reconcile.ErrFinalized
	}
	recorded := recordedWorkspace(s.kubeconfig)
	if recorded == "" || s.target == nil { // the bindings were deleted with the installation
		return s.removeFinalizer(ctx)
	}
	result := s.removeBindings(ctx, recorded)
	if result.State == status.Satisfied {
		return s.removeFinalizer(ctx)
	}
	timeout := unreachableTimeout
	if result.Reason == reasonForbidden {
		timeout = forbiddenTimeout
	}
	if s.now.Sub(s.kubeconfig.DeletionTimestamp.Time) > timeout {
		s.config.Recorder.Eventf(s.kubeconfig, nil, corev1.EventTypeWarning, "BindingsLeftBehind", "Delete",
			"bindings in workspace %s could not be removed: %s", recorded, result.Message)
		return s.removeFinalizer(ctx)
	}
	result.Message = "deletion waits to remove the bindings in workspace " + recorded + ": " + result.Message
	s.report.Set(result)
	s.report.Requeue = finalizeInterval
	return nil
}

func (s *scope) removeBindings(ctx context.Context, workspace string) status.Result {
	return s.withBindings(ctx, workspace, func(b bindings) error { return b.remove(ctx, s.kubeconfig) })
}

func (s *scope) removeFinalizer(ctx context.Context) error {
	if err := s.config.Cluster.SetFinalizer(ctx, s.kubeconfig, operatorv1alpha1.FinalizerKubeconfigRBAC, false); err != nil {
		return err
	}
	return reconcile.ErrFinalized
}

func recordedWorkspace(k *operatorv1alpha1.Kubeconfig) string {
	if k.Status.Authorization == nil {
		return ""
	}
	return k.Status.Authorization.ProvisionedCluster
}
