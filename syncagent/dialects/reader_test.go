package dialects_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	kdpcorev1alpha1 "github.com/atoll-dev/atoll/api/kdp/core/v1alpha1"
	servicesv1alpha1 "github.com/atoll-dev/atoll/api/kdp/services/v1alpha1"
	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/syncagent/dialects"
	"github.com/atoll-dev/atoll/syncagent/publication"
)

const group = "certificates.example.corp"

var selected = map[string]string{"agent": "a"}

func newer(name string) *syncagentv1alpha1.PublishedResource {
	return &syncagentv1alpha1.PublishedResource{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("newer-" + name), Labels: selected},
		Spec:       syncagentv1alpha1.PublishedResourceSpec{Resource: syncagentv1alpha1.SourceResource{APIGroup: "example.com", Kind: "Thing"}},
	}
}

func older(name string) *servicesv1alpha1.PublishedResource {
	return &servicesv1alpha1.PublishedResource{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("older-" + name), Labels: selected},
		Spec:       servicesv1alpha1.PublishedResourceSpec{Resource: servicesv1alpha1.SourceResource{APIGroup: "cert-manager.io", Version: "v1", Kind: "Certificate"}},
	}
}

func newReader(t *testing.T, kinds []client.Object, objects ...client.Object) (*dialects.Reader, client.Client) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := dialects.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	exportScheme := runtime.NewScheme()
	if err := apisv1alpha1.AddToScheme(exportScheme); err != nil {
		t.Fatal(err)
	}
	export := &apisv1alpha1.APIExport{ObjectMeta: metav1.ObjectMeta{Name: "certificates", Annotations: map[string]string{kdpcorev1alpha1.APIGroupAnnotationKey: group}}}
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range kinds {
		gvks, _, err := scheme.ObjectKinds(kind)
		if err != nil {
			t.Fatal(err)
		}
		mapper.Add(gvks[0], meta.RESTScopeRoot)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).WithObjects(objects...).
		WithStatusSubresource(&syncagentv1alpha1.PublishedResource{}, &servicesv1alpha1.PublishedResource{}).Build()
	exports := fake.NewClientBuilder().WithScheme(exportScheme).WithObjects(export).Build()
	r, err := dialects.NewReader(dialects.Options{Client: c, Group: dialects.ServiceGroup(exports, "certificates"), Selector: labels.SelectorFromSet(selected)})
	if err != nil {
		t.Fatal(err)
	}
	return r, c
}

func bothKinds() []client.Object {
	return []client.Object{&syncagentv1alpha1.PublishedResource{}, &servicesv1alpha1.PublishedResource{}}
}

func TestBothDialectsAreRead(t *testing.T) {
	unselected := newer("other")
	unselected.Labels = nil
	r, _ := newReader(t, bothKinds(), newer("same"), older("same"), unselected)
	if len(r.Kinds()) != 2 {
		t.Errorf("kinds are %v", r.Kinds())
	}
	publications, err := r.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(publications) != 2 {
		t.Fatalf("%d publications, want those that are selected, one of each dialect", len(publications))
	}
	keys := map[types.NamespacedName]bool{}
	for _, p := range publications {
		if len(p.Invalid) > 0 {
			t.Errorf("%s: %v", p.Object.GetUID(), p.Invalid)
		}
		key := dialects.Key(p.Object)
		keys[key] = true
		again, err := r.Get(t.Context(), key)
		if err != nil || again.Object.GetUID() != p.Object.GetUID() {
			t.Errorf("Get(%s) is %v (%v), want %s", key, again, err, p.Object.GetUID())
		}
	}
	if len(keys) != 2 {
		t.Errorf("objects of one name share a key: %v", keys)
	}
	if _, err := r.Get(t.Context(), dialects.Key(unselected)); !apierrors.IsNotFound(err) {
		t.Errorf("one that is not selected: %v", err)
	}
}

