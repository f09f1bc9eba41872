package infrastructure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/backend"
	"github.com/atoll-dev/atoll/infrastructure/backends/kro"
	"github.com/atoll-dev/atoll/infrastructure/backends/manifest"
	"github.com/atoll-dev/atoll/infrastructure/backendtest/stub"
	"github.com/atoll-dev/atoll/infrastructure/template"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
)

// While a shard is down, the provider sweeps nothing, not even the remains of a workspace on another shard, and serves tenants on others.
// The same applies while the runtime cluster is down: instances keep their objects, and deletions wait.
func TestOutages(t *testing.T) {
	e := newEnv(t)
	stop := e.run(t, e.workspace, e.backends(t)...)
	e.publish(t, e.newTemplate(manifest.Name, manifests))
	alpha, beta, lost := e.newConsumer(t, installation.Alpha), e.newConsumer(t, installation.Beta), e.newConsumer(t, installation.Beta)
	for _, of := range []*consumer{alpha, beta, lost} {
		of.create(t, e, "one", "small")
		of.waitSize(t, "one", "small")
	}

	stop()
	lost.vanish(t, "one")
	shared.installation.Kill(t, installation.Alpha)
	e.run(t, e.workspace, e.backends(t)...)
	consistently(t, "a shard is down", func(ctx context.Context) error {
		return errors.Join(e.countMade(ctx, alpha, things), e.countMade(ctx, lost, things))
	})
	beta.create(t, e, "two", "large")
	beta.waitSize(t, "two", "large")
	shared.installation.Restart(shared, installation.Alpha) // it outlives the test
	shared.installation.WaitReady(t, installation.Alpha)
	e.expectMade(t, lost, 0)
	e.expectMade(t, alpha, things)
	alpha.waitSize(t, "one", "small")

	shared.runtime.Kill(t)
	beta.remove(t, "two")
	alpha.patch(t, "one", `{"metadata":{"annotations":{"example.org/touched":"true"}}}`)
	shardtesting.Eventually(t, "the instance says that it is not looked after", func(ctx context.Context) error {
		object, err := alpha.instances.Get(ctx, "one", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if phase, _, _ := unstructured.NestedString(object.Object, "status", "phase"); phase != "Ready" || readyOf(object) != "Unknown" {
			return fmt.Errorf("the status is %v", object.Object["status"])
		}
		return nil
	})
	if _, err := beta.instances.Get(t.Context(), "two", metav1.GetOptions{}); err != nil {
		t.Errorf("the instance that is to be deleted: %v", err)
	}
	shared.runtime.Start(shared)
	shared.runtime.WaitReady(t)
	e.expectMade(t, beta, things)
	alpha.waitSize(t, "one", "small")
}

// vanish deletes a workspace without finalizing its instance.
func (c *consumer) vanish(t *testing.T, name string) {
	t.Helper()
	c.remove(t, name)
	c.patch(t, name, `{"metadata":{"finalizers":[]}}`)
	shared.installation.Delete(t, c.Workspace)
}

// Another backend takes over, and tenants observe only the phase in the meantime.
func TestBackendFlip(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.run(t, e.workspace, e.backends(t)...)
	e.publish(t, e.newTemplate(kro.Name, graph))
	tenants := []*consumer{e.newConsumer(t, installation.Alpha), e.newConsumer(t, installation.Beta)}
	before := make([]string, len(tenants))
	for i, of := range tenants {
		of.create(t, e, "mine", "large")
		before[i] = visible(t, of.waitSize(t, "mine", "large"))
	}
	e.change(t, func(t *infrastructurev1alpha1.Template) {
		t.Annotations = map[string]string{backend.AnnotationMigrate(e.group): ""}
		t.Spec.Backend, t.Spec.BackendConfig.Raw = manifest.Name, []byte(manifests)
	})
	e.waitReady(t, manifest.Name)
	for i, of := range tenants {
		shardtesting.Eventually(t, "the backend has taken over", func(ctx context.Context) error {
			owner, err := e.made.owner(ctx, of.cluster, "mine", e.group)
			if err == nil && owner != manifest.Name {
				err = errors.New("it is " + owner)
			}
			return err
		})
		if after := visible(t, of.waitSize(t, "mine", "large")); after != before[i] {
			t.Errorf("the tenant saw\n%s\nand sees\n%s", before[i], after)
		}
		e.expectMade(t, of, things)
		of.resize(t, "mine", "small")
		of.waitSize(t, "mine", "small")
		of.remove(t, "mine")
		e.expectMade(t, of, 0)
	}
}

// visible returns an object as a tenant sees it, without the fields that every write changes.
func visible(t *testing.T, object *unstructured.Unstructured) string {
	t.Helper()
	object = object.DeepCopy()
	object.SetResourceVersion("")
	object.SetManagedFields(nil) // times, and their order
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, condition := range conditions {
		delete(condition.(map[string]any), "lastTransitionTime")
	}
	if err := unstructured.SetNestedSlice(object.Object, conditions, "status", "conditions"); err != nil {
		t.Fatal(err)
	}
	text, err := json.MarshalIndent(object, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func (e *env) change(t *testing.T, change func(*infrastructurev1alpha1.Template)) {
	t.Helper()
	e.changeTemplate(t, "sample", change)
}

func (e *env) changeTemplate(t *testing.T, name string, change func(*infrastructurev1alpha1.Template)) {
	t.Helper()
	shardtesting.Eventually(t, "changing "+name, func(ctx context.Context) error {
		current := &infrastructurev1alpha1.Template{}
		if err := e.c.Get(ctx, client.ObjectKey{Name: name}, current); err != nil {
			return err
		}
		change(current)
		return e.c.Update(ctx, current)
	})
}

// The provider ends after any number of writes while it sets up its workspace, publishes a Template and removes it. The next process
// completes the work.
func TestProviderIsKilled(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	backend := stub.New("stub")
	start := func(n int) (k *killer, stop func()) {
		k = &killer{left: n}
		workspace := rest.CopyConfig(e.workspace)
		workspace.Wrap(k.wrap)
		return k, e.run(t, workspace, backend)
	}
	wanted := e.newTemplate("stub", `{}`)
	for n, completed := 1, false; !completed; n++ {
		if n > 100 {
			t.Fatal("a template takes more than 100 writes")
		}
		k, stop := start(n)
		published := e.until(t, k, e.isReady)
		stop()
		_, stop = start(-1)
		shardtesting.Eventually(t, "templates are served", func(ctx context.Context) error { return client.IgnoreAlreadyExists(e.c.Create(ctx, wanted.DeepCopy())) })
		e.waitReady(t, "stub")
		e.expectPublished(t, 1)
		stop()
		if err := e.c.Delete(t.Context(), wanted.DeepCopy()); err != nil {
			t.Fatal(err)
		}
		k, stop = start(n)
		removed := e.until(t, k, e.isGone)
		stop()
		_, stop = start(-1)
		e.until(t, nil, e.isGone)
		e.expectPublished(t, 0)
		stop()
		completed = published && removed
		// From this step on, it exists when the provider starts.
		if err := e.c.Create(t.Context(), wanted.DeepCopy()); err != nil {
			t.Fatal(err)
		}
	}
}

// until waits until a condition holds or the provider has ended, and reports whether it holds.
func (e *env) until(t *testing.T, k *killer, condition func(context.Context) error) (holds bool) {
	t.Helper()
	shardtesting.Eventually(t, "the provider is done or dies", func(ctx context.Context) error {
		err := condition(ctx)
		holds = err == nil
		if k != nil && k.isDead() {
			return nil
		}
		return err
	})
	return holds && (k == nil || !k.isDead())
}

func (e *env) isReady(ctx context.Context) error {
	current := &infrastructurev1alpha1.Template{}
	if err := e.c.Get(ctx, client.ObjectKey{Name: "sample"}, current); err != nil {
		return err
	}
	if current.Labels[template.LabelReady(e.group)] != "true" {
		return fmt.Errorf("the status is %+v", current.Status)
	}
	return nil
}

func (e *env) isGone(ctx context.Context) error {
	current := &infrastructurev1alpha1.Template{}
	if err := e.c.Get(ctx, client.ObjectKey{Name: "sample"}, current); !apierrors.IsNotFound(err) {
		return fmt.Errorf("the status is %+v, %w", current.Status, err)
	}
	return nil
}

// expectPublished waits for the numbers of definitions, schemas and entries of the export: the provider deletes schemas after it observes
// that the export does not list them.
func (e *env) expectPublished(t *testing.T, count int) {
	t.Helper()
	shardtesting.Eventually(t, "what is published", func(ctx context.Context) error {
		var definitions apiextensionsv1.CustomResourceDefinitionList
		var schemas apisv1alpha1.APIResourceSchemaList
		ofTemplate := client.MatchingLabels{template.LabelTemplate(e.group): "sample"}
		if err := errors.Join(e.c.List(ctx, &definitions, ofTemplate), e.c.List(ctx, &schemas, ofTemplate)); err != nil {
			return err
		}
		entries := len(slices.DeleteFunc(e.getExport(t).Spec.Resources, func(r apisv1alpha2.ResourceSchema) bool { return r.Name != "samples" }))
		if len(definitions.Items) != count || len(schemas.Items) != count || entries != count {
			return fmt.Errorf("there are %d definitions, %d schemas and %d entries, want %d", len(definitions.Items), len(schemas.Items), entries, count)
		}
		return nil
	})
}
