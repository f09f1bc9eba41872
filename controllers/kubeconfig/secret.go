package kubeconfig

import (
	"context"
	"fmt"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/pki"
	"github.com/atoll-dev/atoll/controllers/status"
)

// secret makes the certificate and the Secret with the kubeconfig. The Secret is written anew whenever the certificate
// or a CA in it changes.
func (r *Reconciler) secret(ctx context.Context, s *scope) error {
	if s.target == nil {
		return nil
	}
	result, err := r.Cluster.Certificates(ctx, pki.Objects{Certificates: []*certmanagerv1.Certificate{pki.Kubeconfig(s.kubeconfig, s.target.root)}})
	if err := apply.Settle(&s.report, result, err); err != nil {
		return err
	}
	result, err = r.provideSecret(ctx, s)
	return apply.Settle(&s.report, result, err)
}

func (r *Reconciler) provideSecret(ctx context.Context, s *scope) (status.Result, error) {
	const condition = operatorv1alpha1.ConditionAvailable
	k := s.kubeconfig
	name := k.Spec.SecretRef.Name
	if name == "" || name == pki.KubeconfigCertificate(k) {
		return status.Stall(condition, "SecretNameInvalid", "secretRef.name is %q: name a Secret of its own", name), nil
	}
	existing, err := apply.Get[corev1.Secret](ctx, r.Cluster, k.Namespace, name)
	if err != nil {
		return status.Result{}, err
	}
	owned, taken := ownership(existing, k)
	if taken != "" {
		return status.Stall(condition, "SecretTaken", "Secret %s belongs to %s: choose another secretRef.name", name, taken), nil
	}
	// A certificate that is not the one the spec wants is not handed out: it may be another user's, from before.
	if s.report.Get(operatorv1alpha1.ConditionCertificatesReady).State != status.Satisfied {
		return status.Wait(condition, operatorv1alpha1.ReasonClientCertificateSecretNotReady, "waiting for certificate %s", pki.KubeconfigCertificate(k)), nil
	}
	certificate, err := apply.Get[corev1.Secret](ctx, r.Cluster, k.Namespace, pki.KubeconfigCertificate(k))
	if err != nil {
		s.report.Set(status.Wait(condition, operatorv1alpha1.ReasonClientCertificateSecretError, "Secret %s cannot be read", pki.KubeconfigCertificate(k)))
		return status.Result{}, err
	}
	if certificate == nil || len(certificate.Data[corev1.TLSCertKey]) == 0 {
		return status.Wait(condition, operatorv1alpha1.ReasonClientCertificateSecretNotReady, "waiting for certificate %s", pki.KubeconfigCertificate(k)), nil
	}
	ca, result, err := r.serverCAs(ctx, s)
	if err != nil || result.Type != "" {
		return result, err
	}
	return r.writeSecret(ctx, s, certificate, ca, owned)
}

// writeSecret writes the kubeconfig with the credentials of a certificate.
func (r *Reconciler) writeSecret(ctx context.Context, s *scope, certificate *corev1.Secret, ca []byte, owned bool) (status.Result, error) {
	const condition = operatorv1alpha1.ConditionAvailable
	k := s.kubeconfig
	file, err := desired.UserKubeconfig{
		User: k.Spec.Username, Server: s.target.url, Workspace: workspace(k), CA: ca,
		Cert: certificate.Data[corev1.TLSCertKey], Key: certificate.Data[corev1.TLSPrivateKeyKey], WithShardBase: s.target.shard,
	}.File()
	if err != nil {
		return status.Result{}, fmt.Errorf("writing the kubeconfig of Kubeconfig %s: %w", k.Name, err)
	}
	if err := r.Cluster.Object(ctx, condition, desired.UserSecret(k, file, owned)); err != nil {
		return status.Result{}, err
	}
	if expiry, err := pki.Expiry(certificate.Data[corev1.TLSCertKey]); err == nil {
		s.expires = &metav1.Time{Time: expiry}
	}
	message := fmt.Sprintf("Secret %s holds the kubeconfig", k.Spec.SecretRef.Name)
	if !owned {
		message += "; it holds other keys too, so it stays when this Kubeconfig is deleted"
	}
	return status.OK(condition, operatorv1alpha1.ReasonSecretsReady, "%s", message), nil
}

// serverCAs are the CAs that users of the kubeconfig trust: the one that signs servers, the root above it, which some TLS
// libraries want, and those of the front proxy.
func (r *Reconciler) serverCAs(ctx context.Context, s *scope) ([]byte, status.Result, error) {
	const condition = operatorv1alpha1.ConditionAvailable
	root, namespace := s.target.root, s.kubeconfig.Namespace
	own := desired.CASecret(root, desired.ServerCA)
	secret, err := apply.Get[corev1.Secret](ctx, r.Cluster, namespace, own)
	if err != nil {
		s.report.Set(status.Wait(condition, operatorv1alpha1.ReasonServerCASecretError, "Secret %s cannot be read", own))
		return nil, status.Result{}, err
	}
	if secret == nil {
		return nil, status.Wait(condition, operatorv1alpha1.ReasonServerCASecretNotReady, "waiting for Secret %s, which RootShard %s makes", own, root.Name), nil
	}
	ca, err := r.Cluster.ReadBundle(ctx, condition, namespace, own,
		&corev1.LocalObjectReference{Name: desired.CASecret(root, desired.RootCA)}, s.target.trust)
	return ca, status.Result{}, err
}

// ownership decides whether the Secret goes with the Kubeconfig: yes, unless others keep something in it. taken names
// another controller that it belongs to.
func ownership(existing *corev1.Secret, k *operatorv1alpha1.Kubeconfig) (owned bool, taken string) {
	if existing == nil {
		return true, ""
	}
	if controller := metav1.GetControllerOf(existing); controller != nil && controller.UID != k.UID {
		return false, controller.Kind + " " + controller.Name
	}
	if certificate := existing.Annotations[certmanagerv1.CertificateNameKey]; certificate != "" {
		return false, "Certificate " + certificate
	}
	for key := range existing.Data {
		if key != desired.KubeconfigKey {
			return false, ""
		}
	}
	return true, ""
}

// workspace is where the kubeconfig points, and where its bindings are made unless the deprecated field says otherwise.
func workspace(k *operatorv1alpha1.Kubeconfig) string {
	if k.Spec.TargetWorkspace != "" {
		return k.Spec.TargetWorkspace
	}
	return "root"
}

// bindingWorkspace is where bindings are wanted; "" for none.
func bindingWorkspace(k *operatorv1alpha1.Kubeconfig) string {
	if k.Spec.Authorization == nil {
		return ""
	}
	if k.Spec.TargetWorkspace == "" && k.Spec.Authorization.ClusterRoleBindings.Cluster != "" {
		return k.Spec.Authorization.ClusterRoleBindings.Cluster
	}
	return workspace(k)
}
