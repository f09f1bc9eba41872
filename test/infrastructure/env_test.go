package infrastructure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	provider "github.com/atoll-dev/atoll/infrastructure"
	"github.com/atoll-dev/atoll/infrastructure/backend"
	"github.com/atoll-dev/atoll/infrastructure/backends/kro"
	"github.com/atoll-dev/atoll/infrastructure/backends/manifest"
	"github.com/atoll-dev/atoll/infrastructure/backendtest"
	"github.com/atoll-dev/atoll/infrastructure/catalogue"
	"github.com/atoll-dev/atoll/infrastructure/instance"
	"github.com/atoll-dev/atoll/logicalcluster"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// sweepInterval is the sweep interval of the backends.
const sweepInterval = 500 * time.Millisecond

// env is a provider in its workspace on the root shard, which a test runs with the backends it needs.
type env struct {
	group     string
	workspace *rest.Config
	c         client.Client
	made      configMaps
	selector  labels.Selector // of the Templates of the export; nil for all
}

var envs atomic.Int32

func newEnv(t *testing.T) *env {
	t.Helper()
	shared.Start(t)
	e := &env{group: fmt.Sprintf("a%d.acceptance.example.org", envs.Add(1)), workspace: shared.installation.NewProvider(t).Config, made: newConfigMaps(t)}
	e.workspace.QPS = -1
	e.c = newClient(t, e.workspace, e.group)
	return e
}

// view returns the Template controller's view of instances.
func (e *env) view() *instance.View {
	return &instance.View{Workspace: e.workspace, Client: e.c, Export: e.group}
}

