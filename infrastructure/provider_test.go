package infrastructure_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure"
	"github.com/atoll-dev/atoll/infrastructure/backend"
	"github.com/atoll-dev/atoll/infrastructure/backendtest/stub"
	"github.com/atoll-dev/atoll/infrastructure/catalogue"
	"github.com/atoll-dev/atoll/infrastructure/template"
	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

const (
	group  = infrastructurev1alpha1.GroupName
	export = "infrastructure.providers.kedge.faros.sh"
)

// env is a shard with a provider and a tenant.
type env struct {
	shard            *shardtesting.Shard
	provider, tenant string
	c                client.Client // of the provider's workspace
	backend, other   *stub.Backend
	instances        *counter
	release          chan struct{} // ends the hanging of the backend
}

// counter implements template.Instances with a configurable number of instances.
type counter struct {
	template.Instances // nil: the tests call no other method
	count              atomic.Int64
	bound              atomic.Pointer[apisv1alpha2.BoundAPIResource] // the bound resource of the only binding; nil: there is no binding
}

func (c *counter) Each(_ context.Context, _ *infrastructurev1alpha1.Template, call func(*unstructured.Unstructured) error) error {
	return nil
}

func (c *counter) Bindings(_ context.Context, _ []string, call func(*apisv1alpha2.APIBinding) error) error {
	bound := c.bound.Load()
	if bound == nil {
		return nil
	}
	return call(&apisv1alpha2.APIBinding{Status: apisv1alpha2.APIBindingStatus{BoundResources: []apisv1alpha2.BoundAPIResource{*bound}}})
}

func (c *counter) Count(context.Context, *infrastructurev1alpha1.Template) (int, error) {
	return int(c.count.Load()), nil
}

func (c *counter) Remove(context.Context, *infrastructurev1alpha1.Template) (int, error) {
	return int(c.count.Load()), nil
}

func (c *counter) Abandon(context.Context, *infrastructurev1alpha1.Template) (int, error) {
	return 0, nil
}

func (c *counter) ReportTemplateNotFound(context.Context, *infrastructurev1alpha1.Template) error {
	return nil
}

func (c *counter) Provided(context.Context, *infrastructurev1alpha1.Template) (int, error) {
	return int(c.count.Load()), nil
}

func newEnv(t *testing.T) *env {
	e := newWorkspaces(t)
	e.backend, e.other, e.instances, e.release = stub.New("kro"), stub.New("manifest"), &counter{}, make(chan struct{})
	e.run(t, e.instances, &hanging{Backend: e.backend, release: e.release}, e.other)
	return e
}

// newWorkspaces starts a shard with the workspaces of a provider and of a tenant.
func newWorkspaces(t *testing.T, configure ...func(*options.Options)) *env {
	tokens := writeTokens(t)
	shard := shardtesting.Start(t, append(configure, func(o *options.Options) {
		o.FeatureGates, o.Authentication.TokenFile.TokenFile = []string{"CacheAPIs=true"}, tokens
	})...)
	e := &env{shard: shard}
	e.provider = shard.NewWorkspace(t, "root", "provider").Spec.Cluster
	e.tenant = shard.NewWorkspace(t, "root", "tenant").Spec.Cluster
	var err error
	if e.c, err = client.New(e.workspace(t), client.Options{Scheme: infrastructure.NewScheme(group)}); err != nil {
		t.Fatal(err)
	}
	return e
}

func (e *env) workspace(t *testing.T) *rest.Config {
	return shardtesting.At(e.shard.Admin(t), e.provider)
}

// standardSelector selects the Templates of the standard export.
func standardSelector(t *testing.T) labels.Selector {
	t.Helper()
	standard, err := labels.Parse("tier!=premium")
	if err != nil {
		t.Fatal(err)
	}
	return standard
}

// run runs a provider with backends until the end of the test.
func (e *env) run(t *testing.T, counted template.Instances, backends ...backend.Backend) {
	standard := standardSelector(t)
	registry := &backend.Registry{}
	for _, b := range backends {
		if err := registry.Register(b); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- infrastructure.Run(ctx, infrastructure.Config{
			Workspace: e.workspace(t), Catalogue: catalogue.Options{Group: group, Export: export, Binders: "system:authenticated", Selector: standard},
			Backends: registry, Instances: counted, LeaderElectionNamespace: "default", MetricsAddress: "0", HealthAddress: "0", Log: klog.Background(),
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the provider ended: %v", err)
		}
	})
}

func newTemplate(name, kind string, changes ...func(*infrastructurev1alpha1.Template)) *infrastructurev1alpha1.Template {
	template := &infrastructurev1alpha1.Template{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: infrastructurev1alpha1.TemplateSpec{
			DisplayName: name, Category: "Databases", Version: "0.1.0", Backend: "kro",
			InstanceCRD:   infrastructurev1alpha1.InstanceCRD{Group: group, Version: "v1alpha1", Kind: kind, Resource: strings.ToLower(kind)},
			Schema:        runtime.RawExtension{Raw: []byte(`{"type":"object","required":["name"],"properties":{"name":{"type":"string"},"size":{"type":"string","enum":["small","large"],"default":"small"}}}`)},
			BackendConfig: &runtime.RawExtension{Raw: []byte(`{"resources":[{"id":"confidential"}],"number":1.50}`)},
		},
	}
	for _, change := range changes {
		change(template)
	}
	return template
}

