package admission

import (
	"context"
	"slices"

	"k8s.io/apiserver/pkg/admission"
)

// reservedTypeNames mean something else wherever a workspace type is named.
var reservedTypeNames = []string{"any", "system"}

// reservedNames refuses names that the system keeps for itself.
type reservedNames struct{ *admission.Handler }

func newReservedNames(Config) admission.Interface {
	return &reservedNames{admission.NewHandler(admission.Create)}
}

// Admit implements admission.MutationInterface. It changes nothing: it runs before the schema is looked at, so
// that the answer says why.
func (*reservedNames) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() == workspaceTypes && a.GetSubresource() == "" && slices.Contains(reservedTypeNames, a.GetName()) {
		return forbid(a, "name is reserved")
	}
	return nil
}
