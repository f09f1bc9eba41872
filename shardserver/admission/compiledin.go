package admission

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
)

// forCompiledInKinds restricts a plug-in to objects of compiled-in kinds. In a logical cluster that does not serve one
// of them, a tenant's definition may have its name: such objects are custom resources, to which the plug-in's rules do
// not apply.
func forCompiledInKinds(create func(Config) admission.Interface) func(Config) admission.Interface {
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

// isCustom reports whether a request is for a custom resource.
func isCustom(a admission.Attributes) bool {
	for _, obj := range []runtime.Object{a.GetObject(), a.GetOldObject()} {
		if _, custom := obj.(runtime.Unstructured); custom {
			return true
		}
	}
	return false
}