// waitFor waits until a Template has a condition with a status and reason, and returns it.
func (e *env) waitFor(t *testing.T, name, condition string, status metav1.ConditionStatus, reason string) *infrastructurev1alpha1.Template {
	t.Helper()
	template := &infrastructurev1alpha1.Template{}
	shardtesting.Eventually(t, fmt.Sprintf("%s of %s to be %s, %s", condition, name, status, reason), func(ctx context.Context) error {
		if err := e.c.Get(ctx, client.ObjectKey{Name: name}, template); err != nil {
			return err
		}
		got := meta.FindStatusCondition(template.Status.Conditions, condition)
		if got == nil || got.Status != status || got.Reason != reason || got.ObservedGeneration != template.Generation {
			return fmt.Errorf("conditions %+v", template.Status.Conditions)
		}
		return nil
	})
	return template
}

func (e *env) ready(t *testing.T, name string) *infrastructurev1alpha1.Template {
	t.Helper()
	return e.waitFor(t, name, infrastructurev1alpha1.ConditionReady, metav1.ConditionTrue, infrastructurev1alpha1.ReasonReady)
}

// exported returns the schemas of the export by resource.
func (e *env) exported(t *testing.T) map[string]string {
	t.Helper()
	exported := &apisv1alpha2.APIExport{}
	if err := e.c.Get(t.Context(), client.ObjectKey{Name: export}, exported); err != nil {
		t.Fatal(err)
	}
	schemas := map[string]string{}
	for _, entry := range exported.Spec.Resources {
		schemas[entry.Name] = entry.Schema
	}
	return schemas
}

func (e *env) create(t *testing.T, template *infrastructurev1alpha1.Template) {
	t.Helper()
	shardtesting.Eventually(t, "templates to be served", func(ctx context.Context) error { return e.c.Create(ctx, template.DeepCopy()) })
}

// gone waits until a Template and its published objects are gone.
func (e *env) gone(t *testing.T, template *infrastructurev1alpha1.Template) {
	t.Helper()
	shardtesting.Eventually(t, template.Name+" to be gone", func(ctx context.Context) error {
		if err := e.c.Get(ctx, client.ObjectKey{Name: template.Name}, template.DeepCopy()); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the template: %w", err)
		}
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := e.c.Get(ctx, client.ObjectKey{Name: template.Spec.InstanceCRD.Resource + "." + group}, definition); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the definition: %w", err)
		}
		var schemas apisv1alpha1.APIResourceSchemaList
		if err := e.c.List(ctx, &schemas, client.MatchingLabels{group + "/template": template.Name}); err != nil || len(schemas.Items) > 0 {
			return fmt.Errorf("schemas that are left: %v, %w", len(schemas.Items), err)
		}
		return nil
	})
	if schema, ok := e.exported(t)[template.Spec.InstanceCRD.Resource]; ok {
		t.Errorf("the export lists %s", schema)
	}
}

// inTenant returns a client of a resource in the workspace of the tenant.
func (e *env) inTenant(t *testing.T, resource string) dynamic.ResourceInterface {
	t.Helper()
	c, err := dynamic.NewForConfig(shardtesting.At(e.shard.Admin(t), e.tenant))
	if err != nil {
		t.Fatal(err)
	}
	return c.Resource(schema.GroupVersionResource{Group: group, Version: "v1alpha1", Resource: resource})
}

func TestTemplates(t *testing.T) {
	e := newEnv(t)
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"a template becomes ready", e.testPublished},
		{"fields without effect are kept", e.testIgnoredFields},
		{"A5: a changed schema", e.testChangedSchema},
		{"bad input disturbs nobody", e.testBadInput},
		{"the longest names that are allowed", e.testLongNames},
		{"two templates want a kind", e.testRivals},
		{"a definition of another owner has the kind", e.testRefusedNames},
		{"G7: a backend hangs with one template", e.testHangingBackend},
		{"G5: another backend takes over", e.testTakeOver},
		{"shipped templates follow the files until somebody edits them", e.testSeed},
		{"what is shipped works", e.testShipped},
		{"a large catalogue", e.testManyTemplates},
		{"removal of a template whose edit is refused", e.testRemovalAfterRefusal},
		{"removal waits until bindings refuse new instances", e.testRemovalWaitsForBindings},
		{"the name of a lost template is not given to another kind", e.testNameOfLostTemplate},
	} {
		if !t.Run(step.name, step.run) {
			return
		}
	}
}

func (e *env) testPublished(t *testing.T) {
	e.create(t, newTemplate("redis", "Redis"))
	e.ready(t, "redis")
}

