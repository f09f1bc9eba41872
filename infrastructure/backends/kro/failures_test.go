package kro

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/backend"
	"github.com/atoll-dev/atoll/infrastructure/instance"
	"github.com/atoll-dev/atoll/infrastructure/runtimecluster"
	"github.com/atoll-dev/atoll/logicalcluster"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// chain has two ConfigMaps, of which the second depends on the first.
const chain = `
resources:
- {id: second, template: {apiVersion: v1, kind: ConfigMap, metadata: {name: "${first.metadata.name}-second"}, data: {size: "${schema.spec.size}"}}}
- {id: first, template: {apiVersion: v1, kind: ConfigMap, metadata: {name: "${schema.metadata.name}"}}}
`

// setFinalizers sets the finalizers of a ConfigMap.
func (e *env) setFinalizers(t *testing.T, tenant, name, finalizers string) {
	t.Helper()
	object := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name}}
	if err := e.c.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":`+finalizers+`}}`))); err != nil {
		t.Fatal(err)
	}
}

func (e *env) testDeletionOrder(t *testing.T) {
	template := newTemplate(t, "ordered", chain)
	e.setUp(t, template)
	mine := newInstance(t, template, "ordered", "mine", "size: small")
	e.ready(t, mine)
	e.expectNames(t, "ordered", "mine", "mine-second")
	e.setFinalizers(t, "ordered", "mine-second", `["example.org/wait"]`)
	// Deletion needs only the inventory: it works after a restart, and with another Template.
	restarted := e.newBackend(t)
	mine.Template = change(t, template, "resources: []")
	for range 2 {
		if gone, err := restarted.Delete(t.Context(), mine); gone || err != nil {
			t.Fatalf("deleting: %v, %v", gone, err)
		}
		e.expectNames(t, "ordered", "mine", "mine-second")
	}
	e.setFinalizers(t, "ordered", "mine-second", `[]`)
	e.remove(t, mine)
	e.expectNames(t, "ordered")
}

func (e *env) testPrune(t *testing.T) {
	template := newTemplate(t, "pruned", chain)
	e.setUp(t, template)
	mine := newInstance(t, template, "pruned", "mine", "size: small")
	e.ready(t, mine)
	e.setFinalizers(t, "pruned", "mine-second", `["example.org/wait"]`)
	without := change(t, template, "resources: [{id: first, template: "+configMap+"}]")
	e.setUp(t, without)
	mine.Template = without
	e.ready(t, mine)
	for range 2 {
		if gone, err := e.backend.Delete(t.Context(), mine); gone || err != nil {
			t.Fatalf("deleting while a pruned object is left: %v, %v", gone, err)
		}
	}
	mine.Template = change(t, without, chain)
	e.setUp(t, mine.Template)
	if state := e.apply(t, mine); state.Phase != infrastructurev1alpha1.PhaseProvisioning || state.Message != "A previous part is being removed." {
		t.Errorf("while an object of that name is being deleted: %+v", state)
	}
	e.setFinalizers(t, "pruned", "mine-second", `[]`)
	e.ready(t, mine)
	e.remove(t, mine)
	e.expectNames(t, "pruned")
}

// errInterrupted is the error of a call that ends the process in tests.
var errInterrupted = errors.New("interrupted")

// interrupt returns a backend whose writes fail from the given one on, and a function that reports whether any has failed.
func (e *env) interrupt(t *testing.T, writes int) (interrupted *Backend, failed func() bool) {
	t.Helper()
	c, err := client.NewWithWatch(e.cluster.Config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	left := writes
	check := func() error {
		if left--; left < 0 {
			return errInterrupted
		}
		return nil
	}
	interrupted = e.newBackend(t)
	interrupted.Cluster.Client = interceptor.NewClient(c, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			if err := check(); err != nil {
				return err
			}
			return c.Create(ctx, object, options...)
		},
		Update: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.UpdateOption) error {
			if err := check(); err != nil {
				return err
			}
			return c.Update(ctx, object, options...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			if err := check(); err != nil {
				return err
			}
			return c.Delete(ctx, object, options...)
		},
		Apply: func(ctx context.Context, c client.WithWatch, object runtime.ApplyConfiguration, options ...client.ApplyOption) error {
			if err := check(); err != nil {
				return err
			}
			return c.Apply(ctx, object, options...)
		},
	})
	return interrupted, func() bool { return left < 0 }
}

