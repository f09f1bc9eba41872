package export

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/apiexport/identity"
)

// ensureIdentity generates an identity for an export that names no Secret, and verifies the identity in the Secret. It
// returns an error if a retry may help; problems that the provider has to fix are reported by a condition only.
func (c *exportController) ensureIdentity(ctx context.Context, export *apisv1alpha2.APIExport) error {
	reference := identitySecretRef(export)
	if reference == nil {
		generated, err := c.generateIdentity(ctx, export)
		if err != nil {
			conditionsv1alpha1.MarkFalse(export, apisv1alpha2.APIExportIdentityValid, apisv1alpha2.IdentityGenerationFailedReason,
				conditionsv1alpha1.SeverityError, "No secret could be created for the identity; the server retries: %v", err)
			return err
		}
		reference = generated
	}
	value, problem, err := c.identities.Read(ctx, reference)
	if err != nil {
		return err
	}
	setIdentity(export, reference, value, problem)
	return nil
}

func identitySecretRef(export *apisv1alpha2.APIExport) *corev1.SecretReference {
	if export.Spec.Identity == nil || export.Spec.Identity.SecretRef == nil || export.Spec.Identity.SecretRef.Name == "" {
		return nil
	}
	return export.Spec.Identity.SecretRef
}

// setIdentity sets status.identityHash, unless it is set, and the condition IdentityValid.
func setIdentity(export *apisv1alpha2.APIExport, reference *corev1.SecretReference, value []byte, problem string) {
	export.Status.IdentityHash, problem = identity.Verify(export.Status.IdentityHash, reference, value, problem, "export")
	if problem == "" {
		conditionsv1alpha1.MarkTrue(export, apisv1alpha2.APIExportIdentityValid)
		return
	}
	conditionsv1alpha1.MarkFalse(export, apisv1alpha2.APIExportIdentityValid, apisv1alpha2.IdentityVerificationFailedReason, conditionsv1alpha1.SeverityError, "%s", problem)
}

// generateIdentity creates a Secret with a new identity, unless it exists, and sets spec.identity.secretRef.
func (c *exportController) generateIdentity(ctx context.Context, export *apisv1alpha2.APIExport) (*corev1.SecretReference, error) {
	reference := &corev1.SecretReference{Namespace: apisv1alpha2.IdentitySecretNamespace, Name: export.Name}
	if err := c.identities.Ensure(ctx, reference); err != nil {
		return nil, err
	}
	status := export.Status.DeepCopy()
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil,
		`{"metadata":{"uid":%q,"resourceVersion":%q},"spec":{"identity":{"secretRef":{"namespace":%q,"name":%q}}}}`,
		export.UID, export.ResourceVersion, reference.Namespace, reference.Name))
	if err := c.cfg.Clients.Typed.Patch(ctx, export, patch); err != nil {
		return nil, fmt.Errorf("setting the secretRef of APIExport %q to %s/%s: %w", export.Name, reference.Namespace, reference.Name, err)
	}
	export.Status = *status
	return reference, nil
}
