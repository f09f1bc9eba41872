package crdhandler

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
)

type terminatingKey struct{}

// withTerminating marks a request to a terminating definition. The handler is shared with definitions that are not
// terminating.
func withTerminating(ctx context.Context) context.Context {
	return context.WithValue(ctx, terminatingKey{}, true)
}

// terminatingAdmission is the shard's admission, and rejects creations while the definition is terminating, with upstream's
// message.
type terminatingAdmission struct{ delegate admission.Interface }

var (
	_ admission.MutationInterface   = terminatingAdmission{}
	_ admission.ValidationInterface = terminatingAdmission{}
)

// Handles implements admission.Interface.
func (t terminatingAdmission) Handles(operation admission.Operation) bool {
	return operation == admission.Create || t.delegate.Handles(operation)
}

// Admit implements admission.MutationInterface.
func (t terminatingAdmission) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if err := rejectCreate(ctx, a); err != nil {
		return err
	}
	if mutating, ok := t.delegate.(admission.MutationInterface); ok && mutating.Handles(a.GetOperation()) {
		return mutating.Admit(ctx, a, o)
	}
	return nil
}

// Validate implements admission.ValidationInterface.
func (t terminatingAdmission) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if err := rejectCreate(ctx, a); err != nil {
		return err
	}
	if validating, ok := t.delegate.(admission.ValidationInterface); ok && validating.Handles(a.GetOperation()) {
		return validating.Validate(ctx, a, o)
	}
	return nil
}

func rejectCreate(ctx context.Context, a admission.Attributes) error {
	if terminating, _ := ctx.Value(terminatingKey{}).(bool); !terminating || a.GetOperation() != admission.Create {
		return nil
	}
	return newCreateForbiddenError(a.GetResource().GroupResource(), a.GetName())
}

func newCreateForbiddenError(gr schema.GroupResource, name string) error {
	return apierrors.NewForbidden(gr, name, errors.New("create not allowed while custom resource definition is terminating"))
}
