package customresources

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
)

type terminatingKey struct{}

// withTerminating marks a request to a definition on its way out. The handler is shared by definitions that are not, so
// it cannot know.
func withTerminating(ctx context.Context) context.Context {
	return context.WithValue(ctx, terminatingKey{}, true)
}

// refusingCreations is the shard's admission, which also refuses the creation of what is defined by a definition on its
// way out, in the words of the stock server.
type refusingCreations struct{ delegate admission.Interface }

var (
	_ admission.MutationInterface   = refusingCreations{}
	_ admission.ValidationInterface = refusingCreations{}
)

// Handles implements admission.Interface.
func (r refusingCreations) Handles(operation admission.Operation) bool {
	return operation == admission.Create || r.delegate.Handles(operation)
}

// Admit implements admission.MutationInterface.
func (r refusingCreations) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if err := refuse(ctx, a); err != nil {
		return err
	}
	if mutating, ok := r.delegate.(admission.MutationInterface); ok && mutating.Handles(a.GetOperation()) {
		return mutating.Admit(ctx, a, o)
	}
	return nil
}

// Validate implements admission.ValidationInterface.
func (r refusingCreations) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if err := refuse(ctx, a); err != nil {
		return err
	}
	if validating, ok := r.delegate.(admission.ValidationInterface); ok && validating.Handles(a.GetOperation()) {
		return validating.Validate(ctx, a, o)
	}
	return nil
}

func refuse(ctx context.Context, a admission.Attributes) error {
	if terminating, _ := ctx.Value(terminatingKey{}).(bool); !terminating || a.GetOperation() != admission.Create {
		return nil
	}
	return creationRefused(a.GetResource().GroupResource(), a.GetName())
}

func creationRefused(gr schema.GroupResource, name string) error {
	return apierrors.NewForbidden(gr, name, errors.New("create not allowed while custom resource definition is terminating"))
}
