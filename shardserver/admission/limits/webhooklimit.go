package limits

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"

	"github.com/atoll-dev/atoll/shardserver/admission/rules"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// maxWebhooks bounds the webhooks of one kind in a logical cluster: a request calls all that match at the same time, and each call is a
// connection and a goroutine of the shard.
const maxWebhooks = 200

var (
	validatingWebhooks = schema.GroupResource{Group: admissionregistration.GroupName, Resource: "validatingwebhookconfigurations"}
	mutatingWebhooks   = schema.GroupResource{Group: admissionregistration.GroupName, Resource: "mutatingwebhookconfigurations"}
)

// webhookLimit refuses configurations with which the logical cluster would have too many webhooks. Concurrent requests may exceed the
// limit by what each of them adds.
type webhookLimit struct {
	*admission.Handler
	limit int
	// list returns the configurations of a resource in the context's logical cluster.
	list func(ctx context.Context, resource schema.GroupResource) ([]runtime.Object, error)
}

// NewWebhookLimit returns the plug-in kcp.io/WebhookLimit.
func NewWebhookLimit(config rules.Config) admission.Interface {
	validating := storage.NewReader[*admissionregistration.ValidatingWebhookConfiguration](config.Registry, validatingWebhooks)
	mutating := storage.NewReader[*admissionregistration.MutatingWebhookConfiguration](config.Registry, mutatingWebhooks)
	return webhookLimit{admission.NewHandler(admission.Create, admission.Update), maxWebhooks, func(ctx context.Context, resource schema.GroupResource) ([]runtime.Object, error) {
		if resource == validatingWebhooks {
			all, err := validating.List(ctx, "", nil)
			return toObjects(all), err
		}
		all, err := mutating.List(ctx, "", nil)
		return toObjects(all), err
	}}
}

func toObjects[T runtime.Object](typed []T) []runtime.Object {
	objects := make([]runtime.Object, len(typed))
	for i := range typed {
		objects[i] = typed[i]
	}
	return objects
}

// Validate implements admission.ValidationInterface.
func (l webhookLimit) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	resource := a.GetResource().GroupResource()
	if resource != validatingWebhooks && resource != mutatingWebhooks {
		return nil
	}
	_, count := webhooksOf(a.GetObject())
	if _, stored := webhooksOf(a.GetOldObject()); count <= stored {
		return nil
	}
	all, err := l.list(ctx, resource)
	if err != nil {
		return err
	}
	for _, other := range all {
		if name, n := webhooksOf(other); name != a.GetName() {
			count += n
		}
	}
	if count > l.limit {
		return rules.Forbid(a, "a workspace can have at most %d webhooks in its %s, with this object it would have %d", l.limit, resource.Resource, count)
	}
	return nil
}

// webhooksOf returns the name of a configuration, and the number of its webhooks.
func webhooksOf(object runtime.Object) (name string, count int) {
	switch object := object.(type) {
	case *admissionregistration.ValidatingWebhookConfiguration:
		return object.Name, len(object.Webhooks)
	case *admissionregistration.MutatingWebhookConfiguration:
		return object.Name, len(object.Webhooks)
	}
	return "", 0
}
