package apiexport_test

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
		"objects are deleted with their binding":                    testObjectDeletion,
		"a binding waits for the finalizers of objects":             testObjectFinalizers,
		"another binding of the same identity adopts the objects":   testAdoptionBySameIdentity,
		"a shadowed definition is deleted without objects":          testShadowedDefinition,
		"a deleted definition is restored":                          testLostDefinition,
		"a binding with another schema does not adopt the objects":  testNoAdoptionOfOtherSchema,
		"a workspace is deleted with its bound objects":             testWorkspaceDeletion,
		"bindings survive the deletion of the provider's workspace": testProviderDeletion,
		"objects of the other scope are deleted with their binding": testOtherScopeDeletion,
		"objects of the other scope do not hold their workspace":    testOtherScopeWorkspaceDeletion,
		"a binding waits for its successor":                         testSuccessor,
		"a binding stops to wait for a successor":                   testSuccessorIsNotAwaited,
		"a workspace does not wait for successors":                  testSuccessorWorkspaceDeletion,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, &env{Shard: s.Shard, Client: s.Client, t: t})
		})
	}
}

// objectClient returns a client of the objects of a resource in a logical cluster.
func (e *env) objectClient(cluster string, gr schema.GroupResource) dynamic.ResourceInterface {
	e.t.Helper()
	d, err := dynamic.NewForConfig(shardtesting.At(e.Admin(e.t), cluster))
	if err != nil {
		e.t.Fatal(err)
	}
	return d.Resource(gr.WithVersion("v1")).Namespace("default")
}

// createObject creates an object once its resource is served.
func (e *env) createObject(cluster string, gr schema.GroupResource, kind, name string, finalizers ...string) {
	e.t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": gr.Group + "/v1", "kind": kind}}
	object.SetName(name)
	object.SetFinalizers(finalizers)
	shardtesting.Eventually(e.t, "creating "+name, func(ctx context.Context) error {
		_, err := e.objectClient(cluster, gr).Create(ctx, object, metav1.CreateOptions{})
		return err
	})
}

// removeFinalizers removes the finalizers of an object.
func (e *env) removeFinalizers(cluster string, gr schema.GroupResource, name string) {
	e.t.Helper()
	if _, err := e.objectClient(cluster, gr).Patch(context.Background(), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		e.t.Fatal(err)
	}
}

// expectDeleted waits until an object of a logical cluster is deleted.
func (e *env) expectDeleted(cluster string, object client.Object) {
	e.t.Helper()
	shardtesting.Eventually(e.t, "deletion of "+object.GetName(), func(ctx context.Context) error {
		err := e.Get(shardtesting.In(ctx, cluster), client.ObjectKeyFromObject(object), object)
		if err == nil {
			return fmt.Errorf("it still exists: %+v", object)
		}
		return client.IgnoreNotFound(err)
	})
}

// countStored returns the number of stored objects of a resource in a logical cluster, under any identity.
func (e *env) countStored(cluster string, gr schema.GroupResource) int {
	e.t.Helper()
	keys := e.Keys(e.t, "/"+gr.Group+"/"+gr.Resource+"/")
	return len(slices.DeleteFunc(keys, func(key string) bool { return !strings.Contains(key, "/"+cluster+"/") }))
}

func testObjectDeletion(t *testing.T, s *env) {
	provider, consumer := s.newProviderAndConsumer()
	widgets := s.newResource("widgets")
	s.NewExport(t, provider, "widgets", widgets, "Widget")
	binding := s.Bind(t, consumer, provider, "widgets")
	for i := range 3 {
		s.createObject(consumer, widgets, "Widget", fmt.Sprintf("w%d", i))
	}
	if got := s.countStored(consumer, widgets); got != 3 {
		t.Fatalf("%d objects are stored", got)
	}
	if err := s.Delete(clusterContext(consumer), binding); err != nil {
		t.Fatal(err)
	}
	s.expectDeleted(consumer, binding)
	if got := s.countStored(consumer, widgets); got != 0 {
		t.Errorf("%d objects remain", got)
	}
	// A new binding starts without objects.
	s.Bind(t, consumer, provider, "widgets")
	s.createObject(consumer, widgets, "Widget", "w0")
}