func TestResourcesAreFoundByGroupAndSchema(t *testing.T) {
	unselected, published := newer("other"), newer("published")
	unselected.Labels, published.Status.ResourceSchemaName = nil, "v1.things.example.com"
	r, _ := newReader(t, bothKinds(), newer("same"), published, older("same"), unselected)
	for name, tc := range map[string]struct {
		matches func(group, schemaName string) bool
		want    []types.NamespacedName
	}{
		"a group":       {func(group, _ string) bool { return group == "example.com" }, []types.NamespacedName{dialects.Key(newer("published")), dialects.Key(newer("same"))}},
		"another group": {func(group, _ string) bool { return group == "cert-manager.io" }, []types.NamespacedName{dialects.Key(older("same"))}},
		"a schema":      {func(_, schemaName string) bool { return schemaName == "v1.things.example.com" }, []types.NamespacedName{dialects.Key(published)}},
	} {
		t.Run(name, func(t *testing.T) {
			keys, err := r.Find(t.Context(), tc.matches)
			if err != nil || !slices.Equal(keys, tc.want) {
				t.Errorf("got %v (%v), want %v", keys, err, tc.want)
			}
		})
	}
}

func TestOnlyInstalledDialectsAreRead(t *testing.T) {
	r, _ := newReader(t, bothKinds()[1:], older("a"))
	publications, err := r.List(t.Context())
	if err != nil || len(publications) != 1 || publications[0].Spec.Projection.Group != group {
		t.Errorf("got %v, %v", publications, err)
	}
	if _, err := r.Get(t.Context(), types.NamespacedName{Name: "a"}); !apierrors.IsNotFound(err) {
		t.Errorf("the dialect that is not installed: %v", err)
	}
	c := fake.NewClientBuilder().WithScheme(runtime.NewScheme())
	scheme := runtime.NewScheme()
	if err := dialects.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if _, err := dialects.NewReader(dialects.Options{Client: c.WithScheme(scheme).WithRESTMapper(meta.NewDefaultRESTMapper(nil)).Build()}); err == nil {
		t.Error("a cluster without definitions is accepted")
	}
}

