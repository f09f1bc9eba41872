package apply

import (
	"context"
	"fmt"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// Get reads an object; it is nil if it does not exist.
func Get[T any, P interface {
	*T
	client.Object
}](ctx context.Context, c client.Reader, namespace, name string) (P, error) {
	var object P = new(T)
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading %T %s/%s: %w", object, namespace, name, err)
	}
	return object, nil
}

// SetCertificateSecretOwner makes a Certificate the owner of its Secret. By default, cert-manager does not delete Secrets, and valid
// private keys remain. The owner is the Certificate and not the custom resource, so that the Secret is deleted only after the
// Certificate, and cert-manager does not create it again in between.
func (c Cluster) SetCertificateSecretOwner(ctx context.Context, certificate *certmanagerv1.Certificate) error {
	secret, err := Get[corev1.Secret](ctx, c, certificate.Namespace, certificate.Spec.SecretName)
	if err != nil || secret == nil {
		return err
	}
	if secret.Annotations[certmanagerv1.CertificateNameKey] != certificate.Name {
		return nil // not from this Certificate
	}
	for _, owner := range secret.OwnerReferences {
		if owner.UID == certificate.UID {
			return nil
		}
	}
	return c.applyAs(ctx, FieldManager, operatorv1alpha1.ConditionCertificatesReady, &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{
			Name: secret.Name, Namespace: secret.Namespace,
			// With the UID, the patch does not create an empty Secret if the Secret is deleted in the meantime.
			UID: secret.UID,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: certmanagerv1.SchemeGroupVersion.String(), Kind: certmanagerv1.CertificateKind,
				Name: certificate.Name, UID: certificate.UID,
			}},
		},
	})
}
