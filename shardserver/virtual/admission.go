package virtual

import (
	"context"

	"k8s.io/apiserver/pkg/admission"
)

type admissionKey struct{}

// WithAdmission returns a context in which writes have to pass rules of a virtual workspace, too. It is for requests
// that go on to a logical cluster (InCluster): rules may implement admission.MutationInterface, which sees an object
// before anything else does, and admission.ValidationInterface, which sees what everything else has made of it.
func WithAdmission(ctx context.Context, rules admission.Interface) context.Context {
	return context.WithValue(ctx, admissionKey{}, rules)
}

// Admission puts the rules that requests bring along before those of the shard.
func Admission(delegate admission.Interface) admission.Interface { return requestAdmission{delegate} }

type requestAdmission struct{ delegate admission.Interface }

// Handles implements admission.Interface. Which requests bring rules is known when they come.
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