func TestTheGroupIsLookedUpOnceForAList(t *testing.T) {
	_, c := newReader(t, bothKinds(), newer("a"), older("b"), older("c"))
	lookups := 0
	r, err := dialects.NewReader(dialects.Options{Client: c, Group: func(context.Context) (string, error) {
		lookups++
		return group, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Get(t.Context(), types.NamespacedName{Name: "a"}); err != nil || lookups != 0 {
		t.Errorf("%d lookups for the newer dialect (%v)", lookups, err)
	}
	if all, err := r.List(t.Context()); err != nil || len(all) != 3 || lookups != 1 {
		t.Errorf("%d lookups for %d publications (%v)", lookups, len(all), err)
	}
}

func TestTheGroupOfAServiceIsThatOfItsExport(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := apisv1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	plain := &apisv1alpha1.APIExport{ObjectMeta: metav1.ObjectMeta{Name: "plain"}}
	exports := fake.NewClientBuilder().WithScheme(scheme).WithObjects(plain).Build()
	for _, name := range []string{"plain", "missing"} {
		if got, err := dialects.ServiceGroup(exports, name)(t.Context()); err != nil || got != "" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	exports = fake.NewClientBuilder().Build() // has no APIExports
	if _, err := dialects.ServiceGroup(exports, "plain")(t.Context()); err == nil {
		t.Error("a request that fails is no error")
	}
}

func TestStatusIsWrittenWhereItDiffers(t *testing.T) {
	r, c := newReader(t, bothKinds(), newer("a"), older("b"))
	publications, err := r.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	report := func(p *publication.Publication, conditions ...string) {
		t.Helper()
		err := r.WriteStatus(t.Context(), p, func(status *syncagentv1alpha1.PublishedResourceStatus) {
			status.ResourceSchemaName = "v1.things.example.com"
			for _, condition := range conditions {
				meta.SetStatusCondition(&status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: "Done"})
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range publications {
		// The publication is outdated after the first write; WriteStatus does not overwrite what others have written.
		report(p, syncagentv1alpha1.ConditionSchemaReady)
		report(p, syncagentv1alpha1.ConditionExported)
		if ready := readyOf(t, c, p); ready.Status != metav1.ConditionUnknown || ready.Reason != "Pending" {
			t.Errorf("before objects are synced, Ready is %v", ready)
		}
		report(p, syncagentv1alpha1.ConditionSyncing)
		if ready := readyOf(t, c, p); ready.Status != metav1.ConditionTrue {
			t.Errorf("Ready is %v", ready)
		}
		current, err := r.Get(t.Context(), dialects.Key(p.Object))
		if err != nil {
			t.Fatal(err)
		}
		report(p, syncagentv1alpha1.ConditionSyncing)
		again, err := r.Get(t.Context(), dialects.Key(p.Object))
		if err != nil {
			t.Fatal(err)
		}
		if current.Object.GetResourceVersion() != again.Object.GetResourceVersion() {
			t.Error("an equal status was written")
		}
		if again.SchemaName != "v1.things.example.com" {
			t.Errorf("the schema is %q", again.SchemaName)
		}
	}
	replaced := newer("a")
	replaced.UID = "an earlier one"
	err = r.WriteStatus(t.Context(), publication.FromPublishedResource(replaced), func(*syncagentv1alpha1.PublishedResourceStatus) {})
	if !apierrors.IsNotFound(err) {
		t.Errorf("status of a replaced object: %v", err)
	}
}

func readyOf(t *testing.T, c client.Client, p *publication.Publication) metav1.Condition {
	t.Helper()
	object := p.Object.DeepCopyObject().(client.Object)
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		t.Fatal(err)
	}
	var conditions []metav1.Condition
	switch object := object.(type) {
	case *syncagentv1alpha1.PublishedResource:
		conditions = object.Status.Conditions
	case *servicesv1alpha1.PublishedResource:
		conditions = object.Status.Conditions
	}
	if condition := meta.FindStatusCondition(conditions, syncagentv1alpha1.ConditionReady); condition != nil {
		return *condition
	}
	t.Fatal("there is no condition Ready")
	return metav1.Condition{}
}

// cached is a client that reads from a cache without any of the writes.
type cached struct {
	client.Client
	read client.Reader
}

func (c cached) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	return c.read.Get(ctx, key, object, options...)
}

func TestPartsOfTheAgentDoNotConflict(t *testing.T) {
	_, stale := newReader(t, bothKinds(), newer("a"))
	_, server := newReader(t, bothKinds(), newer("a"))
	conflicts := 0
	live := interceptor.NewClient(server.(client.WithWatch), interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, name string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			err := c.SubResource(name).Patch(ctx, object, patch, options...)
			if apierrors.IsConflict(err) {
				conflicts++
			}
			return err
		},
	})
	r, err := dialects.NewReader(dialects.Options{Client: cached{live, stale}, Live: live})
	if err != nil {
		t.Fatal(err)
	}
	p, err := r.Get(t.Context(), types.NamespacedName{Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	var parts sync.WaitGroup
	for _, condition := range []string{syncagentv1alpha1.ConditionSchemaReady, syncagentv1alpha1.ConditionExported, syncagentv1alpha1.ConditionSyncing} {
		parts.Go(func() {
			err := r.WriteStatus(t.Context(), p, func(status *syncagentv1alpha1.PublishedResourceStatus) {
				meta.SetStatusCondition(&status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: "Done"})
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	parts.Wait()
	if conflicts > 0 {
		t.Errorf("%d writes conflict", conflicts)
	}
	written := newer("a")
	if err := server.Get(t.Context(), client.ObjectKeyFromObject(written), written); err != nil || len(written.Status.Conditions) != 4 {
		t.Errorf("the conditions are %v, %v", written.Status.Conditions, err)
	}
}
