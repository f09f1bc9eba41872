package apply

import (
	"context"
	"slices"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	corev1 "k8s.io/api/core/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/pki"
	"github.com/atoll-dev/atoll/controllers/status"
)

// ApplyCertificates applies cert-manager objects, and reports whether all certificates are issued except those that nothing waits for.
func (c Cluster) ApplyCertificates(ctx context.Context, objects pki.Objects) (status.Result, error) {
	const condition = operatorv1alpha1.ConditionCertificatesReady
	for _, issuer := range objects.Issuers {
		if err := c.ApplyObject(ctx, condition, issuer); err != nil {
			return status.Result{}, err
		}
	}
	for _, certificate := range slices.Concat(objects.Certificates, objects.Pending) {
		if err := c.ApplyObject(ctx, condition, certificate); err != nil {
			return status.Result{}, err
		}
	}
	live := objects.Certificates
	if notReady := pki.NotReady(live); len(notReady) > 0 {
		return status.Wait(condition, "Issuing", "%s", pki.SummarizeNotReady(notReady, len(live))), nil
	}
	return status.OK(condition, "Issued", "%d of %d certificates are issued", len(live), len(live)), nil
}

// ApplyCertificatesWithCA is ApplyCertificates for objects with their own certificate authority. source is the result of ObserveCASource:
// while certificates are missing, a missing source is the reported reason.
func (c Cluster) ApplyCertificatesWithCA(ctx context.Context, objects pki.Objects, source status.Result) (status.Result, error) {
	result, err := c.ApplyCertificates(ctx, objects)
	if err == nil && result.State != status.Satisfied && source.Type != "" {
		return source, nil
	}
	return result, err
}

// ObserveCASource checks that the issuer or the CA Secret of a spec exists. The result has no type if it does, or if the spec names none.
// cert-manager reports a missing one only on its own objects.
func (c Cluster) ObserveCASource(ctx context.Context, namespace string, spec operatorv1alpha1.Certificates) (status.Result, error) {
	if provided := spec.CASecretRef; provided != nil && provided.Name != "" {
		secret, err := Get[corev1.Secret](ctx, c, namespace, provided.Name)
		if err != nil {
			return status.Result{}, err
		}
		if secret == nil || len(secret.Data[corev1.TLSCertKey]) == 0 || len(secret.Data[corev1.TLSPrivateKeyKey]) == 0 {
			return waitForCASource("Secret %s, which certificates.caSecretRef names, does not exist in namespace %s: create it with a CA's tls.crt and tls.key",
				provided.Name, namespace), nil
		}
		return status.Result{}, nil
	}
	issuer := spec.IssuerRef
	exists, err := c.issuerExists(ctx, namespace, issuer)
	switch {
	case err != nil || exists:
		return status.Result{}, err
	case issuer.Kind == certmanagerv1.ClusterIssuerKind:
		return waitForCASource("ClusterIssuer %s, which certificates.issuerRef names, does not exist: create it", issuer.Name), nil
	}
	return waitForCASource("Issuer %s, which certificates.issuerRef names, does not exist in namespace %s: create it", issuer.Name, namespace), nil
}

func waitForCASource(format string, args ...any) status.Result {
	return status.Wait(operatorv1alpha1.ConditionCertificatesReady, status.ReasonSourceNotFound, format, args...)
}

// issuerExists reports whether an issuer of cert-manager exists. It assumes that issuers of other groups exist, because it does not know
// their kinds.
func (c Cluster) issuerExists(ctx context.Context, namespace string, ref *operatorv1alpha1.IssuerReference) (bool, error) {
	if ref == nil || (ref.Group != "" && ref.Group != "cert-manager.io") {
		return true, nil
	}
	switch ref.Kind {
	case "", certmanagerv1.IssuerKind:
		issuer, err := Get[certmanagerv1.Issuer](ctx, c, namespace, ref.Name)
		return issuer != nil, err
	case certmanagerv1.ClusterIssuerKind:
		issuer, err := Get[certmanagerv1.ClusterIssuer](ctx, c, "", ref.Name)
		return issuer != nil, err
	}
	return true, nil
}
