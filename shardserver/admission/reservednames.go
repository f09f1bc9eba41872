package admission

import (
	"context"
	"slices"

	"k8s.io/apiserver/pkg/admission"
)

// reservedTypeNames have a special meaning in references to workspace types.
var reservedTypeNames = []string{"any", "system"}

// reservedNames refuses names that are reserved for the system.
type reservedNames struct{ *admission.Handler }

func newReservedNames(Config) admission.Interface {
	return &reservedNames{admission.NewHandler(admission.Create)}
}

// Admit implements admission.MutationInterface. It changes nothing: it runs before schema validation, so that the error
// states the reason.
func (*reservedNames) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() == workspaceTypes && a.GetSubresource() == "" && slices.Contains(reservedTypeNames, a.GetName()) {
		return forbid(a, "name is reserved")
	}
	return nil
}
