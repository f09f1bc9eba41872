package apply

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/atoll-dev/atoll/controllers/pki"
	"github.com/atoll-dev/atoll/controllers/status"
)

const reasonWaitingForCertificates = "WaitingForCertificates"

// Bundle applies a Secret with CA certificates: those of own, a Secret of the operator, then those in the Secrets that the user
// names. Its key tls.crt is filled in here.
func (c Cluster) Bundle(ctx context.Context, conditionType string, into *corev1.Secret, own string, refs ...*corev1.LocalObjectReference) error {
	pem, err := c.ReadBundle(ctx, conditionType, into.Namespace, own, refs...)
	if err != nil {
		return err
	}
	into.Data = map[string][]byte{corev1.TLSCertKey: pem}
	return c.Object(ctx, conditionType, into)
}

// ReadBundle reads CA certificates from the key tls.crt of Secrets, in order. own is a Secret of the operator; refs are
// the user's, and nil ones are left out. A Secret that is missing or wrong comes back as a result in an error.
func (c Cluster) ReadBundle(ctx context.Context, conditionType, namespace, own string, refs ...*corev1.LocalObjectReference) ([]byte, error) {
	names := []string{own}
	for _, ref := range refs {
		if ref != nil && ref.Name != "" {
			names = append(names, ref.Name)
		}
	}
	var parts []pki.Part
	for i, name := range names {
		secret, err := Get[corev1.Secret](ctx, c, namespace, name)
		switch {
		case err != nil:
			return nil, err
		case secret == nil && i == 0:
			return nil, status.Wait(conditionType, reasonWaitingForCertificates, "waiting for Secret %s, which cert-manager makes", name).AsError()
		case secret == nil:
			return nil, status.Wait(conditionType, "SecretNotFound", "Secret %s is missing in namespace %s: create it with CA certificates under the key tls.crt", name, namespace).AsError()
		case len(secret.Data[corev1.TLSCertKey]) == 0:
			return nil, status.Stall(conditionType, "SecretInvalid", "Secret %s has no key tls.crt: put CA certificates there, in PEM", name).AsError()
		}
		parts = append(parts, pki.Part{Source: fmt.Sprintf("key tls.crt of Secret %s", name), PEM: secret.Data[corev1.TLSCertKey]})
	}
	merged, err := pki.Merge(parts...)
	if err != nil {
		return nil, status.Stall(conditionType, "SecretInvalid", "%v", err).AsError()
	}
	return merged, nil
}
