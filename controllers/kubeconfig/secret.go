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

const available = operatorv1alpha1.ConditionAvailable

// secrets are the observed Secrets whose content becomes part of a kubeconfig.
type secrets struct {
	existing    *corev1.Secret // that the spec names, or nil
	certificate *corev1.Secret // with the client certificate, or nil
	cas         apply.Files    // sources of the bundle of server CAs
}

// observeSecrets reads the Secrets. An error leaves a result with the reason that existing tools expect.
func (s *scope) observeSecrets(ctx context.Context) (err error) {
	c, k := s.config.Cluster, s.kubeconfig
	if name := k.Spec.SecretRef.Name; name != "" {
		if s.secrets.existing, err = apply.Get[corev1.Secret](ctx, c, k.Namespace, name); err != nil {
			return err
		}
	}
	name := pki.KubeconfigCertificate(k)
	if s.secrets.certificate, err = apply.Get[corev1.Secret](ctx, c, k.Namespace, name); err != nil {
		s.report.Set(status.Wait(available, operatorv1alpha1.ReasonClientCertificateSecretError, "Secret %s cannot be read", name))
		return err
	}
	bundle := s.serverCAs()
	if s.secrets.cas, err = c.ReadFiles(ctx, k.Namespace, bundle.Sources(), nil); err != nil {
		s.report.Set(status.Wait(available, operatorv1alpha1.ReasonServerCASecretError, "Secret %s cannot be read", bundle.CA))
	}
	return err
}

// serverCAs is the bundle of CAs that users of the kubeconfig trust: the one that signs servers, the root above it,
// which some TLS libraries require, and those of the front proxy.
func (s *scope) serverCAs() desired.Bundle {
	root := s.target.root
	return desired.Bundle{
		CA:   desired.CASecret(root, desired.ServerCA),
		Refs: []*corev1.LocalObjectReference{{Name: desired.CASecret(root, desired.RootCA)}, s.target.caBundle},
	}
}

func (s *scope) issueCertificate(ctx context.Context) error {
	if s.target == nil {
		return nil
	}
	objects := pki.Objects{Certificates: []*certmanagerv1.Certificate{pki.Kubeconfig(s.kubeconfig, s.target.root)}}
	return s.report.SetResult(s.config.Cluster.ApplyCertificates(ctx, objects))
}

// writeSecret applies the Secret with the kubeconfig when the certificate or a CA in it changes.
func (s *scope) writeSecret(ctx context.Context) error {
	if s.target == nil {
		return nil
	}
	owned, blocked := s.checkSecret()
	if blocked.Type != "" {
		s.report.Set(blocked)
		return nil
	}
	ca, err := s.secrets.cas.MergeBundle(available, s.kubeconfig.Namespace, s.serverCAs())
	if err != nil {
		return s.report.SetResult(status.Result{}, err)
	}
	return s.report.SetResult(s.applySecret(ctx, ca, owned))
}

// checkSecret decides whether the Secret may be written, and whether the Kubeconfig owns it. The result has no type if
// it may.
func (s *scope) checkSecret() (owned bool, blocked status.Result) {
	k, certificate := s.kubeconfig, s.secrets.certificate
	name := k.Spec.SecretRef.Name
	if name == "" || name == pki.KubeconfigCertificate(k) {
		return false, status.Stall(available, "SecretNameInvalid", "secretRef.name is %q: name a Secret of its own", name)
	}
	owned, owner := checkOwnership(s.secrets.existing, k)
	if owner != "" {
		return false, status.Stall(available, "SecretTaken", "Secret %s belongs to %s: choose another secretRef.name", name, owner)
	}
	// A certificate that does not match the spec is not written, because it may have been issued for another user.
	issued := s.report.Get(operatorv1alpha1.ConditionCertificatesReady).State == status.Satisfied
	if !issued || certificate == nil || len(certificate.Data[corev1.TLSCertKey]) == 0 {
		return false, status.Wait(available, operatorv1alpha1.ReasonClientCertificateSecretNotReady, "waiting for certificate %s", pki.KubeconfigCertificate(k))
	}
	root := s.target.root
	if ca := desired.CASecret(root, desired.ServerCA); s.secrets.cas.Secrets[ca] == nil {
		return false, status.Wait(available, operatorv1alpha1.ReasonServerCASecretNotReady, "waiting for Secret %s, which RootShard %s creates", ca, root.Name)
	}
	return owned, status.Result{}
}

// applySecret applies the Secret with the client certificate in it.
func (s *scope) applySecret(ctx context.Context, ca []byte, owned bool) (status.Result, error) {
	k, certificate := s.kubeconfig, s.secrets.certificate
	user := &desired.UserKubeconfig{
		User: k.Spec.Username, Server: s.target.url, Workspace: targetWorkspace(k), CA: ca,
		Cert: certificate.Data[corev1.TLSCertKey], Key: certificate.Data[corev1.TLSPrivateKeyKey], WithShardBase: s.target.isShard,
	}
	file, err := user.File()
	if err != nil {
		return status.Result{}, fmt.Errorf("rendering the kubeconfig of Kubeconfig %s: %w", k.Name, err)
	}
	if err := s.config.Cluster.ApplyObject(ctx, available, desired.UserSecret(k, s.target.root, file, owned)); err != nil {
		return status.Result{}, err
	}
	s.user = user
	if notBefore, expiry, err := pki.ParseValidity(certificate.Data[corev1.TLSCertKey]); err == nil {
		s.issuedAt, s.expiresAt = notBefore, &metav1.Time{Time: expiry}
	}
	message := fmt.Sprintf("Secret %s holds the kubeconfig", k.Spec.SecretRef.Name)
	if !owned {
		message += "; it holds other keys too, so it stays when this Kubeconfig is deleted"
	}
	return status.OK(available, operatorv1alpha1.ReasonSecretsReady, "%s", message), nil
}

// checkOwnership decides whether the Secret is deleted with the Kubeconfig: yes, unless it contains data of others. taken names another
// controller that it belongs to.
func checkOwnership(existing *corev1.Secret, k *operatorv1alpha1.Kubeconfig) (owned bool, owner string) {
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

// targetWorkspace is the workspace that the kubeconfig points to, which also contains its bindings unless the deprecated field names
// another one.
func targetWorkspace(k *operatorv1alpha1.Kubeconfig) string {
	if k.Spec.TargetWorkspace != "" {
		return k.Spec.TargetWorkspace
	}
	return "root"
}

// bindingWorkspace is the workspace of the bindings; "" for no bindings.
func bindingWorkspace(k *operatorv1alpha1.Kubeconfig) string {
	if k.Spec.Authorization == nil {
		return ""
	}
	if k.Spec.TargetWorkspace == "" && k.Spec.Authorization.ClusterRoleBindings.Cluster != "" {
		return k.Spec.Authorization.ClusterRoleBindings.Cluster
	}
	return targetWorkspace(k)
}
