package syncagent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// published reads a PublishedResource until a schema of a resource, "<plural>.<group>", is exported for its current content.
func (e *env) published(t *testing.T, p *syncagentv1alpha1.PublishedResource, resource string) *apisv1alpha1.APIResourceSchema {
	t.Helper()
	found := &apisv1alpha1.APIResourceSchema{}
	provider := newClient(t, e.Provider)
	shardtesting.Eventually(t, p.Name+" is published", func(ctx context.Context) error {
		if err := e.Service.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		for _, kind := range []string{syncagentv1alpha1.ConditionSchemaReady, syncagentv1alpha1.ConditionExported} {
			condition := meta.FindStatusCondition(p.Status.Conditions, kind)
			if condition == nil || condition.Status != metav1.ConditionTrue || condition.ObservedGeneration != p.Generation {
				return fmt.Errorf("condition %s is %+v", kind, condition)
			}
		}
		name := p.Status.ResourceSchemaName
		if !strings.HasSuffix(name, "."+resource) {
			return fmt.Errorf("the schema is %q", name)
		}
		export := &apisv1alpha1.APIExport{}
		if err := provider.Get(ctx, client.ObjectKey{Name: e.Name}, export); err != nil {
			return err
		}
		if !slices.Contains(export.Spec.LatestResourceSchemas, name) {
			return fmt.Errorf("%s is not among %v", name, export.Spec.LatestResourceSchemas)
		}
		return provider.Get(ctx, client.ObjectKey{Name: name}, found)
	})
	return found
}

// parse reads the spec of a PublishedResource; $GROUP is the test's group.
func (e *env) parse(t *testing.T, text string) (spec syncagentv1alpha1.PublishedResourceSpec) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(strings.ReplaceAll(text, "$GROUP", e.Group)), &spec); err != nil {
		t.Fatal(err)
	}
	return spec
}

// change updates an object, and retries after a conflict.
func change[T client.Object](t *testing.T, c client.Client, object T, change func(T)) {
	t.Helper()
	shardtesting.Eventually(t, "updating "+object.GetName(), func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		change(object)
		return c.Update(ctx, object)
	})
}

func (e *env) apiExport(t *testing.T) *apisv1alpha1.APIExport {
	t.Helper()
	export := &apisv1alpha1.APIExport{}
	if err := newClient(t, e.Provider).Get(t.Context(), client.ObjectKey{Name: e.Name}, export); err != nil {
		t.Fatal(err)
	}
	return export
}

// expectClaims waits until the export has exactly some claims, in this order; claims that do not select all are marked.
func (e *env) expectClaims(t *testing.T, want ...string) {
	t.Helper()
	shardtesting.Eventually(t, "claims of the export", func(context.Context) error {
		var got []string
		for _, claim := range e.apiExport(t).Spec.PermissionClaims {
			name := strings.TrimSuffix(claim.Resource+"."+claim.Group, ".")
			if !claim.All {
				name += "(selected)"
			}
			got = append(got, name)
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("got %v, want %v", got, want)
		}
		return nil
	})
}

// expectEvent waits for an event of an object.
func expectEvent(t *testing.T, c client.Client, name, eventType, reason, message string) {
	t.Helper()
	shardtesting.Eventually(t, "event "+reason+" of "+name, func(ctx context.Context) error {
		events := &corev1.EventList{}
		if err := c.List(ctx, events, client.InNamespace(metav1.NamespaceDefault)); err != nil {
			return err
		}
		var others []string
		for _, event := range events.Items {
			if event.InvolvedObject.Name != name {
				continue
			}
			if event.Type == eventType && event.Reason == reason && strings.Contains(event.Message, message) {
				return nil
			}
			others = append(others, event.Type+" "+event.Reason+" "+event.Message)
		}
		return fmt.Errorf("there are %q", others)
	})
}

// versions gives a definition more versions; the last one is stored.
func versions(names ...string) func(*apiextensionsv1.CustomResourceDefinition) {
	return func(definition *apiextensionsv1.CustomResourceDefinition) {
		first := definition.Spec.Versions[0]
		definition.Spec.Versions = nil
		for i, name := range names {
			version := *first.DeepCopy()
			version.Name, version.Storage = name, i == len(names)-1
			definition.Spec.Versions = append(definition.Spec.Versions, version)
		}
	}
}

// outline is the summary of a schema's versions, names and subresources.
func outline(found *apisv1alpha1.APIResourceSchema) string {
	var parts []string
	for _, version := range found.Spec.Versions {
		part := version.Name
		if version.Storage {
			part += "*"
		}
		if version.Subresources.Status != nil {
			part += "/status"
		}
		if version.Subresources.Scale != nil {
			part += "/scale"
		}
		parts = append(parts, part)
	}
	names := found.Spec.Names
	return fmt.Sprintf("%s %s %s %s %v %v %s: %s", found.Spec.Group, names.Kind, names.ListKind, names.Singular, names.ShortNames, names.Categories, found.Spec.Scope, strings.Join(parts, " "))
}

// expectOutline publishes a resource and compares its schema.
func (e *env) expectOutline(t *testing.T, name, spec, resource, want string) {
	t.Helper()
	found := e.published(t, e.Publish(t, name, e.parse(t, spec)), strings.ReplaceAll(resource, "$GROUP", e.Group))
	if diff := cmp.Diff(strings.ReplaceAll(want, "$GROUP", e.Group), outline(found)); diff != "" {
		t.Errorf("schema of %s (-want +got):\n%s", name, diff)
	}
}
