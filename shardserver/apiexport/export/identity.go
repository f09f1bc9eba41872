package export

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
)

// identityBytes is how much randomness an identity has.
const identityBytes = 32

// identify gives an export that names no secret one of its own, and says in the status whether the secret that it names
// holds its identity. An error is for another try; what only the provider can mend is none.
func (c *exportController) identify(ctx context.Context, export *apisv1alpha2.APIExport) error {
	reference := secretOf(export)
	if reference == nil {
		generated, err := c.generate(ctx, export)
		if err != nil {
			conditionsv1alpha1.MarkFalse(export, apisv1alpha2.APIExportIdentityValid, apisv1alpha2.IdentityGenerationFailedReason,
				conditionsv1alpha1.SeverityError, "No secret could be made for the identity; this is tried again: %v", err)
			return err
		}
		reference = generated
	}
	value, fault, err := c.identity(ctx, reference)
	if err != nil {
		return err
	}
	verify(export, reference, value, fault)
	return nil
}

func secretOf(export *apisv1alpha2.APIExport) *corev1.SecretReference {
	if export.Spec.Identity == nil || export.Spec.Identity.SecretRef == nil || export.Spec.Identity.SecretRef.Name == "" {
		return nil
	}
	return export.Spec.Identity.SecretRef
}

// verify sets the identity of an export that has none yet, and compares it for one that has. It never changes an
// identity: objects are stored under it.
func verify(export *apisv1alpha2.APIExport, reference *corev1.SecretReference, value []byte, fault string) {
	if fault == "" && len(value) == 0 {
		fault = fmt.Sprintf("secret %s/%s has no key %q; put the identity there", reference.Namespace, reference.Name, apisv1alpha2.SecretKeyAPIExportIdentity)
	}
	if fault == "" {
		sum := sha256.Sum256(value)
		hash := hex.EncodeToString(sum[:])
		if export.Status.IdentityHash == "" {
			export.Status.IdentityHash = hash
		}
		if export.Status.IdentityHash == hash {
			conditionsv1alpha1.MarkTrue(export, apisv1alpha2.APIExportIdentityValid)
			return
		}
		fault = fmt.Sprintf("hash mismatch: secret %s/%s holds another identity than status.identityHash was made of; restore the secret, or delete the export and create it anew",
			reference.Namespace, reference.Name)
	}
	conditionsv1alpha1.MarkFalse(export, apisv1alpha2.APIExportIdentityValid, apisv1alpha2.IdentityVerificationFailedReason, conditionsv1alpha1.SeverityError, "%s", fault)
}

// identity reads the identity from a secret. The fault is something that the provider has to mend.
func (c *exportController) identity(ctx context.Context, reference *corev1.SecretReference) (value []byte, fault string, err error) {
	secret, err := c.secrets.Get(ctx, reference.Namespace, reference.Name)
	if apierrors.IsNotFound(err) { // or not seen yet
		secret, err = c.secrets.GetLatest(ctx, reference.Namespace, reference.Name)
	}
	if apierrors.IsNotFound(err) {
		return nil, fmt.Sprintf("secret %s/%s was not found; create it with the identity in key %q", reference.Namespace, reference.Name, apisv1alpha2.SecretKeyAPIExportIdentity), nil
	}
	if err != nil {
		return nil, "", err
	}
	return secret.Data[apisv1alpha2.SecretKeyAPIExportIdentity], "", nil
}

// generate makes a secret with a new identity, unless there is one of its name, and has the export refer to it.
func (c *exportController) generate(ctx context.Context, export *apisv1alpha2.APIExport) (*corev1.SecretReference, error) {
	reference := &corev1.SecretReference{Namespace: apisv1alpha2.IdentitySecretNamespace, Name: export.Name}
	if err := c.ensureSecret(ctx, reference); err != nil {
		return nil, err
	}
	status := export.Status.DeepCopy()
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil,
		`{"metadata":{"uid":%q,"resourceVersion":%q},"spec":{"identity":{"secretRef":{"namespace":%q,"name":%q}}}}`,
		export.UID, export.ResourceVersion, reference.Namespace, reference.Name))
	if err := c.cfg.Clients.Typed.Patch(ctx, export, patch); err != nil {
		return nil, fmt.Errorf("having APIExport %q refer to secret %s/%s: %w", export.Name, reference.Namespace, reference.Name, err)
	}
	export.Status = *status
	return reference, nil
}

func (c *exportController) ensureSecret(ctx context.Context, reference *corev1.SecretReference) error {
	_, err := c.secrets.GetLatest(ctx, reference.Namespace, reference.Name)
	if err == nil || !apierrors.IsNotFound(err) {
		return err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: reference.Namespace}}
	if err := c.cfg.Clients.Typed.Create(ctx, namespace); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating namespace %s: %w", reference.Namespace, err)
	}
	key := make([]byte, identityBytes)
	_, _ = rand.Read(key) // never fails on supported systems
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: reference.Namespace, Name: reference.Name},
		Data:       map[string][]byte{apisv1alpha2.SecretKeyAPIExportIdentity: []byte(base64.RawURLEncoding.EncodeToString(key))},
	}
	if err := c.cfg.Clients.Typed.Create(ctx, secret); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating secret %s/%s: %w", reference.Namespace, reference.Name, err)
	}
	return nil
}
