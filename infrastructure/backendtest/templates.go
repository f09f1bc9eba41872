package backendtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/instance"
)

// newTemplate returns a Template of the suite.
func (r *run) newTemplate(name, kind string) *infrastructurev1alpha1.Template {
	return &infrastructurev1alpha1.Template{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: infrastructurev1alpha1.TemplateSpec{
			DisplayName: kind, Category: "Samples", Version: "1.0.0", Backend: r.backendName,
			InstanceCRD:   infrastructurev1alpha1.InstanceCRD{Group: r.group, Version: "v1alpha1", Kind: kind, Resource: strings.ToLower(kind) + "s"},
			Schema:        runtime.RawExtension{Raw: []byte(Schema)},
			BackendConfig: &runtime.RawExtension{Raw: []byte(r.suite.BackendConfig)},
		},
	}
}

// createTemplate creates a Template. It retries, because Templates may not be served yet.
func (r *run) createTemplate(t testing.TB, template *infrastructurev1alpha1.Template) {
	t.Helper()
	r.eventually(t, "creating template "+template.Name, func(ctx context.Context) error {
		err := r.c.Create(ctx, template.DeepCopy())
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
}

func (r *run) getTemplate(t testing.TB, name string) *infrastructurev1alpha1.Template {
	t.Helper()
	template := &infrastructurev1alpha1.Template{}
	if err := r.c.Get(t.Context(), client.ObjectKey{Name: name}, template); err != nil {
		t.Fatal(err)
	}
	return template
}

func (r *run) changeTemplate(t testing.TB, name string, change func(*infrastructurev1alpha1.Template)) {
	t.Helper()
	r.eventually(t, "changing template "+name, func(ctx context.Context) error {
		template := &infrastructurev1alpha1.Template{}
		if err := r.c.Get(ctx, client.ObjectKey{Name: name}, template); err != nil {
			return err
		}
		change(template)
		return r.c.Update(ctx, template)
	})
}

// waitTemplate waits until a Template has a condition for its generation.
func (r *run) waitTemplate(t testing.TB, name, condition string, status metav1.ConditionStatus) *metav1.Condition {
	t.Helper()
	var found *metav1.Condition
	r.eventually(t, fmt.Sprintf("condition %s of template %s is %s", condition, name, status), func(ctx context.Context) error {
		template := &infrastructurev1alpha1.Template{}
		if err := r.c.Get(ctx, client.ObjectKey{Name: name}, template); err != nil {
			return err
		}
		found = meta.FindStatusCondition(template.Status.Conditions, condition)
		if found == nil || found.Status != status || found.ObservedGeneration != template.Generation {
			return fmt.Errorf("conditions are %+v", template.Status.Conditions)
		}
		return nil
	})
	return found
}

func (r *run) waitTemplateReady(t testing.TB, name string) {
	t.Helper()
	r.waitTemplate(t, name, infrastructurev1alpha1.ConditionReady, metav1.ConditionTrue)
}

// isExported reports whether the export has a resource.
func (r *run) isExported(t testing.TB, resource string) bool {
	t.Helper()
	export := &apisv1alpha2.APIExport{}
	if err := r.c.Get(t.Context(), client.ObjectKey{Name: r.export}, export); err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(export.Spec.Resources, func(s apisv1alpha2.ResourceSchema) bool { return s.Name == resource && s.Group == r.group })
}

// waitTemplateGone waits until a Template and its published objects are gone.
func (r *run) waitTemplateGone(t testing.TB, name, resource string) {
	t.Helper()
	r.eventually(t, "template "+name+" is gone", func(ctx context.Context) error {
		for _, object := range []client.Object{
			&infrastructurev1alpha1.Template{ObjectMeta: metav1.ObjectMeta{Name: name}},
			&apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: resource + "." + r.group}},
		} {
			if err := r.c.Get(ctx, client.ObjectKeyFromObject(object), object); !apierrors.IsNotFound(err) {
				return fmt.Errorf("got %T %s, %w", object, object.GetName(), err)
			}
		}
		return nil
	})
	if r.isExported(t, resource) {
		t.Errorf("%s are exported", resource)
	}
}

