package binding_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

func TestDeletion(t *testing.T) {
	s := newEnv(t)
	for name, test := range map[string]func(*testing.T, *env){
		"objects go with their binding":                      objectsGoWithBinding,
		"a binding waits for the finalizers of objects":      waitsForFinalizers,
		"another binding of the same identity takes over":    adoption,
		"a definition that is shadowed goes without objects": shadowedDefinition,
		"a definition that is lost is made anew":             lostDefinition,
		"another schema does not take over":                  noAdoptionOfAnotherSchema,
		"a workspace goes with all that it has bound":        workspaceGoes,
		"bindings outlive the workspace of their provider":   providerGoes,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, &env{Shard: s.Shard, Client: s.Client, t: t})
		})
	}
}

// objects returns a client of the objects of a resource in a logical cluster.
func (s *env) objects(cluster string, gr schema.GroupResource) dynamic.ResourceInterface {
	s.t.Helper()
	d, err := dynamic.NewForConfig(shardtesting.At(s.Admin(s.t), cluster))
	if err != nil {
		s.t.Fatal(err)
	}
	return d.Resource(gr.WithVersion("v1")).Namespace("default")
}

// create makes an object, as soon as its resource is served.
func (s *env) create(cluster string, gr schema.GroupResource, kind, name string, finalizers ...string) {
	s.t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": gr.Group + "/v1", "kind": kind}}
	object.SetName(name)
	object.SetFinalizers(finalizers)
	shardtesting.Eventually(s.t, "creating "+name, func(ctx context.Context) error {
		_, err := s.objects(cluster, gr).Create(ctx, object, metav1.CreateOptions{})
		return err
	})
}

