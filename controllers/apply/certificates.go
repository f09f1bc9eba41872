package apply

import (
	"context"
	"fmt"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	corev1 "k8s.io/api/core/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/pki"
	"github.com/atoll-dev/atoll/controllers/status"
)

// Certificates applies cert-manager objects, takes ownership of the Secrets that come of them, and reports whether all
// are issued.
func (c Cluster) Certificates(ctx context.Context, objects pki.Objects) (status.Result, error) {
	const condition = operatorv1alpha1.ConditionCertificatesReady
	for _, issuer := range objects.Issuers {
		if err := c.Object(ctx, condition, issuer); err != nil {
			return status.Result{}, err
		}
	}
	for _, certificate := range objects.Certificates {
		if err := c.Object(ctx, condition, certificate); err != nil {
			return status.Result{}, err
		}
		if err := c.OwnCertificateSecret(ctx, certificate); err != nil {
			return status.Result{}, err
		}
	}
	live := objects.Certificates
	if notReady := pki.NotReady(live); len(notReady) > 0 {
		return status.Wait(condition, "Issuing", "%s", pki.Summary(notReady, len(live))), nil
	}
	return status.OK(condition, "Issued", "%d of %d certificates are issued", len(live), len(live)), nil
}

// CertificatesWithCA applies the cert-manager objects of one that has a certificate authority of its own. While certificates are
// missing, a source of trust that the spec names and that is not there is named: cert-manager says it only on objects that
// nobody looks at.
func (c Cluster) CertificatesWithCA(ctx context.Context, namespace string, objects pki.Objects, trust operatorv1alpha1.Certificates) (status.Result, error) {
	result, err := c.Certificates(ctx, objects)
	if err != nil || result.State == status.Satisfied {
		return result, err
	}
	missing, err := c.missingCASource(ctx, namespace, trust)
	if err != nil || missing == "" {
		return result, err
	}
	return status.Wait(operatorv1alpha1.ConditionCertificatesReady, "SourceNotFound", "%s", missing), nil
}

// IssuerExists looks for an issuer of cert-manager that a spec names. Issuers of other groups are taken on trust: their
// kinds are unknown here.
func (c Cluster) IssuerExists(ctx context.Context, namespace string, ref *operatorv1alpha1.IssuerReference) (bool, error) {
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

// missingCASource says which source of trust that a spec names is not there and what to do, or "".
func (c Cluster) missingCASource(ctx context.Context, namespace string, spec operatorv1alpha1.Certificates) (string, error) {
	if brought := spec.CASecretRef; brought != nil && brought.Name != "" {
		secret, err := Get[corev1.Secret](ctx, c, namespace, brought.Name)
		if err != nil {
			return "", err
		}
		if secret == nil || len(secret.Data[corev1.TLSCertKey]) == 0 || len(secret.Data[corev1.TLSPrivateKeyKey]) == 0 {
			return caSourceMissing("Secret", brought.Name, namespace, "caSecretRef") + " with a CA's tls.crt and tls.key", nil
		}
		return "", nil
	}
	issuer := spec.IssuerRef
	exists, err := c.IssuerExists(ctx, namespace, issuer)
	if err != nil || exists {
		return "", err
	}
	if issuer.Kind == certmanagerv1.ClusterIssuerKind {
		return caSourceMissing(issuer.Kind, issuer.Name, "", "issuerRef"), nil
	}
	return caSourceMissing(certmanagerv1.IssuerKind, issuer.Name, namespace, "issuerRef"), nil
}

func caSourceMissing(kind, name, namespace, field string) string {
	where := ""
	if namespace != "" {
		where = " in namespace " + namespace
	}
	return fmt.Sprintf("%s %s, which certificates.%s names, does not exist%s: create it", kind, name, field, where)
}