func testObjectFinalizers(t *testing.T, s *env) {
	provider, consumer := s.newProviderAndConsumer()
	widgets := s.newResource("widgets")
	s.NewExport(t, provider, "widgets", widgets, "Widget")
	binding := s.Bind(t, consumer, provider, "widgets")
	s.createObject(consumer, widgets, "Widget", "held", "example.io/wait")
	s.createObject(consumer, widgets, "Widget", "free")
	if err := s.Delete(clusterContext(consumer), binding); err != nil {
		t.Fatal(err)
	}
	s.waitForBinding(consumer, "widgets", allOf(hasCondition(apisv1alpha2.BindingResourceDeleteSuccess, apisv1alpha2.SomeFinalizersRemainReason),
		messageContains(apisv1alpha2.BindingResourceDeleteSuccess, widgets.String(), "example.io/wait (1)"), bindsResources("widgets"), isBound))
	if _, err := s.objectClient(consumer, widgets).Create(context.Background(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": widgets.Group + "/v1", "kind": "Widget", "metadata": map[string]any{"name": "late"},
	}}, metav1.CreateOptions{}); !apierrors.IsForbidden(err) && !apierrors.IsMethodNotSupported(err) {
		t.Errorf("creating an object while the binding is being deleted: %v", err)
	}
	s.removeFinalizers(consumer, widgets, "held")
	s.expectDeleted(consumer, binding)
	if got := s.countStored(consumer, widgets); got != 0 {
		t.Errorf("%d objects remain", got)
	}
}

// newExportsWithSameIdentity returns the logical clusters of two exports "widgets" and "twin" of one identity, and of a consumer.
func (e *env) newExportsWithSameIdentity(gr schema.GroupResource, schemaOf func(provider string) string) (provider, consumer string) {
	e.t.Helper()
	provider, consumer = e.newProviderAndConsumer()
	export := e.NewExport(e.t, provider, "widgets", gr, "Widget")
	twin := &apisv1alpha2.APIExport{
		ObjectMeta: metav1.ObjectMeta{Name: "twin"},
		Spec:       apisv1alpha2.APIExportSpec{Resources: export.Spec.Resources, Identity: export.Spec.Identity},
	}
	twin.Spec.Resources[0].Schema = schemaOf(provider)
	if err := e.Create(clusterContext(provider), twin); err != nil {
		e.t.Fatal(err)
	}
	return provider, consumer
}

func testAdoptionBySameIdentity(t *testing.T, s *env) {
	widgets := s.newResource("widgets")
	provider, consumer := s.newExportsWithSameIdentity(widgets, func(string) string { return "v1." + widgets.String() })
	binding := s.Bind(t, consumer, provider, "widgets")
	s.createObject(consumer, widgets, "Widget", "kept")
	s.createBinding(consumer, "twin", provider, "twin")
	s.waitForBinding(consumer, "twin", hasCondition(apisv1alpha2.InitialBindingCompleted, apisv1alpha2.NamingConflictsReason))
	if err := s.Delete(clusterContext(consumer), binding); err != nil {
		t.Fatal(err)
	}
	s.expectDeleted(consumer, binding)
	s.waitForBinding(consumer, "twin", allOf(isBound, bindsResources("widgets")))
	shardtesting.Eventually(t, "the object still exists", func(ctx context.Context) error {
		_, err := s.objectClient(consumer, widgets).Get(ctx, "kept", metav1.GetOptions{})
		return err
	})
}

func testNoAdoptionOfOtherSchema(t *testing.T, s *env) {
	widgets := s.newResource("widgets")
	provider, consumer := s.newExportsWithSameIdentity(widgets, func(provider string) string {
		other := shardtesting.NewSchema("v2", widgets, "Widget")
		if err := s.Create(clusterContext(provider), other); err != nil {
			t.Fatal(err)
		}
		return other.Name
	})
	binding := s.Bind(t, consumer, provider, "widgets")
	s.createObject(consumer, widgets, "Widget", "lost")
	s.createBinding(consumer, "twin", provider, "twin")
	if err := s.Delete(clusterContext(consumer), binding); err != nil {
		t.Fatal(err)
	}
	s.expectDeleted(consumer, binding)
	s.waitForBinding(consumer, "twin", allOf(isBound, bindsResources("widgets")))
	if got := s.countStored(consumer, widgets); got != 0 {
		t.Errorf("%d objects remain", got)
	}
}

// testShadowedDefinition deletes a definition whose resource is bound: bound objects must remain.
func testShadowedDefinition(t *testing.T, s *env) {
	provider, consumer := s.newProviderAndConsumer()
	widgets := s.newResource("widgets")
	definition := s.createDefinition(consumer, widgets, "Widget")
	s.createObject(consumer, widgets, "Widget", "own")
	if err := s.Delete(clusterContext(consumer), definition); err != nil {
		t.Fatal(err)
	}
	s.expectDeleted(consumer, definition)
	s.NewExport(t, provider, "widgets", widgets, "Widget")
	s.Bind(t, consumer, provider, "widgets")
	definition = s.createDefinitionUntil(consumer, widgets, "Widget", apiextensionsv1.NamesAccepted, apiextensionsv1.ConditionFalse)
	s.createObject(consumer, widgets, "Widget", "bound")
	if err := s.Delete(clusterContext(consumer), definition); err != nil {
		t.Fatal(err)
	}
	s.expectDeleted(consumer, definition)
	if object, err := s.objectClient(consumer, widgets).Get(context.Background(), "bound", metav1.GetOptions{}); err != nil || object.GetDeletionTimestamp() != nil {
		t.Errorf("bound objects were deleted with a definition that never served them: %v, %v", object, err)
	}
}

