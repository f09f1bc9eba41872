package virtualworkspace

import (
	"strings"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/pki"
	"github.com/atoll-dev/atoll/controllers/status"
	"github.com/atoll-dev/atoll/controllers/validation"
)

// maxNameLength keeps the names of Services, which are made from it, within 63 characters.
const maxNameLength = 63 - len("-virtual-workspace")

// validateSpec rejects invalid specs, and reports the ignored fields of valid ones.
func validateSpec(virtualWorkspace *operatorv1alpha1.VirtualWorkspace) status.Result {
	if mistakes := status.Join(validateName(virtualWorkspace), validation.Address(virtualWorkspace.Spec.External)); mistakes.Type != "" {
		return mistakes
	}
	return status.SpecHonored(ignoredFields(virtualWorkspace))
}

func validateName(virtualWorkspace *operatorv1alpha1.VirtualWorkspace) status.Result {
	const condition = operatorv1alpha1.ConditionSpecHonored
	switch {
	case len(virtualWorkspace.Name) > maxNameLength:
		return status.Stall(condition, "InvalidName", "the name has %d characters and may have %d, because names of Services are made from it: recreate the VirtualWorkspace under a shorter name", len(virtualWorkspace.Name), maxNameLength)
	case strings.Contains(virtualWorkspace.Name, "."):
		return status.Stall(condition, "InvalidName", "the name contains a dot, and names of Services made from it must not: recreate the VirtualWorkspace under a name without dots")
	}
	return status.Result{}
}

// ignoredFields returns the fields of a VirtualWorkspace that have no effect.
func ignoredFields(virtualWorkspace *operatorv1alpha1.VirtualWorkspace) []status.IgnoredField {
	var out []status.IgnoredField
	if external := virtualWorkspace.Spec.External; external.PrivateHostname != "" || external.PrivatePort != nil {
		out = append(out, status.IgnoredField{Field: "external.privateHostname", Advice: "all clients use the public address; remove it"})
	}
	return append(out, status.UnknownTemplateKeys("certificateTemplates", virtualWorkspace.Spec.CertificateTemplates, pki.VirtualWorkspaceTemplateKeys())...)
}