func (e *env) testInterruptions(t *testing.T) {
	template := newTemplate(t, "interrupted", chain)
	e.setUp(t, template)
	mine := newInstance(t, template, "interrupted", "mine", "size: small")
	run := func(name string, call func(*Backend) error, check func()) {
		for writes := 0; ; writes++ {
			b, failed := e.interrupt(t, writes)
			err := call(b)
			if failed() && !errors.Is(err, errInterrupted) || !failed() && err != nil {
				t.Fatalf("%s, interrupted at write %d: %v", name, writes, err)
			}
			check()
			if !failed() {
				if writes < 3 {
					t.Errorf("%s has only %d writes", name, writes)
				}
				return
			}
		}
	}
	run("creation that is given up", func(b *Backend) error {
		_, err := b.Apply(t.Context(), mine)
		return err
	}, func() {
		e.remove(t, mine)
		e.expectNames(t, "interrupted")
	})
	run("creation that is repeated", func(b *Backend) error {
		_, err := b.Apply(t.Context(), mine)
		return err
	}, func() {
		e.ready(t, mine)
		e.expectNames(t, "interrupted", "mine", "mine-second")
		e.remove(t, mine)
	})
	e.ready(t, mine)
	run("deletion", func(b *Backend) error {
		_, err := b.Delete(t.Context(), mine)
		return err
	}, func() {
		e.remove(t, mine)
		e.expectNames(t, "interrupted")
		e.ready(t, mine)
	})
	e.remove(t, mine)
}

func (e *env) testBrokenTemplate(t *testing.T) {
	template := newTemplate(t, "edited", chain)
	e.setUp(t, template)
	mine := newInstance(t, template, "edited", "mine", "size: small")
	e.ready(t, mine)
	broken := change(t, template, strings.Replace(chain, "schema.spec.size", "schema.spec.colour", 1))
	if status, err := e.backend.SetupTemplate(t.Context(), broken); err != nil || status.Ready {
		t.Fatalf("setting the broken Template up: %+v, %v", status, err)
	}
	if state, err := e.backend.Apply(t.Context(), newInstance(t, broken, "edited", "mine", "size: large")); !errors.Is(err, instance.ErrUnusableTemplate) {
		t.Errorf("with the broken Template: %+v, %v", state, err)
	}
	// Until an edit is accepted, the platform provides instances from the Template that was accepted before.
	large := newInstance(t, template, "edited", "mine", "size: large")
	e.ready(t, large)
	edited := change(t, template, strings.Replace(chain, "schema.spec.size", "schema.spec.size + 'r'", 1))
	e.setUp(t, edited)
	e.ready(t, large)
	if data := e.get(t, "edited", "v1", "ConfigMap", "mine-second").Object["data"].(map[string]any); data["size"] != "large" {
		t.Errorf("data %v", data)
	}
	restarted := e.newBackend(t)
	if state, err := restarted.Apply(t.Context(), newInstance(t, broken, "edited", "mine", "size: large")); !errors.Is(err, instance.ErrUnusableTemplate) {
		t.Errorf("after a restart: %+v, %v", state, err)
	}
	e.expectNames(t, "edited", "mine", "mine-second")
	err := e.backend.TeardownTemplate(t.Context(), broken)
	if _, left := errors.AsType[*backend.InstancesLeftError](err); !left {
		t.Errorf("while there is an instance, and the Template is not deleted: %v", err)
	}
	if gone, err := restarted.Delete(t.Context(), large); !gone || err != nil {
		t.Errorf("deleting: %v, %v", gone, err)
	}
	e.expectNames(t, "edited")
}

