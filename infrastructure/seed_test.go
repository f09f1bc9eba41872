package infrastructure_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/seed"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// shipped returns a Template with a version and a schema that the server does not normalize.
func shipped(name, version string) infrastructurev1alpha1.Template {
	return *newTemplate(name, strings.ToUpper(name[:1])+name[1:], func(t *infrastructurev1alpha1.Template) { t.Spec.Version = version })
}

func (e *env) seeder(templates ...infrastructurev1alpha1.Template) *seed.Seeder {
	return &seed.Seeder{Client: e.c, Group: group, Templates: templates, Instances: e.instances, Log: klog.Background()}
}

func (e *env) ensure(t *testing.T, s *seed.Seeder) {
	t.Helper()
	// A concurrent write, such as that of the status, may cause a conflict.
	shardtesting.Eventually(t, "the shipped templates", s.Ensure)
}

func (e *env) specVersion(t *testing.T, name string) string {
	t.Helper()
	got := &infrastructurev1alpha1.Template{}
	if err := e.c.Get(t.Context(), client.ObjectKey{Name: name}, got); err != nil {
		t.Fatal(err)
	}
	return got.Spec.Version
}

func (e *env) generations(t *testing.T) map[string]int64 {
	t.Helper()
	var list infrastructurev1alpha1.TemplateList
	if err := e.c.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	generations := map[string]int64{}
	for i := range list.Items {
		generations[list.Items[i].Name] = list.Items[i].Generation
	}
	return generations
}

func (e *env) testSeed(t *testing.T) {
	e.create(t, newTemplate("foreign", "Foreign"))
	e.ready(t, "foreign")
	s := e.seeder(shipped("kept", "1.0.0"), shipped("edited", "1.0.0"), shipped("foreign", "1.0.0"))
	e.ensure(t, s)
	e.ready(t, "kept")
	e.change(t, "edited", func(t *infrastructurev1alpha1.Template) { t.Spec.DisplayName = "Ours" })
	e.ready(t, "edited")

	before := e.generations(t)
	e.ensure(t, s)
	if after := e.generations(t); !maps.Equal(before, after) {
		t.Errorf("without change, templates were written: generations %v, before %v", after, before)
	}

	e.ensure(t, e.seeder(shipped("kept", "2.0.0"), shipped("edited", "2.0.0"), shipped("foreign", "2.0.0")))
	for name, want := range map[string]string{"kept": "2.0.0", "edited": "1.0.0", "foreign": "0.1.0"} {
		if got := e.specVersion(t, name); got != want {
			t.Errorf("%s has version %s, want %s", name, got, want)
		}
	}
	e.ready(t, "kept")

	retired := e.seeder()
	e.instances.count.Store(1)
	e.ensure(t, retired)
	e.specVersion(t, "kept") // exists
	e.instances.count.Store(0)
	e.ensure(t, retired)
	kept := shipped("kept", "2.0.0")
	e.gone(t, &kept)
	for _, name := range []string{"edited", "foreign"} {
		e.specVersion(t, name) // exists
		left := shipped(name, "")
		if err := e.c.Delete(t.Context(), &left); err != nil {
			t.Fatal(err)
		}
		e.gone(t, &left)
	}
}

// testShipped creates the real shipped Templates, and compares them with the stored ones.
func (e *env) testShipped(t *testing.T) {
	templates, err := seed.Shipped(group)
	if err != nil {
		t.Fatal(err)
	}
	for i := range templates {
		templates[i].Name = "shipped-" + templates[i].Name
		templates[i].Spec.InstanceCRD.Kind = "Shipped" + templates[i].Spec.InstanceCRD.Kind
		templates[i].Spec.InstanceCRD.Resource = "shipped" + templates[i].Spec.InstanceCRD.Resource
		templates[i].Spec.Backend = "kro"
	}
	e.ensure(t, e.seeder(templates...))
	for i := range templates {
		e.ready(t, templates[i].Name)
	}
	e.testLargeEnvironment(t)
	e.ensure(t, e.seeder())
	shardtesting.Eventually(t, "what is no longer shipped to be gone", func(ctx context.Context) error {
		var left infrastructurev1alpha1.TemplateList
		err := e.c.List(ctx, &left, client.HasLabels{seed.Label(group)})
		if err == nil && len(left.Items) > 0 {
			err = fmt.Errorf("%d are left: the spec that is stored has another hash", len(left.Items))
		}
		return err
	})
}

// testLargeEnvironment creates applications with as many characters of environment variables as are allowed, and with more.
func (e *env) testLargeEnvironment(t *testing.T) {
	t.Helper()
	create := func(variables int) error {
		var env []any
		for i := range variables {
			env = append(env, map[string]any{"name": fmt.Sprintf("V%03d", i), "value": strings.Repeat("x", 4092)})
		}
		application := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "large"}, "spec": map[string]any{"image": "x", "env": env}}}
		application.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: "v1alpha1", Kind: "ShippedApplication"})
		return e.c.Create(t.Context(), application, client.DryRunAll)
	}
	if err := create(8); err != nil {
		t.Error(err)
	}
	if err := create(9); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "at most 32768 characters") {
		t.Errorf("with more: %v", err)
	}
}
