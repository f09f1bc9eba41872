package tenancy

import (
	"context"
	"slices"

	"k8s.io/apiserver/pkg/admission"

	"github.com/atoll-dev/atoll/shardserver/admission/rules"
)

// reservedTypeNames have a special meaning in references to workspace types.
var reservedTypeNames = []string{"any", "system"}

// reservedNames refuses names that are reserved for the system.
type reservedNames struct{ *admission.Handler }

// NewReservedNames returns the plug-in apis.kcp.io/ReservedNames.
func NewReservedNames(rules.Config) admission.Interface {
	return &reservedNames{admission.NewHandler(admission.Create)}
}

// Admit implements admission.MutationInterface. It changes nothing: it runs before schema validation, so that the error
// states the reason.
func (*reservedNames) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() == rules.WorkspaceTypes && a.GetSubresource() == "" && slices.Contains(reservedTypeNames, a.GetName()) {
		return rules.Forbid(a, "name is reserved")
	}
	return nil
}
