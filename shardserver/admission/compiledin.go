package admission

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
)

// ofOurKinds keeps a plug-in to objects of the compiled-in kinds. Where a logical cluster does not show one of them, a
// tenant's definition may have its name: such objects are the tenant's, and none of our rules is about them.
func ofOurKinds(create func(Config) admission.Interface) func(Config) admission.Interface {
	return func(config Config) admission.Interface { return compiledIn{create(config)} }
}

type compiledIn struct{ admission.Interface }

// Admit implements admission.MutationInterface.
func (c compiledIn) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if mutating, ok := c.Interface.(admission.MutationInterface); ok && !isCustom(a) {
		return mutating.Admit(ctx, a, o)
	}
	return nil
}

// Validate implements admission.ValidationInterface.
func (c compiledIn) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if validating, ok := c.Interface.(admission.ValidationInterface); ok && !isCustom(a) {
		return validating.Validate(ctx, a, o)
	}
	return nil
}

// isCustom tells whether a request is about a custom resource.
func isCustom(a admission.Attributes) bool {
	for _, obj := range []runtime.Object{a.GetObject(), a.GetOldObject()} {
		if _, custom := obj.(runtime.Unstructured); custom {
			return true
		}
	}
	return false
}
