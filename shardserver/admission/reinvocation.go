package admission

import (
	"context"

	"k8s.io/apiserver/pkg/admission"
)

// reinvocationHandler runs a chain of mutating plug-ins a second time if one of them requests it: a webhook or a policy
// changed the object after another had seen it. Plug-ins decide themselves whether they take part in the second run.
type reinvocationHandler struct{ chain admission.Interface }

// Handles implements admission.Interface.
func (r reinvocationHandler) Handles(operation admission.Operation) bool {
	return r.chain.Handles(operation)
}

// Admit implements admission.MutationInterface.
func (r reinvocationHandler) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	mutating, ok := r.chain.(admission.MutationInterface)
	if !ok {
		return nil
	}
	if err := mutating.Admit(ctx, a, o); err != nil {
		return err
	}
	again := a.GetReinvocationContext()
	if !again.ShouldReinvoke() {
		return nil
	}
	again.SetIsReinvoke()
	return mutating.Admit(ctx, a, o)
}

// Validate implements admission.ValidationInterface.
func (r reinvocationHandler) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if validating, ok := r.chain.(admission.ValidationInterface); ok {
		return validating.Validate(ctx, a, o)
	}
	return nil
}