func testSetupTwice(t *testing.T, r *run) {
	template := r.getTemplate(t, "sample")
	before := template.DeepCopy()
	for _, start := range []string{"after a start", "after another start"} {
		p := r.newProcess(t)
		for range 2 {
			status, err := p.backend.SetupTemplate(t.Context(), template)
			if err != nil || !status.Ready {
				t.Fatalf("%s: %+v, %v", start, status, err)
			}
		}
		if writes := p.faults.written(toRuntime); len(writes) > 0 {
			t.Errorf("%s: setting up what is set up writes %+v", start, writes)
		}
	}
	if a, b := asJSON(t, before), asJSON(t, template); a != b {
		t.Errorf("the backend has changed the template, before:\n%s\nafter:\n%s", a, b)
	}
}

func testInvalidConfig(t *testing.T, r *run) {
	template := r.newTemplate("broken", "Broken")
	template.Spec.BackendConfig.Raw = []byte(r.suite.InvalidConfig)
	r.createTemplate(t, template)
	refused := r.waitTemplate(t, "broken", infrastructurev1alpha1.ConditionBackendReady, metav1.ConditionFalse)
	if refused.Reason != infrastructurev1alpha1.ReasonBackendNotReady {
		t.Errorf("the reason is %s, want %s: a mistake in the configuration is no error, which would be repeated: %s", refused.Reason, infrastructurev1alpha1.ReasonBackendNotReady, refused.Message)
	}
	if !strings.Contains(refused.Message, "spec.backendConfig") {
		t.Errorf("the message names no field: %q", refused.Message)
	}
	if r.isExported(t, "brokens") {
		t.Error("the kind is exported")
	}
	r.changeTemplate(t, "broken", func(t *infrastructurev1alpha1.Template) { t.Spec.BackendConfig.Raw = []byte(r.suite.BackendConfig) })
	r.waitTemplateReady(t, "broken")
	if !r.isExported(t, "brokens") {
		t.Error("the kind is not exported")
	}
	if err := r.c.Delete(t.Context(), template); err != nil {
		t.Fatal(err)
	}
	r.waitTemplateGone(t, "broken", "brokens")
}

func testEvolution(t *testing.T, r *run) {
	r.first.provision(t, "old", "small")
	r.changeTemplate(t, "sample", func(t *infrastructurev1alpha1.Template) {
		t.Spec.Schema.Raw = []byte(strings.Replace(Schema, `"note":`, `"remark":{"type":"string"},"note":`, 1))
	})
	r.waitTemplateReady(t, "sample")
	r.eventually(t, "the new field is served", func(ctx context.Context) error {
		changed, err := r.first.patch(ctx, "old", `{"spec":{"remark":"new","size":"large"}}`)
		if err == nil && changed.Object["spec"].(map[string]any)["remark"] != "new" {
			err = errors.New("it is dropped")
		}
		return err
	})
	r.first.waitSize(t, "old", "large")

	r.changeTemplate(t, "sample", func(t *infrastructurev1alpha1.Template) {
		t.Spec.Schema.Raw = []byte(strings.Replace(Schema, `["size"]`, `["size","note"]`, 1))
	})
	r.waitTemplate(t, "sample", infrastructurev1alpha1.ConditionSchemaCompatible, metav1.ConditionFalse)
	r.first.provision(t, "meanwhile", "small")
	r.changeTemplate(t, "sample", func(t *infrastructurev1alpha1.Template) {
		t.Spec.InstanceCRD.Version = "v1alpha2"
		t.Spec.Schema.Raw = []byte(strings.Replace(Schema, `"note":{"type":"string","maxLength":64}`, `"tier":{"type":"string"}`, 1))
	})
	r.waitTemplateReady(t, "sample")
	second := r.first.at("v1alpha2")
	r.eventually(t, "an instance of the new version", func(ctx context.Context) error {
		object := r.newInstance("new", "small")
		object.SetAPIVersion(r.group + "/v1alpha2")
		object.Object["spec"].(map[string]any)["tier"] = "gold"
		return second.create(ctx, object)
	})
	if got := second.waitSize(t, "new", "small").Object["spec"].(map[string]any)["tier"]; got != "gold" {
		t.Errorf("the field of the new version is %v", got)
	}
	if got := r.first.waitSize(t, "old", "large").Object["spec"].(map[string]any)["remark"]; got != "new" {
		t.Errorf("the field that only the previous version has is %v", got)
	}
	for _, name := range []string{"old", "meanwhile"} {
		if _, err := r.first.patch(t.Context(), name, `{"spec":{"size":"large"}}`); err != nil {
			t.Errorf("changing %s in its version: %v", name, err)
		}
		r.first.waitSize(t, name, "large")
		r.first.delete(t, name)
	}
	second.delete(t, "new")
}