func (e *env) testValues(t *testing.T) {
	template := newTemplate(t, "refused", `
resources:
- {id: main, template: {apiVersion: v1, kind: ConfigMap, metadata: {name: "main-${schema.spec.?image.orValue('shared')}"}, data: {size: "${schema.spec.size}"}}}
- id: service
  template: {apiVersion: v1, kind: Service, metadata: {name: "${main.metadata.name}"}, spec: {ports: [{port: "${schema.spec.?replicas.orValue(1)}"}]}}
- id: long
  includeWhen: ["${schema.spec.?backup.orValue(false)}"]
  template: {apiVersion: v1, kind: ConfigMap, metadata: {name: loop}, data: {a: "${string(lists.range(1000).map(a, lists.range(1000).map(b, lists.range(1000).map(c, c))).size())}"}}
- id: missing
  includeWhen: ["${schema.spec.size == 'large'}"]
  template: {apiVersion: v1, kind: ConfigMap, metadata: {name: missing}, data: {a: "${schema.spec.users[0]}"}}
- id: users
  forEach: [{user: "${schema.spec.?users.orValue([])}"}]
  template: {apiVersion: v1, kind: ConfigMap, metadata: {name: "${user}"}}
`)
	e.setUp(t, template)
	of := func(name, spec string) instance.Instance { return newInstance(t, template, "refused", name, spec) }
	e.ready(t, of("mine", "size: small"))
	for name, test := range map[string]struct {
		inst    instance.Instance
		message string
	}{
		"a value that the cluster refuses": {of("mine", "{size: small, replicas: 100000}"), "The values of this instance cannot be applied"},
		"a value that is missing":          {of("mine", "{size: large}"), "The values of this instance cannot be applied"},
		"an expression without end":        {of("mine", "{size: small, backup: true}"), "The values of this instance cannot be applied"},
		"an object of another instance":    {of("other", "{size: small}"), "would have the name of something else"},
		"a name that no object can have":   {of("mine", "{size: small, image: 'Not A Name'}"), "The values of this instance cannot be applied"},
		"a name that is two":               {of("mine", "{size: small, image: a/b}"), "The values of this instance cannot be applied"},
		"no name":                          {of("mine", "{size: small, users: ['', a]}"), "The values of this instance cannot be applied"},
		"an object twice":                  {of("mine", "{size: small, users: [a, a]}"), "The values of this instance cannot be applied"},
	} {
		state := e.apply(t, test.inst)
		if state.Phase != infrastructurev1alpha1.PhaseFailed || !strings.Contains(state.Message, test.message) {
			t.Errorf("%s: %+v", name, state)
		}
		if e.get(t, "refused", "v1", "Service", "main-shared") == nil || e.get(t, "refused", "v1", "ConfigMap", "main-shared") == nil {
			t.Fatalf("%s: what was applied before is gone", name)
		}
	}
	e.ready(t, of("mine", "size: small"))
	e.remove(t, of("other", "size: small"))
	e.remove(t, of("mine", "size: small"))
	e.expectNames(t, "refused")
}

// testRefusals applies objects that the cluster refuses without a reason: the error counts as invalid values, not as an unreachable cluster.
func (e *env) testRefusals(t *testing.T) {
	set := runtimecluster.Set{Tenant: logicalcluster.MustParseName("refusals"), Template: "refusals", Version: "1.0.0+build", Instance: "mine"}
	configMap := func(value any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "main"}, "data": map[string]any{"a": value}}}
	}
	if _, err := e.backend.Cluster.Apply(t.Context(), set, []*unstructured.Unstructured{configMap("b")}); err != nil {
		t.Fatal(err)
	}
	for name, object := range map[string]*unstructured.Unstructured{
		"more than etcd stores":                configMap(strings.Repeat("a", 1800<<10)),
		"more than a message to etcd may have": configMap(strings.Repeat("a", 2200<<10)),
		"more than the body of a request":      configMap(strings.Repeat("a", 4<<20)),
		"a text for a number": {Object: map[string]any{"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "typed"},
			"spec": map[string]any{"ports": []any{map[string]any{"port": "a"}}}}},
		"a field that does not exist": {Object: map[string]any{"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "typed"},
			"spec": map[string]any{"port": int64(1)}}},
	} {
		_, err := e.backend.Cluster.Apply(t.Context(), set, []*unstructured.Unstructured{object})
		if state, refused := runtimecluster.Refusal(err); !refused || state.Phase != infrastructurev1alpha1.PhaseFailed {
			t.Errorf("%s: %.300v", name, err)
		}
	}
	if gone, err := e.backend.Cluster.Delete(t.Context(), set); err != nil || !gone {
		t.Errorf("deleting: %v, %v", gone, err)
	}
}

func (e *env) testQuota(t *testing.T) {
	template := newTemplate(t, "limited", chain)
	e.setUp(t, template)
	first, second := newInstance(t, template, "limited", "first", "size: small"), newInstance(t, template, "limited", "second", "size: small")
	e.ready(t, first)
	// No controller of quotas runs here, so the test sets the status.
	full := corev1.ResourceList{"count/configmaps": apiresource.MustParse("3")}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "limited", Name: "quota"}, Spec: corev1.ResourceQuotaSpec{Hard: full}}
	if err := e.c.Create(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	quota.Status = corev1.ResourceQuotaStatus{Hard: full, Used: full}
	if err := e.c.Status().Update(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the quota to be enforced", func(ctx context.Context) error {
		state, err := e.backend.Apply(ctx, second)
		if err == nil && (state.Phase != infrastructurev1alpha1.PhaseFailed || state.Reason != "QuotaExceeded") {
			e.remove(t, second)
			err = fmt.Errorf("got %+v", state)
		}
		return err
	})
	e.ready(t, first)
	if err := e.c.Delete(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the instance to be applied", func(ctx context.Context) error {
		state, err := e.backend.Apply(ctx, second)
		if err == nil && state.Phase != infrastructurev1alpha1.PhaseReady {
			err = fmt.Errorf("got %+v", state)
		}
		return err
	})
	e.remove(t, first)
	e.remove(t, second)
}
