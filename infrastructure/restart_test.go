package infrastructure_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure"
	"github.com/atoll-dev/atoll/infrastructure/backend"
	"github.com/atoll-dev/atoll/infrastructure/backendtest/stub"
	"github.com/atoll-dev/atoll/infrastructure/catalogue"
	"github.com/atoll-dev/atoll/infrastructure/template"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

var errKilled = errors.New("the process is killed")

// mortal is a client that fails after a number of writes, like a process that is killed; a negative number means never.
type mortal struct {
	left, writes int
	lags         bool // its cache does not contain any schema yet
}

func (m *mortal) write(do func() error) error {
	if m.left == 0 {
		return errKilled
	}
	m.left--
	err := do()
	if err == nil {
		m.writes++
	}
	return err
}

func (m *mortal) wrap(c client.WithWatch) client.Client {
	return interceptor.NewClient(c, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, o ...client.CreateOption) error {
			return m.write(func() error { return c.Create(ctx, object, o...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, object client.Object, o ...client.UpdateOption) error {
			return m.write(func() error { return c.Update(ctx, object, o...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, o ...client.PatchOption) error {
			return m.write(func() error { return c.Patch(ctx, object, patch, o...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, o ...client.DeleteOption) error {
			return m.write(func() error { return c.Delete(ctx, object, o...) })
		},
		DeleteAllOf: func(ctx context.Context, c client.WithWatch, object client.Object, o ...client.DeleteAllOfOption) error {
			return m.write(func() error { return c.DeleteAllOf(ctx, object, o...) })
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
			if _, schemas := list.(*apisv1alpha1.APIResourceSchemaList); schemas && m.lags {
				return nil
			}
			return c.List(ctx, list, o...)
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, o ...client.GetOption) error {
			if _, schema := object.(*apisv1alpha1.APIResourceSchema); schema && m.lags {
				return apierrors.NewNotFound(apisv1alpha1.Resource("apiresourceschemas"), key.Name)
			}
			return c.Get(ctx, key, object, o...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, name string, object client.Object, patch client.Patch, o ...client.SubResourcePatchOption) error {
			return m.write(func() error { return c.SubResource(name).Patch(ctx, object, patch, o...) })
		},
	})
}

// restartEnv is a provider's workspace in which only the controllers of the test run.
type restartEnv struct {
	*env
	watched client.WithWatch
}

// reconcile reconciles a Template until it is done, or the client fails.
func (e *restartEnv) reconcile(t *testing.T, m *mortal, name string, done func(*infrastructurev1alpha1.Template) bool) {
	t.Helper()
	registry := &backend.Registry{}
	for _, b := range []backend.Backend{e.backend, e.other} {
		if err := registry.Register(b); err != nil {
			t.Fatal(err)
		}
	}
	r := &template.Reconciler{Client: m.wrap(e.watched), Live: e.c, Group: group, Export: export, Backends: registry, Instances: e.instances, Events: events.NewFakeRecorder(1000)}
	shardtesting.Eventually(t, "the controller to have nothing to do", func(ctx context.Context) error {
		_, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKey{Name: name}})
		if m.left == 0 {
			return nil
		}
		current := &infrastructurev1alpha1.Template{}
		if err := errors.Join(err, e.c.Get(ctx, client.ObjectKey{Name: name}, current)); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		if !done(current) {
			return fmt.Errorf("status %+v", current.Status)
		}
		return nil
	})
}

// TestRestarts kills the controller after each of its writes, and continues with another one.
func TestRestarts(t *testing.T) {
	e := &restartEnv{env: newWorkspaces(t)}
	e.backend, e.other, e.instances = stub.New("kro"), stub.New("manifest"), &counter{}
	var err error
	if e.watched, err = client.NewWithWatch(e.workspace(t), client.Options{Scheme: infrastructure.NewScheme(group)}); err != nil {
		t.Fatal(err)
	}
	if err := catalogue.Ensure(t.Context(), e.c, catalogue.Options{Group: group, Export: export}); err != nil {
		t.Fatal(err)
	}
	ready := func(t *infrastructurev1alpha1.Template) bool {
		condition := meta.FindStatusCondition(t.Status.Conditions, infrastructurev1alpha1.ConditionReady)
		return condition != nil && condition.Status == metav1.ConditionTrue && condition.ObservedGeneration == t.Generation && t.Labels[template.LabelReady(group)] == "true"
	}
	gone := func(t *infrastructurev1alpha1.Template) bool { return t.Name == "" }
	before := e.exported(t)
	killed := 0
	for n := 0; ; n++ {
		name := fmt.Sprintf("redis%d", n)
		last := true
		step := func(done func(*infrastructurev1alpha1.Template) bool) {
			t.Helper()
			first := &mortal{left: n}
			e.reconcile(t, first, name, done)
			if first.left == 0 {
				killed++
				last = false
			}
			e.reconcile(t, &mortal{left: -1}, name, done)
		}
		created := newTemplate(name, "Redis")
		e.create(t, created)
		step(ready)
		e.change(t, name, func(t *infrastructurev1alpha1.Template) {
			t.Spec.Schema.Raw = []byte(`{"type":"object","properties":{"name":{"type":"string"},"size":{"type":"string","default":"small"},"more":{"type":"string"}}}`)
		})
		step(ready)
		e.change(t, name, func(t *infrastructurev1alpha1.Template) {
			t.Spec.Backend = "manifest"
			metav1.SetMetaDataAnnotation(&t.ObjectMeta, backend.AnnotationMigrate(group), "")
		})
		step(ready)
		e.assertPublished(t, name)
		if _, left := e.ready(t, name).Annotations[backend.AnnotationMigrate(group)]; left {
			t.Error("after a restart, the Template has the annotation that allows another take-over")
		}
		unchanged := &mortal{left: -1}
		e.reconcile(t, unchanged, name, ready)
		if unchanged.writes > 0 {
			t.Errorf("after a restart, an unchanged template is written %d times", unchanged.writes)
		}
		if err := e.c.Delete(t.Context(), created); err != nil {
			t.Fatal(err)
		}
		step(gone)
		e.gone(t, created)
		if after := e.exported(t); !maps.Equal(after, before) {
			t.Errorf("killed after %d writes, the export lists %v in the end", n, after)
		}
		for _, b := range []*stub.Backend{e.backend, e.other} {
			if !slices.Contains(b.TornDown(), name) {
				t.Errorf("killed after %d writes, backend %s was not torn down", n, b.Name())
			}
		}
		if last || t.Failed() {
			break
		}
	}
	if killed < 20 {
		t.Errorf("the controller was killed %d times", killed)
	}
	e.testNewSchema(t, gone)
	e.testNewEntry(t, gone)
	e.testEditAfterEdit(t, ready, gone)
}

// testEditAfterEdit edits a Template while the cache lacks the schema of the previous edit: an edit that would invalidate instances is refused.
func (e *restartEnv) testEditAfterEdit(t *testing.T, ready, gone func(*infrastructurev1alpha1.Template) bool) {
	edited := newTemplate("edited", "Edited")
	e.create(t, edited)
	e.reconcile(t, &mortal{left: -1}, edited.Name, ready)
	e.change(t, edited.Name, withSchema(`{"type":"object","properties":{"refused":{"type":"string"}}}`))
	e.reconcile(t, &mortal{left: -1, lags: true}, edited.Name, func(t *infrastructurev1alpha1.Template) bool {
		condition := meta.FindStatusCondition(t.Status.Conditions, infrastructurev1alpha1.ConditionReady)
		return condition.ObservedGeneration == t.Generation
	})
	e.unready(t, edited.Name, infrastructurev1alpha1.ReasonInvalidSpec)
	if err := e.c.Delete(t.Context(), edited); err != nil {
		t.Fatal(err)
	}
	e.reconcile(t, &mortal{left: -1}, edited.Name, gone)
}

// testNewEntry removes a Template whose controller is killed after it has listed the kind, and before it has updated the status: instances may
// exist already.
func (e *restartEnv) testNewEntry(t *testing.T, gone func(*infrastructurev1alpha1.Template) bool) {
	for writes := 1; ; writes++ {
		removed := newTemplate("entry", "Entry")
		e.create(t, removed)
		e.reconcile(t, &mortal{left: writes}, removed.Name, func(*infrastructurev1alpha1.Template) bool { return false })
		if err := e.c.Get(t.Context(), client.ObjectKeyFromObject(removed), removed); err != nil {
			t.Fatal(err)
		}
		if removed.Status.Registered.SchemaInAPIExport {
			t.Fatal("the status was written before")
		}
		before := e.exported(t)["entry"]
		e.instances.count.Store(1)
		if err := e.c.Delete(t.Context(), removed); err != nil {
			t.Fatal(err)
		}
		isDraining := func(t *infrastructurev1alpha1.Template) bool {
			ready := meta.FindStatusCondition(t.Status.Conditions, infrastructurev1alpha1.ConditionReady)
			return t.Name == "" || ready != nil && ready.Reason == infrastructurev1alpha1.ReasonDraining
		}
		if before != "" {
			e.reconcile(t, &mortal{left: -1}, removed.Name, isDraining)
			if after := e.exported(t)["entry"]; after == "" || after == before {
				t.Errorf("while there are instances, the export lists %q, before %q", after, before)
			}
		}
		e.instances.count.Store(0)
		e.reconcile(t, &mortal{left: -1}, removed.Name, gone)
		e.gone(t, removed)
		if before != "" {
			return
		}
	}
}

// testNewSchema removes a Template whose schema was just created, as by a reconciliation with a stale cache that had not observed the removal.
func (e *restartEnv) testNewSchema(t *testing.T, gone func(*infrastructurev1alpha1.Template) bool) {
	removed := newTemplate("lagging", "Lagging")
	removed.Finalizers = []string{template.Finalizer(group)}
	e.create(t, removed)
	definition, err := template.Definition(removed, nil)
	if err != nil {
		t.Fatal(err)
	}
	schema, err := template.Schema(definition)
	if err != nil {
		t.Fatal(err)
	}
	schema.Labels = map[string]string{template.LabelTemplate(group): removed.Name}
	if err := errors.Join(e.c.Create(t.Context(), schema), e.c.Delete(t.Context(), removed)); err != nil {
		t.Fatal(err)
	}
	e.reconcile(t, &mortal{left: -1, lags: true}, removed.Name, gone)
	e.gone(t, removed)
}

// assertPublished checks the state of a Template after all changes.
func (e *restartEnv) assertPublished(t *testing.T, name string) {
	t.Helper()
	got := &infrastructurev1alpha1.Template{}
	if err := e.c.Get(t.Context(), client.ObjectKey{Name: name}, got); err != nil {
		t.Fatal(err)
	}
	if backend := got.Status.Backend; backend.Name != "manifest" || backend.ReplacedBy != "" || got.Status.ObservedGeneration != got.Generation {
		t.Errorf("status %+v", got.Status)
	}
	if registered := got.Status.Registered; registered.SchemaName != e.exported(t)["redis"] || !slices.Equal(registered.Exports, []string{export}) {
		t.Errorf("registered %+v", registered)
	}
	var schemas apisv1alpha1.APIResourceSchemaList
	if err := e.c.List(t.Context(), &schemas, client.MatchingLabels{template.LabelTemplate(group): name}); err != nil || len(schemas.Items) != 2 {
		t.Errorf("there are %d schemas, %v", len(schemas.Items), err)
	}
}