// testLostDefinition deletes the definition of a bound resource, with a binding that remains and one that is being
// deleted.
func testLostDefinition(t *testing.T, s *env) {
	provider, consumer := s.newProviderAndConsumer()
	widgets := s.newResource("widgets")
	s.NewExport(t, provider, "widgets", widgets, "Widget")
	binding := s.Bind(t, consumer, provider, "widgets")
	s.createObject(consumer, widgets, "Widget", "one", "example.io/wait")
	uid := binding.Status.BoundResources[0].Schema.UID
	masters := s.Shard.Client(t, s.Masters(t))
	deleteDefinition := func() {
		t.Helper()
		definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: uid}}
		if err := masters.Get(clusterContext("system:bound-crds"), client.ObjectKeyFromObject(definition), definition); err != nil {
			t.Fatal(err)
		}
		before := definition.UID
		if err := masters.Delete(clusterContext("system:bound-crds"), definition); err != nil {
			t.Fatal(err)
		}
		shardtesting.Eventually(t, "another definition", func(ctx context.Context) error {
			err := masters.Get(shardtesting.In(ctx, "system:bound-crds"), client.ObjectKey{Name: uid}, definition)
			if err == nil && definition.UID == before {
				return errors.New("it is the previous one")
			}
			return err
		})
	}
	deleteDefinition()
	shardtesting.Eventually(t, "the object is served", func(ctx context.Context) error {
		_, err := s.objectClient(consumer, widgets).Get(ctx, "one", metav1.GetOptions{})
		return err
	})
	if err := s.Delete(clusterContext(consumer), binding); err != nil {
		t.Fatal(err)
	}
	s.waitForBinding(consumer, "widgets", hasCondition(apisv1alpha2.BindingResourceDeleteSuccess, apisv1alpha2.SomeFinalizersRemainReason))
	deleteDefinition()
	shardtesting.Eventually(t, "the object is deleted", func(ctx context.Context) error {
		_, err := s.objectClient(consumer, widgets).Patch(ctx, "one", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		return err
	})
	s.expectDeleted(consumer, binding)
	if got := s.countStored(consumer, widgets); got != 0 {
		t.Errorf("%d objects remain", got)
	}
}

func testWorkspaceDeletion(t *testing.T, s *env) {
	provider, consumer := s.newProviderAndConsumer()
	widgets := s.newResource("widgets")
	s.NewExport(t, provider, "widgets", widgets, "Widget")
	s.Bind(t, consumer, provider, "widgets")
	s.createObject(consumer, widgets, "Widget", "one")
	workspace := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: s.uniqueName() + "-c"}}
	if err := s.Delete(clusterContext("root"), workspace); err != nil {
		t.Fatal(err)
	}
	s.expectDeleted("root", workspace)
	if keys := s.Keys(t, "/"+consumer+"/"); len(keys) > 0 {
		t.Errorf("remaining keys are %v", keys)
	}
}

func testProviderDeletion(t *testing.T, s *env) {
	provider, consumer := s.newProviderAndConsumer()
	widgets := s.newResource("widgets")
	s.NewExport(t, provider, "widgets", widgets, "Widget")
	binding := s.Bind(t, consumer, provider, "widgets")
	s.createObject(consumer, widgets, "Widget", "one")
	workspace := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: s.uniqueName() + "-p"}}
	if err := s.Delete(clusterContext("root"), workspace); err != nil {
		t.Fatal(err)
	}
	s.expectDeleted("root", workspace)
	s.waitForBinding(consumer, "widgets", allOf(isBound, bindsResources("widgets"), hasCondition(apisv1alpha2.APIExportValid, apisv1alpha2.APIExportNotFoundReason)))
	if _, err := s.objectClient(consumer, widgets).Get(context.Background(), "one", metav1.GetOptions{}); err != nil {
		t.Errorf("the bound resource is no longer served: %v", err)
	}
	if err := s.Delete(clusterContext(consumer), binding); err != nil {
		t.Fatal(err)
	}
	s.expectDeleted(consumer, binding)
	if got := s.countStored(consumer, widgets); got != 0 {
		t.Errorf("%d objects remain", got)
	}
}