func newClient(t *testing.T, config *rest.Config, group string) client.Client {
	t.Helper()
	c, err := client.New(config, client.Options{Scheme: provider.NewScheme(group)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// run runs the provider until the returned function is called, or the test ends.
func (e *env) run(t *testing.T, workspace *rest.Config, backends ...backend.Backend) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := e.start(ctx, t, workspace, backends...)
	stop = sync.OnceFunc(func() {
		cancel()
		// The error is that of a provider whose connections are cut. A provider that ends for another reason provides nothing, and the
		// test fails.
		if err := <-ended; err != nil {
			t.Log(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// start runs the provider until the context ends, and returns how it ends.
func (e *env) start(ctx context.Context, t *testing.T, workspace *rest.Config, backends ...backend.Backend) (ended <-chan error) {
	t.Helper()
	registry := &backend.Registry{}
	for _, b := range backends {
		if err := registry.Register(b); err != nil {
			t.Fatal(err)
		}
	}
	how := make(chan error, 1)
	view := &instance.View{Workspace: workspace, Client: newClient(t, workspace, e.group), Export: e.group}
	go func() {
		how <- provider.Run(ctx, provider.Config{
			Workspace: workspace, Catalogue: catalogue.Options{Group: e.group, Export: e.group, Binders: "system:authenticated", Selector: e.selector},
			Backends: registry, Instances: view, MetricsAddress: "0", HealthAddress: "0", Log: logr.Discard(),
		})
	}()
	return how
}

// backends returns kro and manifest.
func (e *env) backends(t *testing.T) []backend.Backend {
	t.Helper()
	config := inRuntime(t, e.config())
	schemas, err := discovery.NewDiscoveryClientForConfig(shared.runtime.Config)
	if err != nil {
		t.Fatal(err)
	}
	graphs, err := kro.New(kro.Config{Config: config, Discovery: schemas})
	if err != nil {
		t.Fatal(err)
	}
	return []backend.Backend{graphs, manifest.New(config)}
}

// config returns the configuration of a backend.
func (e *env) config() backendtest.Config {
	return backendtest.Config{Group: e.group, Export: e.group, SweepInterval: sweepInterval}
}

// newTemplate returns a Template of the kind Sample.
func (e *env) newTemplate(backend, config string) *infrastructurev1alpha1.Template {
	return e.newTemplateOf("Sample", backend, config)
}

func (e *env) newTemplateOf(kind, backend, config string) *infrastructurev1alpha1.Template {
	name := strings.ToLower(kind)
	return &infrastructurev1alpha1.Template{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: infrastructurev1alpha1.TemplateSpec{
			DisplayName: kind, Version: "1.0.0", Backend: backend,
			InstanceCRD:   infrastructurev1alpha1.InstanceCRD{Group: e.group, Version: "v1alpha1", Kind: kind, Resource: name + "s"},
			Schema:        runtime.RawExtension{Raw: []byte(backendtest.Schema)},
			BackendConfig: &runtime.RawExtension{Raw: []byte(config)},
		},
	}
}

// publish creates the Template and waits until it is ready.
func (e *env) publish(t *testing.T, template *infrastructurev1alpha1.Template) {
	t.Helper()
	shardtesting.Eventually(t, "templates are served", func(ctx context.Context) error { return e.c.Create(ctx, template.DeepCopy()) })
	e.waitReady(t, template.Spec.Backend)
}

// waitReady waits until the Template is ready with a backend.
func (e *env) waitReady(t *testing.T, backend string) {
	t.Helper()
	shardtesting.Eventually(t, "the template is ready with "+backend, func(ctx context.Context) error {
		template := &infrastructurev1alpha1.Template{}
		if err := e.c.Get(ctx, client.ObjectKey{Name: "sample"}, template); err != nil {
			return err
		}
		ready := meta.FindStatusCondition(template.Status.Conditions, infrastructurev1alpha1.ConditionReady)
		if ready == nil || ready.Status != metav1.ConditionTrue || ready.ObservedGeneration != template.Generation || template.Status.Backend.Name != backend {
			return fmt.Errorf("the status is %+v", template.Status)
		}
		return nil
	})
}

// consumer is a workspace that has bound the export.
type consumer struct {
	backendtest.Workspace
	group     string
	cluster   logicalcluster.Name
	objects   dynamic.Interface
	instances dynamic.ResourceInterface
}

// newConsumer creates a workspace on a shard, and binds the export.
func (e *env) newConsumer(t *testing.T, shard string) *consumer {
	t.Helper()
	return e.newConsumerOf(t, shard, e.group)
}

// newUnbound creates a workspace on a shard.
func (e *env) newUnbound(t *testing.T, shard string) *consumer {
	t.Helper()
	of := &consumer{Workspace: shared.installation.NewTenantOn(t, shard), group: e.group}
	objects, err := dynamic.NewForConfig(of.Config)
	if err != nil {
		t.Fatal(err)
	}
	of.objects = objects
	of.instances = of.resource("v1alpha1", "samples")
	return of
}

// newConsumerOf is newConsumer with the name of an export.
func (e *env) newConsumerOf(t *testing.T, shard, name string) *consumer {
	t.Helper()
	of := e.newUnbound(t, shard)
	export := &apisv1alpha2.APIExport{}
	if err := e.c.Get(t.Context(), client.ObjectKey{Name: name}, export); err != nil {
		t.Fatal(err)
	}
	c := newClient(t, of.Config, e.group)
	binding := &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: "infrastructure"}}
	binding.Spec.Reference.Export = &apisv1alpha2.ExportBindingReference{Path: logicalcluster.Of(export).String(), Name: name}
	shardtesting.Eventually(t, "binding the export", func(ctx context.Context) error {
		return client.IgnoreAlreadyExists(c.Create(ctx, binding.DeepCopy()))
	})
	shardtesting.Eventually(t, "the export is bound", func(ctx context.Context) error {
		bound := &apisv1alpha2.APIBinding{}
		if err := c.Get(ctx, client.ObjectKeyFromObject(binding), bound); err != nil {
			return err
		}
		of.cluster = logicalcluster.Of(bound)
		if bound.Status.Phase != apisv1alpha2.APIBindingPhaseBound {
			return fmt.Errorf("conditions are %+v", bound.Status.Conditions)
		}
		return nil
	})
	return of
}

// resource returns a client of a resource of the provider in the workspace.
func (c *consumer) resource(version, name string) dynamic.NamespaceableResourceInterface {
	return c.objects.Resource(schema.GroupVersionResource{Group: c.group, Version: version, Resource: name})
}

func (e *env) newInstance(name, size string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": e.group + "/v1alpha1", "kind": "Sample", "metadata": map[string]any{"name": name}, "spec": map[string]any{"size": size},
	}}
}

// create creates an instance.
func (c *consumer) create(t *testing.T, e *env, name, size string) {
	t.Helper()
	object := e.newInstance(name, size)
	shardtesting.Eventually(t, "creating "+name, func(ctx context.Context) error {
		_, err := c.instances.Create(ctx, object, metav1.CreateOptions{})
		return client.IgnoreAlreadyExists(err)
	})
}

// remove deletes an instance, and does not wait.
func (c *consumer) remove(t *testing.T, name string) {
	t.Helper()
	if err := c.instances.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// patch changes an instance by a merge patch.
func (c *consumer) patch(t *testing.T, name, patch string) {
	t.Helper()
	if _, err := c.instances.Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (c *consumer) resize(t *testing.T, name, size string) {
	t.Helper()
	c.patch(t, name, `{"spec":{"size":"`+size+`"}}`)
}

// waitRows waits until a tenant sees exactly these Templates.
func (c *consumer) waitRows(t *testing.T, want ...string) {
	t.Helper()
	shardtesting.Eventually(t, fmt.Sprintf("%s to see %v", c.cluster, want), func(ctx context.Context) error {
		list, err := c.resource("v1alpha1", "templates").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var got []string
		for i := range list.Items {
			got = append(got, list.Items[i].GetName())
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			return fmt.Errorf("got %v", got)
		}
		return nil
	})
}

// waitSize waits until an instance is ready with a size.
func (c *consumer) waitSize(t *testing.T, name, size string) *unstructured.Unstructured {
	t.Helper()
	var got *unstructured.Unstructured
	shardtesting.Eventually(t, name+" is ready", func(ctx context.Context) (err error) {
		if got, err = c.instances.Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		status, _, _ := unstructured.NestedMap(got.Object, "status")
		if status["phase"] != string(infrastructurev1alpha1.PhaseReady) || status["size"] != size || readyOf(got) != "True" {
			return fmt.Errorf("the status is %v", status)
		}
		return nil
	})
	return got
}

// readyOf returns the status of the condition Ready.
func readyOf(object *unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, condition := range conditions {
		if fields, ok := condition.(map[string]any); ok && fields["type"] == "Ready" {
			status, _ := fields["status"].(string)
			return status
		}
	}
	return ""
}

// consistently fails if a condition returns an error within a number of sweeps.
func consistently(t *testing.T, what string, condition func(context.Context) error) {
	t.Helper()
	const sweeps = 6
	until := time.Now().Add(sweeps * sweepInterval)
	shardtesting.Eventually(t, what, func(ctx context.Context) error {
		if err := condition(ctx); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if time.Now().Before(until) {
			return errors.New("goes on")
		}
		return nil
	})
}

// expectMade waits until the runtime cluster has a number of objects of a tenant.
func (e *env) expectMade(t *testing.T, of *consumer, count int) {
	t.Helper()
	shardtesting.Eventually(t, fmt.Sprintf("there are %d things of %s", count, of.cluster), func(ctx context.Context) error {
		return e.countMade(ctx, of, count)
	})
}

func (e *env) countMade(ctx context.Context, of *consumer, count int) error {
	names, err := e.made.List(ctx, of.cluster)
	if err == nil && len(names) != count {
		err = fmt.Errorf("there is %v", names)
	}
	return err
}

// things is the number of objects of an instance.
const things = 3
