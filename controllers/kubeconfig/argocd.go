package kubeconfig

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/status"
)

const registered = operatorv1alpha1.ConditionArgoCDRegistered

// registerInArgoCD reconciles the Secret that registers the workspace as a cluster of Argo CD. Owner references cannot cross namespaces,
// so the reconciler records the Secret in the status, and sets a finalizer, before it creates the Secret.
func (s *scope) registerInArgoCD(ctx context.Context) error {
	k, wanted := s.kubeconfig, s.argoCDSecret()
	if recorded := k.Status.ArgoCDSecret; recorded != nil && (wanted == nil || *recorded != *wanted) {
		if err := s.removeFromArgoCD(ctx, recorded); err != nil {
			return err
		}
		k.Status.ArgoCDSecret = nil
	}
	if err := s.config.Cluster.SetFinalizer(ctx, k, operatorv1alpha1.FinalizerKubeconfigArgoCD, wanted != nil); err != nil {
		return err
	}
	switch {
	case wanted == nil:
		s.report.RemoveCondition(registered)
		return nil
	case k.Status.ArgoCDSecret == nil:
		k.Status.ArgoCDSecret = wanted
		s.report.Set(status.Wait(registered, "Registering", "creating Secret %s/%s", wanted.Namespace, wanted.Name))
		s.report.Requeue = time.Millisecond // the next reconcile creates it, with the name recorded
		return nil
	case s.user == nil:
		s.report.Set(status.Wait(registered, "WaitingForKubeconfig", "waiting for the kubeconfig"))
		return nil
	}
	return s.report.SetResult(s.applyToArgoCD(ctx, wanted))
}

// argoCDSecret returns the Secret that the spec requests, or nil.
func (s *scope) argoCDSecret() *corev1.SecretReference {
	if s.kubeconfig.Spec.ArgoCD == nil || s.config.ArgoCDNamespace == "" {
		return nil
	}
	return &corev1.SecretReference{Namespace: s.config.ArgoCDNamespace, Name: desired.ArgoCDSecretName(s.kubeconfig)}
}

func (s *scope) applyToArgoCD(ctx context.Context, wanted *corev1.SecretReference) (status.Result, error) {
	existing, err := apply.Get[corev1.Secret](ctx, s.config.Cluster, wanted.Namespace, wanted.Name)
	if err != nil {
		return status.Result{}, err
	}
	if existing != nil && !isRegistrationOf(existing, s.kubeconfig) {
		return status.Stall(registered, "SecretTaken", "Secret %s/%s is not that of this Kubeconfig: delete it, or choose another name for the Kubeconfig", wanted.Namespace, wanted.Name), nil
	}
	secret, err := desired.ArgoCDSecret(s.kubeconfig, s.target.root, wanted.Namespace, *s.user)
	if err != nil {
		return status.Result{}, err
	}
	secret.Annotations = refreshAnnotations(existing, s.servedAPIs(ctx), s.now)
	switch err := s.config.Cluster.ApplyObject(ctx, registered, secret); {
	case apierrors.IsNotFound(err):
		return status.Wait(registered, "NamespaceNotFound", "namespace %s does not exist: install Argo CD, or correct --argocd-namespace of the operator", wanted.Namespace), nil
	case err != nil:
		return status.Result{}, err
	}
	s.report.RequeueWithin(refreshInterval)
	return status.OK(registered, "Registered", "Secret %s/%s registers the workspace", wanted.Namespace, wanted.Name), nil
}

// isRegistrationOf reports whether this operator created a Secret for a Kubeconfig.
func isRegistrationOf(secret *corev1.Secret, k *operatorv1alpha1.Kubeconfig) bool {
	return secret.Labels[operatorv1alpha1.LabelKubeconfig] == string(k.UID)
}

// removeFromArgoCD deletes the Secret, if it belongs to the Kubeconfig.
func (s *scope) removeFromArgoCD(ctx context.Context, recorded *corev1.SecretReference) error {
	existing, err := apply.Get[corev1.Secret](ctx, s.config.Cluster, recorded.Namespace, recorded.Name)
	if err != nil || existing == nil || !isRegistrationOf(existing, s.kubeconfig) {
		return err
	}
	if err := s.config.Cluster.Delete(ctx, existing, client.Preconditions{UID: &existing.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing the cluster of Argo CD: %w", err)
	}
	return nil
}

// unregister removes the Secret of a Kubeconfig that is being deleted, and then its finalizer.
func (s *scope) unregister(ctx context.Context) error {
	k := s.kubeconfig
	if !controllerutil.ContainsFinalizer(k, operatorv1alpha1.FinalizerKubeconfigArgoCD) {
		return nil
	}
	if recorded := k.Status.ArgoCDSecret; recorded != nil {
		if err := s.removeFromArgoCD(ctx, recorded); err != nil {
			s.report.Set(status.Wait(registered, "Unregistering", "deletion waits to remove Secret %s/%s", recorded.Namespace, recorded.Name))
			return err
		}
	}
	return s.config.Cluster.SetFinalizer(ctx, k, operatorv1alpha1.FinalizerKubeconfigArgoCD, false)
}
