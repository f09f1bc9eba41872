package syncagent

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/syncagent/publication"
	"github.com/atoll-dev/atoll/test/installation"
)

func TestS11StatusIsMutatedAndCopiedBack(t *testing.T) {
	t.Parallel()
	e, kind := newPublished(t, func(spec *syncagentv1alpha1.PublishedResourceSpec) {
		spec.Mutation = &syncagentv1alpha1.ResourceMutationSpec{Status: []syncagentv1alpha1.ResourceMutation{
			{Delete: &syncagentv1alpha1.ResourceDeleteMutation{Path: "status.internal"}},
			{CEL: &syncagentv1alpha1.ResourceCELMutation{Path: "status.of", Expression: "other.spec.size"}},
		}}
	})
	c := e.Consumer(t, installation.Alpha)
	object := newObject(kind, "default", "one", map[string]any{"size": "large"})
	c.New(t, object)
	copied := e.Copy(t, kind, c, object)
	setStatus(t, e.Service, copied, map[string]any{"phase": "Ready", "internal": "host-7"})
	expectField(t, c, object, map[string]any{"phase": "Ready", "of": "large"}, "status")
	setStatus(t, c, object, map[string]any{"phase": "Forged"})
	expectField(t, c, object, map[string]any{"phase": "Ready", "of": "large"}, "status")
	setStatus(t, e.Service, copied, map[string]any{"phase": "Gone"})
	expectField(t, c, object, map[string]any{"phase": "Gone", "of": "large"}, "status")
	expectEvents(t, c, "ObjectStatusSynced")
}

// A kind without the status subresource has its status on neither side (#85, #130).
func TestS11StatusWithoutSubresource(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	kind := e.Define(t, "Widget", func(definition *apiextensionsv1.CustomResourceDefinition) {
		definition.Spec.Versions[0].Subresources = nil
	})
	e.Publish(t, "widgets", Of(kind))
	e.Agent(t)
	c := e.Consumer(t, installation.Beta)
	object := newObject(kind, "default", "one", map[string]any{"size": "large"})
	c.New(t, object)
	copied := e.Copy(t, kind, c, object)
	patch(t, e.Service, copied, `{"status":{"phase":"Ready"}}`)
	patch(t, c, object, `{"spec":{"size":"small"}}`)
	expectSpec(t, e.Service, copied, map[string]any{"size": "small"})
	expectField(t, c, object, nil, "status")
	expectField(t, e.Service, copied, "Ready", "status", "phase")
	expectNoEvent(t, c, "ReconcilingError")
}

func TestS13LostStateIsRepaired(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	kind := e.Define(t, "Widget", func(definition *apiextensionsv1.CustomResourceDefinition) {
		spec := definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
		spec.Properties = map[string]apiextensionsv1.JSONSchemaProps{"mode": {Type: "string", Default: &apiextensionsv1.JSON{Raw: []byte(`"standard"`)}}}
		definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"] = spec
	})
	spec := Of(kind)
	// The source does not have the field that the cluster defaults, so it permanently differs from its copy.
	spec.Mutation = &syncagentv1alpha1.ResourceMutationSpec{Spec: []syncagentv1alpha1.ResourceMutation{
		{Delete: &syncagentv1alpha1.ResourceDeleteMutation{Path: "spec.mode"}},
	}}
	e.Publish(t, "widgets", spec)
	requests := newTraffic()
	e.AgentOver(t, requests.observe)
	c := e.Consumer(t, installation.Alpha)
	object := newObject(kind, "default", "one", map[string]any{"a": "b"})
	c.New(t, object)
	copied := e.Copy(t, kind, c, object)
	damage := map[string]func(secret *corev1.Secret) error{
		"removed": func(secret *corev1.Secret) error { return e.Service.Delete(t.Context(), secret) },
		"corrupt": func(secret *corev1.Secret) error {
			for key := range secret.Data {
				secret.Data[key] = []byte("{")
			}
			return e.Service.Update(t.Context(), secret)
		},
	}
	for name, damage := range damage {
		shardtesting.Eventually(t, "the state is "+name, func(ctx context.Context) error {
			names := e.states(ctx, t, c)
			if len(names) != 1 {
				return fmt.Errorf("there are the states %v", names)
			}
			secret := &corev1.Secret{}
			if err := e.Service.Get(ctx, client.ObjectKey{Namespace: e.Namespace, Name: names[0]}, secret); err != nil {
				return err
			}
			return damage(secret)
		})
		patch(t, e.Service, copied, fmt.Sprintf(`{"metadata":{"annotations":{%q:null}},"spec":{"a":"edited"}}`, publication.AnnotationRemoteName))
		expectSpec(t, e.Service, copied, map[string]any{"a": "b", "mode": "standard"})
		expectField(t, e.Service, copied, "one", "metadata", "annotations", publication.AnnotationRemoteName)
	}
	marker := newObject(kind, "default", "marker", map[string]any{})
	c.New(t, marker)
	e.Copy(t, kind, c, marker)
	requests.takeWrites()
	second := newObject(kind, "default", "second", map[string]any{})
	c.New(t, second)
	e.Copy(t, kind, c, second)
	for _, write := range requests.takeWrites() {
		if strings.Contains(write, copied.GetName()) {
			t.Errorf("the agent wrote %s though nothing has changed", write)
		}
	}
}

func setStatus(t *testing.T, c client.Client, object *unstructured.Unstructured, status map[string]any) {
	t.Helper()
	shardtesting.Eventually(t, "writing the status of "+object.GetName(), func(ctx context.Context) error {
		current, err := get(ctx, c, object)
		if err != nil {
			return err
		}
		current.Object["status"] = status
		return c.Status().Update(ctx, current)
	})
}

// expectField waits until an object has a field; nil means that the field does not exist.
func expectField(t *testing.T, c client.Client, object *unstructured.Unstructured, want any, path ...string) {
	t.Helper()
	shardtesting.Eventually(t, fmt.Sprintf("the field %v of %s %s", path, object.GetKind(), object.GetName()), func(ctx context.Context) error {
		current, err := get(ctx, c, object)
		if err != nil {
			return err
		}
		got, _, _ := unstructured.NestedFieldNoCopy(current.Object, path...)
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("-want +got:\n%s", diff)
		}
		return nil
	})
}

func expectNoEvent(t *testing.T, c *consumer, reason string) {
	t.Helper()
	list := &corev1.EventList{}
	if err := c.List(t.Context(), list, client.InNamespace(metav1.NamespaceAll)); err != nil {
		t.Fatal(err)
	}
	for _, event := range list.Items {
		if event.Reason == reason {
			t.Errorf("there is the event %s: %s", reason, event.Message)
		}
	}
}