// release takes the finalizers off an object.
func (s *env) release(cluster string, gr schema.GroupResource, name string) {
	s.t.Helper()
	if _, err := s.objects(cluster, gr).Patch(context.Background(), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// gone waits until an object of a logical cluster is gone.
func (s *env) gone(cluster string, object client.Object) {
	s.t.Helper()
	shardtesting.Eventually(s.t, "end of "+object.GetName(), func(ctx context.Context) error {
		err := s.Get(shardtesting.In(ctx, cluster), client.ObjectKeyFromObject(object), object)
		if err == nil {
			return fmt.Errorf("it is still there: %+v", object)
		}
		return client.IgnoreNotFound(err)
	})
}

// stored returns how many objects of a resource lie in storage for a logical cluster, under any identity.
func (s *env) stored(cluster string, gr schema.GroupResource) int {
	s.t.Helper()
	keys := s.Keys(s.t, "/"+gr.Group+"/"+gr.Resource+"/")
	return len(slices.DeleteFunc(keys, func(key string) bool { return !strings.Contains(key, "/"+cluster+"/") }))
}

func objectsGoWithBinding(t *testing.T, s *env) {
	provider, consumer := s.pair()
	widgets := s.resource("widgets")
	s.NewExport(t, provider, "widgets", widgets, "Widget")
	binding := s.Bind(t, consumer, provider, "widgets")
	for i := range 3 {
		s.create(consumer, widgets, "Widget", fmt.Sprintf("w%d", i))
	}
	if got := s.stored(consumer, widgets); got != 3 {
		t.Fatalf("%d objects are stored", got)
	}
	if err := s.Delete(in(consumer), binding); err != nil {
		t.Fatal(err)
	}
	s.gone(consumer, binding)
	if got := s.stored(consumer, widgets); got != 0 {
		t.Errorf("%d objects are left", got)
	}
	// Who binds again begins anew.
	s.Bind(t, consumer, provider, "widgets")
	s.create(consumer, widgets, "Widget", "w0")
}

func waitsForFinalizers(t *testing.T, s *env) {
	provider, consumer := s.pair()
	widgets := s.resource("widgets")
	s.NewExport(t, provider, "widgets", widgets, "Widget")
	binding := s.Bind(t, consumer, provider, "widgets")
	s.create(consumer, widgets, "Widget", "held", "example.io/wait")
	s.create(consumer, widgets, "Widget", "free")
	if err := s.Delete(in(consumer), binding); err != nil {
		t.Fatal(err)
	}
	s.binding(consumer, "widgets", all(says(apisv1alpha2.BindingResourceDeleteSuccess, apisv1alpha2.SomeFinalizersRemainReason),
		mentions(apisv1alpha2.BindingResourceDeleteSuccess, widgets.String(), "example.io/wait (1)"), binds("widgets"), bound))
	if _, err := s.objects(consumer, widgets).Create(context.Background(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": widgets.Group + "/v1", "kind": "Widget", "metadata": map[string]any{"name": "late"},
	}}, metav1.CreateOptions{}); !apierrors.IsForbidden(err) && !apierrors.IsMethodNotSupported(err) {
		t.Errorf("creating an object while the binding goes: %v", err)
	}
	s.release(consumer, widgets, "held")
	s.gone(consumer, binding)
	if got := s.stored(consumer, widgets); got != 0 {
		t.Errorf("%d objects are left", got)
	}
}

// twins returns the logical clusters of two exports "widgets" and "twin" of one identity, and of a consumer.
func (s *env) twins(gr schema.GroupResource, schemaOf func(provider string) string) (provider, consumer string) {
	s.t.Helper()
	provider, consumer = s.pair()
	export := s.NewExport(s.t, provider, "widgets", gr, "Widget")
	twin := &apisv1alpha2.APIExport{
		ObjectMeta: metav1.ObjectMeta{Name: "twin"},
		Spec:       apisv1alpha2.APIExportSpec{Resources: export.Spec.Resources, Identity: export.Spec.Identity},
	}
	twin.Spec.Resources[0].Schema = schemaOf(provider)
	if err := s.Create(in(provider), twin); err != nil {
		s.t.Fatal(err)
	}
	return provider, consumer
}

func adoption(t *testing.T, s *env) {
	widgets := s.resource("widgets")
	provider, consumer := s.twins(widgets, func(string) string { return "v1." + widgets.String() })
	binding := s.Bind(t, consumer, provider, "widgets")
	s.create(consumer, widgets, "Widget", "kept")
	s.bind(consumer, "twin", provider, "twin")
	s.binding(consumer, "twin", says(apisv1alpha2.InitialBindingCompleted, apisv1alpha2.NamingConflictsReason))
	if err := s.Delete(in(consumer), binding); err != nil {
		t.Fatal(err)
	}
	s.gone(consumer, binding)
	s.binding(consumer, "twin", all(bound, binds("widgets")))
	shardtesting.Eventually(t, "the object is there still", func(ctx context.Context) error {
		_, err := s.objects(consumer, widgets).Get(ctx, "kept", metav1.GetOptions{})
		return err
	})
}

func noAdoptionOfAnotherSchema(t *testing.T, s *env) {
	widgets := s.resource("widgets")
	provider, consumer := s.twins(widgets, func(provider string) string {
		other := shardtesting.NewSchema("v2", widgets, "Widget")
		if err := s.Create(in(provider), other); err != nil {
			t.Fatal(err)
		}
		return other.Name
	})
	binding := s.Bind(t, consumer, provider, "widgets")
	s.create(consumer, widgets, "Widget", "lost")
	s.bind(consumer, "twin", provider, "twin")
	if err := s.Delete(in(consumer), binding); err != nil {
		t.Fatal(err)
	}
	s.gone(consumer, binding)
	s.binding(consumer, "twin", all(bound, binds("widgets")))
	if got := s.stored(consumer, widgets); got != 0 {
		t.Errorf("%d objects are left", got)
	}
}

// shadowedDefinition deletes a definition whose resource is bound: what is bound must stay.
func shadowedDefinition(t *testing.T, s *env) {
	provider, consumer := s.pair()
	widgets := s.resource("widgets")
	definition := s.define(consumer, widgets, "Widget")
	s.create(consumer, widgets, "Widget", "own")
	if err := s.Delete(in(consumer), definition); err != nil {
		t.Fatal(err)
	}
	s.gone(consumer, definition)
	s.NewExport(t, provider, "widgets", widgets, "Widget")
	s.Bind(t, consumer, provider, "widgets")
	definition = s.define(consumer, widgets, "Widget")
	s.create(consumer, widgets, "Widget", "bound")
	if err := s.Delete(in(consumer), definition); err != nil {
		t.Fatal(err)
	}
	s.gone(consumer, definition)
	if object, err := s.objects(consumer, widgets).Get(context.Background(), "bound", metav1.GetOptions{}); err != nil || object.GetDeletionTimestamp() != nil {
		t.Errorf("what is bound went with a definition that never served it: %v, %v", object, err)
	}
}

// lostDefinition takes away what serves a bound resource, from a binding that stays and from one that goes.
func lostDefinition(t *testing.T, s *env) {
	provider, consumer := s.pair()
	widgets := s.resource("widgets")
	s.NewExport(t, provider, "widgets", widgets, "Widget")
	binding := s.Bind(t, consumer, provider, "widgets")
	s.create(consumer, widgets, "Widget", "one", "example.io/wait")
	uid := binding.Status.BoundResources[0].Schema.UID
	masters := s.Shard.Client(t, s.Masters(t))
	lose := func() {
		t.Helper()
		definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: uid}}
		if err := masters.Get(in("system:bound-crds"), client.ObjectKeyFromObject(definition), definition); err != nil {
			t.Fatal(err)
		}
		before := definition.UID
		if err := masters.Delete(in("system:bound-crds"), definition); err != nil {
			t.Fatal(err)
		}
		shardtesting.Eventually(t, "another definition", func(ctx context.Context) error {
			err := masters.Get(shardtesting.In(ctx, "system:bound-crds"), client.ObjectKey{Name: uid}, definition)
			if err == nil && definition.UID == before {
				return errors.New("it is the old one")
			}
			return err
		})
	}
	lose()
	shardtesting.Eventually(t, "the object is served", func(ctx context.Context) error {
		_, err := s.objects(consumer, widgets).Get(ctx, "one", metav1.GetOptions{})
		return err
	})
	if err := s.Delete(in(consumer), binding); err != nil {
		t.Fatal(err)
	}
	s.binding(consumer, "widgets", says(apisv1alpha2.BindingResourceDeleteSuccess, apisv1alpha2.SomeFinalizersRemainReason))
	lose()
	shardtesting.Eventually(t, "the object is let go", func(ctx context.Context) error {
		_, err := s.objects(consumer, widgets).Patch(ctx, "one", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		return err
	})
	s.gone(consumer, binding)
	if got := s.stored(consumer, widgets); got != 0 {
		t.Errorf("%d objects are left", got)
	}
}

