package apiexport_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// storeInOtherScope stores a copy of default/one, which waits for a finalizer, without a namespace. It is what remains if an
// export changes the scope of its kind, as older versions of the server let it.
func (e *env) storeInOtherScope(cluster string, gr schema.GroupResource) {
	e.t.Helper()
	e.createObject(cluster, gr, "Widget", "one", "example.io/wait")
	keys := e.Keys(e.t, "/"+gr.Group+"/"+gr.Resource+"/")
	if len(keys) != 1 || !strings.HasSuffix(keys[0], "/"+cluster+"/default/one") {
		e.t.Fatalf("keys are %v", keys)
	}
	e.CopyKey(e.t, keys[0], strings.TrimSuffix(keys[0], "/default/one")+"/one", `,"namespace":"default"`)
}

func testOtherScopeDeletion(t *testing.T, s *env) {
	provider, consumer := s.newProviderAndConsumer()
	widgets := s.newResource("widgets")
	s.NewExport(t, provider, "widgets", widgets, "Widget")
	binding := s.Bind(t, consumer, provider, "widgets")
	s.storeInOtherScope(consumer, widgets)
	s.removeFinalizers(consumer, widgets, "one")
	if err := s.Delete(clusterContext(consumer), binding); err != nil {
		t.Fatal(err)
	}
	s.expectDeleted(consumer, binding)
	if got := s.countStored(consumer, widgets); got != 0 {
		t.Errorf("%d objects remain", got)
	}
}

// testOtherScopeWorkspaceDeletion moves the only object of a workspace into the scope that its kind has not.
func testOtherScopeWorkspaceDeletion(t *testing.T, s *env) {
	provider, consumer := s.newProviderAndConsumer()
	widgets := s.newResource("widgets")
	s.NewExport(t, provider, "widgets", widgets, "Widget")
	s.Bind(t, consumer, provider, "widgets")
	s.storeInOtherScope(consumer, widgets)
	for _, key := range s.Keys(t, "/"+widgets.Group+"/"+widgets.Resource+"/") {
		if strings.HasSuffix(key, "/default/one") {
			s.DeleteKey(t, key)
		}
	}
	workspace := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: s.uniqueName() + "-c"}}
	if err := s.Delete(clusterContext("root"), workspace); err != nil {
		t.Fatal(err)
	}
	s.expectDeleted("root", workspace)
	if keys := s.Keys(t, "/"+consumer+"/"); len(keys) > 0 {
		t.Errorf("remaining keys are %v", keys)
	}
}

// testChangedScope stores an export with another scope, past admission, as another shard's older version may publish it.
func testChangedScope(t *testing.T, s *env) {
	provider, consumer := s.newProviderAndConsumer()
	widgets := s.newResource("widgets")
	export := s.NewExport(t, provider, "widgets", widgets, "Widget")
	bound := s.Bind(t, consumer, provider, "widgets").Status.BoundResources[0]
	s.createObject(consumer, widgets, "Widget", "one")
	next := shardtesting.NewSchema("v2", widgets, "Widget")
	next.Spec.Scope = apiextensionsv1.ClusterScoped
	if err := s.Create(clusterContext(provider), next); err != nil {
		t.Fatal(err)
	}
	keys := s.Keys(t, "/apiexports/customresources/"+provider+"/widgets")
	if len(keys) != 1 {
		t.Fatalf("keys are %v", keys)
	}
	s.ReplaceInKey(t, keys[0], `"v1.`+widgets.String()+`"`, `"v2.`+widgets.String()+`"`)
	binding := s.waitForBinding(consumer, "widgets", allOf(hasCondition(apisv1alpha2.BindingUpToDate, apisv1alpha2.APIResourceSchemaInvalidReason),
		messageContains(apisv1alpha2.BindingUpToDate, widgets.String()+" cannot be served with scope Cluster"), isBound))
	if got := binding.Status.BoundResources[0]; got.Schema.UID != bound.Schema.UID {
		t.Errorf("bound is %+v, want %+v", got, bound)
	}
	if _, err := s.objectClient(consumer, widgets).Get(context.Background(), "one", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	// The export can be repaired, and offer another schema of the same scope.
	other := shardtesting.NewSchema("v3", widgets, "Widget")
	if err := s.Create(clusterContext(provider), other); err != nil {
		t.Fatal(err)
	}
	if err := s.Get(clusterContext(provider), client.ObjectKeyFromObject(export), export); err != nil {
		t.Fatal(err)
	}
	export.Spec.Resources[0].Schema = other.Name
	if err := s.Update(clusterContext(provider), export); err != nil {
		t.Fatal(err)
	}
	s.waitForBinding(consumer, "widgets", allOf(hasCondition(apisv1alpha2.BindingUpToDate, ""), func(binding *apisv1alpha2.APIBinding) error {
		if binding.Status.BoundResources[0].Schema.Name != other.Name {
			return errors.New("the new schema is not bound")
		}
		return nil
	}))
}