// testIgnoredFields sets fields of other programs, of any type: a strict client can write them, and they have no effect.
func (e *env) testIgnoredFields(t *testing.T) {
	fields := map[string]any{"exposure": "internal", "view": map[string]any{"columns": []any{"endpoint"}}, "dataPlane": map[string]any{"a": int64(1)}, "development": map[string]any{"b": true}}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(newTemplate("ignored", "Ignored"))
	if err != nil {
		t.Fatal(err)
	}
	delete(object, "status")
	maps.Copy(object["spec"].(map[string]any), fields)
	written := &unstructured.Unstructured{Object: object}
	written.SetGroupVersionKind(infrastructurev1alpha1.SchemeGroupVersion.WithKind("Template"))
	if err := e.c.Create(t.Context(), written, client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
		t.Fatal(err)
	}
	ready := e.ready(t, "ignored")
	e.change(t, "ignored", func(t *infrastructurev1alpha1.Template) { t.Spec.DisplayName = "Changed" })
	if err := e.c.Get(t.Context(), client.ObjectKeyFromObject(written), written); err != nil {
		t.Fatal(err)
	}
	for name, value := range fields {
		if got, _, _ := unstructured.NestedFieldNoCopy(written.Object, "spec", name); !equality.Semantic.DeepEqual(got, value) {
			t.Errorf("%s is %v", name, got)
		}
	}
	e.remove(t, ready)
}

// change changes a Template.
func (e *env) change(t *testing.T, name string, change func(*infrastructurev1alpha1.Template)) {
	t.Helper()
	shardtesting.Eventually(t, "changing "+name, func(ctx context.Context) error {
		template := &infrastructurev1alpha1.Template{}
		if err := e.c.Get(ctx, client.ObjectKey{Name: name}, template); err != nil {
			return err
		}
		change(template)
		return e.c.Update(ctx, template)
	})
}

func (e *env) testChangedSchema(t *testing.T) {
	before := e.exported(t)["redis"]
	e.change(t, "redis", func(t *infrastructurev1alpha1.Template) {
		t.Spec.Schema.Raw = []byte(strings.Replace(string(t.Spec.Schema.Raw), `"small","large"`, `"small","large","huge"`, 1))
	})
	e.ready(t, "redis")
	additive := e.exported(t)["redis"]
	if additive == before {
		t.Error("the export lists the previous schema")
	}
	e.change(t, "redis", func(t *infrastructurev1alpha1.Template) {
		t.Spec.Schema.Raw = []byte(strings.Replace(string(t.Spec.Schema.Raw), `"small","large","huge"`, `"small"`, 1))
	})
	refused := e.waitFor(t, "redis", infrastructurev1alpha1.ConditionReady, metav1.ConditionFalse, infrastructurev1alpha1.ReasonInvalidSpec)
	if message := meta.FindStatusCondition(refused.Status.Conditions, infrastructurev1alpha1.ConditionSchemaCompatible).Message; !strings.Contains(message, "spec.size: the enum loses") {
		t.Errorf("the message is %q", message)
	}
	if got := e.exported(t)["redis"]; got != additive {
		t.Errorf("the export lists %s", got)
	}
	e.change(t, "redis", func(t *infrastructurev1alpha1.Template) { t.Spec.InstanceCRD.Version = "v1beta1" })
	if got := e.ready(t, "redis").Status.Registered.Versions; !slices.Equal(got, []string{"v1alpha1", "v1beta1"}) {
		t.Errorf("versions %v are served", got)
	}
	e.waitHeld(t)
	// A reconciliation without changes writes nothing. Replication happens later.
	revision := e.shard.Revision(t)
	calls := len(e.backend.SetUp())
	e.change(t, "redis", func(t *infrastructurev1alpha1.Template) {
		t.Annotations = map[string]string{"example.org/touched": "true"}
	})
	shardtesting.Eventually(t, "another reconciliation", func(context.Context) error {
		if len(e.backend.SetUp()) == calls {
			return errors.New("the backend was not called again")
		}
		return nil
	})
	for _, write := range e.shard.Writes(t, revision) {
		if strings.Contains(write.Key, group) && !strings.HasPrefix(write.Key, "/cache/") && !strings.Contains(write.Key, "/templates/") && !strings.Contains(write.Key, "/events") {
			t.Errorf("a reconciliation without changes writes %s", write.Key)
		}
	}
}

// waitHeld waits until exactly the schemas of the export have the finalizer of the holder.
func (e *env) waitHeld(t *testing.T) {
	t.Helper()
	shardtesting.Eventually(t, "the schemas to be held", func(ctx context.Context) error {
		var schemas apisv1alpha1.APIResourceSchemaList
		if err := e.c.List(ctx, &schemas); err != nil {
			return err
		}
		listed := slices.Collect(maps.Values(e.exported(t)))
		for i := range schemas.Items {
			name, held := schemas.Items[i].Name, controllerutil.ContainsFinalizer(&schemas.Items[i], template.InUseFinalizer(group))
			if held != slices.Contains(listed, name) {
				return fmt.Errorf("%s: %v", name, held)
			}
		}
		return nil
	})
}