func workspaceGoes(t *testing.T, s *env) {
	provider, consumer := s.pair()
	widgets := s.resource("widgets")
	s.NewExport(t, provider, "widgets", widgets, "Widget")
	s.Bind(t, consumer, provider, "widgets")
	s.create(consumer, widgets, "Widget", "one")
	workspace := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: s.unique() + "-c"}}
	if err := s.Delete(in("root"), workspace); err != nil {
		t.Fatal(err)
	}
	s.gone("root", workspace)
	if keys := s.Keys(t, "/"+consumer+"/"); len(keys) > 0 {
		t.Errorf("left are %v", keys)
	}
}

func providerGoes(t *testing.T, s *env) {
	provider, consumer := s.pair()
	widgets := s.resource("widgets")
	s.NewExport(t, provider, "widgets", widgets, "Widget")
	binding := s.Bind(t, consumer, provider, "widgets")
	s.create(consumer, widgets, "Widget", "one")
	workspace := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: s.unique() + "-p"}}
	if err := s.Delete(in("root"), workspace); err != nil {
		t.Fatal(err)
	}
	s.gone("root", workspace)
	s.binding(consumer, "widgets", all(bound, binds("widgets"), says(apisv1alpha2.APIExportValid, apisv1alpha2.APIExportNotFoundReason)))
	if _, err := s.objects(consumer, widgets).Get(context.Background(), "one", metav1.GetOptions{}); err != nil {
		t.Errorf("what was bound is not served any more: %v", err)
	}
	if err := s.Delete(in(consumer), binding); err != nil {
		t.Fatal(err)
	}
	s.gone(consumer, binding)
	if got := s.stored(consumer, widgets); got != 0 {
		t.Errorf("%d objects are left", got)
	}
}
