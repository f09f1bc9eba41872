package virtual

import (
	"context"

	"k8s.io/apiserver/pkg/admission"
)

type admissionKey struct{}

// WithAdmission returns a context whose writes also pass the admission rules of a virtual workspace, for requests that
// are forwarded to a logical cluster (InClusterAs). Rules may implement admission.MutationInterface, which runs before
// the mutating admission of the shard, and admission.ValidationInterface.
func WithAdmission(ctx context.Context, rules admission.Interface) context.Context {
	return context.WithValue(ctx, admissionKey{}, rules)
}

// NewAdmission returns an admission chain that runs the rules of a request (WithAdmission) before delegate.
func NewAdmission(delegate admission.Interface) admission.Interface {
	return requestAdmission{delegate}
}

type requestAdmission struct{ delegate admission.Interface }

// Handles implements admission.Interface. Rules differ between requests, so it always returns true.
func (a requestAdmission) Handles(admission.Operation) bool { return true }

// Admit implements admission.MutationInterface.
func (a requestAdmission) Admit(ctx context.Context, attributes admission.Attributes, o admission.ObjectInterfaces) error {
	for _, rules := range a.chain(ctx, attributes) {
		if mutating, ok := rules.(admission.MutationInterface); ok {
			if err := mutating.Admit(ctx, attributes, o); err != nil {
				return err
			}
		}
	}
	return nil
}

// Validate implements admission.ValidationInterface.
func (a requestAdmission) Validate(ctx context.Context, attributes admission.Attributes, o admission.ObjectInterfaces) error {
	for _, rules := range a.chain(ctx, attributes) {
		if validating, ok := rules.(admission.ValidationInterface); ok {
			if err := validating.Validate(ctx, attributes, o); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a requestAdmission) chain(ctx context.Context, attributes admission.Attributes) []admission.Interface {
	var all []admission.Interface
	if rules, ok := ctx.Value(admissionKey{}).(admission.Interface); ok && rules.Handles(attributes.GetOperation()) {
		all = append(all, rules)
	}
	if a.delegate.Handles(attributes.GetOperation()) {
		all = append(all, a.delegate)
	}
	return all
}
