package infrastructure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/template"
	"github.com/atoll-dev/atoll/internal/workspaces"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

func (e *env) get(t *testing.T, name string) *infrastructurev1alpha1.Template {
	t.Helper()
	found := &infrastructurev1alpha1.Template{}
	if err := e.c.Get(t.Context(), client.ObjectKey{Name: name}, found); err != nil {
		t.Fatal(err)
	}
	return found
}

func (e *env) getExport(t *testing.T) *apisv1alpha2.APIExport {
	t.Helper()
	export := &apisv1alpha2.APIExport{}
	if err := e.c.Get(t.Context(), client.ObjectKey{Name: e.group}, export); err != nil {
		t.Fatal(err)
	}
	return export
}

// isOf selects the entry of a resource.
func isOf(resource string) func(apisv1alpha2.ResourceSchema) bool {
	return func(entry apisv1alpha2.ResourceSchema) bool { return entry.Name == resource }
}

// exported returns the schemas of the export by resource.
func (e *env) exported(t *testing.T) map[string]string {
	t.Helper()
	schemas := map[string]string{}
	for _, entry := range e.getExport(t).Spec.Resources {
		schemas[entry.Name] = entry.Schema
	}
	return schemas
}

// versions returns the resource versions of the published objects of the Template.
func (e *env) versions(t *testing.T) string {
	t.Helper()
	e.waitHeld(t)
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := e.c.Get(t.Context(), client.ObjectKey{Name: "samples." + e.group}, definition); err != nil {
		t.Fatal(err)
	}
	versions := []string{"definition " + definition.ResourceVersion, "export " + e.getExport(t).ResourceVersion}
	for _, schema := range e.schemas(t) {
		versions = append(versions, schema.Name+" "+schema.ResourceVersion)
	}
	return strings.Join(versions, ", ")
}

// waitHeld waits until the export, and of the schemas of the Template those that it lists, have the finalizer that holds them.
func (e *env) waitHeld(t *testing.T) {
	t.Helper()
	shardtesting.Eventually(t, "the export and its schemas to be held", func(context.Context) error {
		export := e.getExport(t)
		held := slices.Contains(export.Finalizers, template.InUseFinalizer(e.group))
		for _, schema := range e.schemas(t) {
			listed := slices.ContainsFunc(export.Spec.Resources, func(r apisv1alpha2.ResourceSchema) bool { return r.Schema == schema.Name })
			held = held && listed == slices.Contains(schema.Finalizers, template.InUseFinalizer(e.group))
		}
		if !held {
			return errors.New("not yet")
		}
		return nil
	})
}

// schemas returns the schemas of the Template.
func (e *env) schemas(t *testing.T) []apisv1alpha1.APIResourceSchema {
	t.Helper()
	var list apisv1alpha1.APIResourceSchemaList
	if err := e.c.List(t.Context(), &list, client.MatchingLabels{template.LabelTemplate(e.group): "sample"}); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// unready waits until a Template is not ready for a reason, and returns the message.
func (e *env) unready(t *testing.T, name, reason string) (message string) {
	t.Helper()
	shardtesting.Eventually(t, fmt.Sprintf("template %s to be %s", name, reason), func(ctx context.Context) error {
		found := &infrastructurev1alpha1.Template{}
		if err := e.c.Get(ctx, client.ObjectKey{Name: name}, found); err != nil {
			return err
		}
		ready := meta.FindStatusCondition(found.Status.Conditions, infrastructurev1alpha1.ConditionReady)
		if ready == nil || ready.Status != metav1.ConditionFalse || ready.Reason != reason || ready.ObservedGeneration != found.Generation {
			return fmt.Errorf("conditions %+v", found.Status.Conditions)
		}
		message = ready.Message
		return nil
	})
	return message
}

// remove deletes a Template, and waits until it does not exist any more.
func (e *env) remove(t *testing.T, of *infrastructurev1alpha1.Template) {
	t.Helper()
	if err := e.c.Delete(t.Context(), of); err != nil {
		t.Fatal(err)
	}
	e.waitGone(t, of)
}

// waitGone waits until an object in the workspace of the provider does not exist any more.
func (e *env) waitGone(t *testing.T, object client.Object) {
	t.Helper()
	shardtesting.Eventually(t, object.GetName()+" to be gone", func(ctx context.Context) error {
		if err := e.c.Get(ctx, client.ObjectKeyFromObject(object), object.DeepCopyObject().(client.Object)); !apierrors.IsNotFound(err) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
}

// viewURLs returns the URLs at which the export serves its tenants, one for each shard.
func (e *env) viewURLs(t *testing.T) (urls []string) {
	t.Helper()
	slice := &apisv1alpha1.APIExportEndpointSlice{}
	if err := e.c.Get(t.Context(), client.ObjectKey{Name: e.group}, slice); err != nil {
		t.Fatal(err)
	}
	for _, endpoint := range slice.Status.APIExportEndpoints {
		urls = append(urls, endpoint.URL)
	}
	if len(urls) < 2 {
		t.Errorf("the view is at %v", urls)
	}
	return urls
}

// inView returns a client of the instances in the view at a URL. The tenant is in the context of calls.
func (e *env) inView(t *testing.T, url string) dynamic.ResourceInterface {
	t.Helper()
	at, err := workspaces.NewEndpoint(e.workspace, url)
	if err != nil {
		t.Fatal(err)
	}
	view, err := at.Dynamic()
	if err != nil {
		t.Fatal(err)
	}
	return view.Resource(schema.GroupVersionResource{Group: e.group, Version: "v1alpha1", Resource: "samples"})
}