func testRemoval(t *testing.T, r *run) {
	r.first.provision(t, "last", "small")
	r.second.provision(t, "last", "small")
	// A finalizer of the tenant delays the removal of the instance, so that the test can observe it.
	if _, err := r.first.patch(t.Context(), "last", `{"metadata":{"finalizers":["`+instance.Finalizer(r.group)+`","example.org/tenant"]}}`); err != nil {
		t.Fatal(err)
	}
	if err := r.c.Delete(t.Context(), r.getTemplate(t, "sample")); err != nil {
		t.Fatal(err)
	}
	r.first.waitPhase(t, "last", infrastructurev1alpha1.PhaseTemplateRemoved)
	r.second.waitGone(t, "last")
	if !r.isExported(t, "samples") {
		t.Error("the kind is not exported any more, while there is an instance")
	}
	r.eventually(t, "instances are refused", func(ctx context.Context) error { // instances in workspaces that still accept them are removed
		err := r.second.create(ctx, r.newInstance("late", "small"))
		if !apierrors.IsInvalid(err) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
	r.eventually(t, "what the instance is made of is gone", func(ctx context.Context) error { return r.first.isEmpty(ctx) })
	template := r.getTemplate(t, "sample")
	if _, err := r.first.patch(t.Context(), "last", `{"metadata":{"finalizers":[]}}`); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	r.first.waitGone(t, "last")
	r.waitTemplateGone(t, "sample", "samples")
	for _, tenant := range []*tenant{r.first, r.second} {
		if err := tenant.isEmpty(t.Context()); err != nil {
			t.Error(err)
		}
	}
	p := r.newProcess(t)
	for range 2 {
		for _, gone := range []*infrastructurev1alpha1.Template{template, r.newTemplate("never", "Never")} {
			if err := p.backend.TeardownTemplate(t.Context(), gone); err != nil {
				t.Errorf("tearing down template %s, of which there is nothing: %v", gone.Name, err)
			}
		}
	}
}

// testLeft removes a Template after one of its instances has disappeared without finalization while no provider was running. When a provider
// runs again, the removal must find the remaining objects, because no sweep is due before it completes.
func testLeft(t *testing.T, r *run) {
	r.createTemplate(t, r.newTemplate("sample", "Sample"))
	r.waitTemplateReady(t, "sample")
	r.first.provision(t, "vanished", "small")
	r.stop(t)
	if _, err := r.first.patch(t.Context(), "vanished", `{"metadata":{"finalizers":[]}}`); err != nil {
		t.Fatal(err)
	}
	r.first.delete(t, "vanished")
	if err := r.c.Delete(t.Context(), r.getTemplate(t, "sample")); err != nil {
		t.Fatal(err)
	}
	if len(r.first.list(t)) == 0 {
		t.Error("what the instance was made of is gone while no provider runs")
	}
	r.sweepInterval = time.Hour
	r.start(t)
	r.waitTemplateGone(t, "sample", "samples")
	if err := r.first.isEmpty(t.Context()); err != nil {
		t.Error(err)
	}
}

func asJSON(t testing.TB, object any) string {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
