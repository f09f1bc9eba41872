package limits

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"
)

func TestWebhookLimit(t *testing.T) {
	validating := func(name string, webhooks int) runtime.Object {
		c := &admissionregistration.ValidatingWebhookConfiguration{Webhooks: make([]admissionregistration.ValidatingWebhook, webhooks)}
		c.Name = name
		return c
	}
	mutating := func(name string, webhooks int) runtime.Object {
		c := &admissionregistration.MutatingWebhookConfiguration{Webhooks: make([]admissionregistration.MutatingWebhook, webhooks)}
		c.Name = name
		return c
	}
	stored := map[schema.GroupResource][]runtime.Object{validatingWebhooks: {validating("a", 2), validating("b", 1)}, mutatingWebhooks: {mutating("a", 1)}}
	for name, test := range map[string]struct {
		resource    schema.GroupResource
		object, old runtime.Object
		refused     bool
	}{
		"a configuration at the limit":     {validatingWebhooks, validating("new", 2), nil, false},
		"a configuration beyond the limit": {validatingWebhooks, validating("new", 3), nil, true},
		"an update counts the object once": {validatingWebhooks, validating("a", 4), validating("a", 2), false},
		"an update beyond the limit":       {validatingWebhooks, validating("a", 5), validating("a", 2), true},
		"an update that adds none":         {validatingWebhooks, validating("a", 9), validating("a", 9), false},
		"kinds are counted by themselves":  {mutatingWebhooks, mutating("new", 4), nil, false},
		"mutating webhooks have a limit":   {mutatingWebhooks, mutating("new", 5), nil, true},
		"other resources have none":        {schema.GroupResource{Resource: "configmaps"}, validating("new", 9), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			operation := admission.Create
			if test.old != nil {
				operation = admission.Update
			}
			objectName, _ := webhooksOf(test.object)
			a := admission.NewAttributesRecord(test.object, test.old, schema.GroupVersionKind{}, "", objectName, test.resource.WithVersion("v1"), "", operation, nil, false, nil)
			plugin := webhookLimit{admission.NewHandler(operation), 5, func(_ context.Context, resource schema.GroupResource) ([]runtime.Object, error) {
				return stored[resource], nil
			}}
			if err := plugin.Validate(t.Context(), a, nil); apierrors.IsForbidden(err) != test.refused {
				t.Errorf("got %v", err)
			}
		})
	}
}
