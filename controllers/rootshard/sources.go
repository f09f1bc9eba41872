package rootshard

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/desired"
)

// missingSource says which source of trust that the spec names is not there, or "".
func (r *Reconciler) missingSource(ctx context.Context, root *operatorv1alpha1.RootShard) (string, error) {
	if brought := desired.BroughtCA(root); brought != "" {
		secret, err := apply.Get[corev1.Secret](ctx, r.Cluster, root.Namespace, brought)
		if err != nil {
			return "", err
		}
		if secret == nil || len(secret.Data[corev1.TLSCertKey]) == 0 || len(secret.Data[corev1.TLSPrivateKeyKey]) == 0 {
			return missingMessage("Secret", brought, root.Namespace, "caSecretRef") + " with a CA's tls.crt and tls.key", nil
		}
		return "", nil
	}
	issuer := root.Spec.Certificates.IssuerRef
	exists, err := r.Cluster.IssuerExists(ctx, root.Namespace, issuer)
	if err != nil || exists {
		return "", err
	}
	if issuer.Kind == "ClusterIssuer" {
		return missingMessage("ClusterIssuer", issuer.Name, "", "issuerRef"), nil
	}
	return missingMessage("Issuer", issuer.Name, root.Namespace, "issuerRef"), nil
}
