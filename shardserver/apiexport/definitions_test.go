package apiexport_test

import (
	"context"
	"errors"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiexport/definitions"
	"github.com/atoll-dev/atoll/shardserver/controller"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

var widgets = schema.GroupResource{Group: "example.io", Resource: "widgets"}

// definitionsEnv is a shard with a second instance of the controllers of definitions, whose clock the test sets.
type definitionsEnv struct {
	*shardtesting.Shard
	masters client.Client
	clock   *clocktesting.FakePassiveClock
	manager *definitions.Manager
	t       *testing.T
}

func newDefinitionsEnv(t *testing.T) *definitionsEnv {
	shard := shardtesting.Start(t)
	s := &definitionsEnv{Shard: shard, masters: shard.Client(t, shard.Masters(t)), clock: clocktesting.NewFakePassiveClock(time.Now()), t: t}
	s.manager = definitions.New(definitions.Config{
		Registry: shard.Server.Registry, Client: s.masters, Exports: shard.Server.Exports(), Bindings: shard.Server.Bindings(), Clock: s.clock,
	})
	return s
}

// cleanup reconciles a definition once.
func (e *definitionsEnv) cleanup(uid types.UID) controller.Result {
	e.t.Helper()
	for _, c := range e.manager.Controllers() {
		if c.Name != "apiexport-definition-cleanup" {
			continue
		}
		key := controller.Request{ClusterName: logicalcluster.BoundCRDs, Name: string(uid)}
		result, err := c.Reconcile(logicalcluster.With(context.Background(), key.ClusterName), key)
		if err != nil {
			e.t.Fatal(err)
		}
		return result
	}
	e.t.Fatal("the controller does not exist")
	return controller.Result{}
}

func (e *definitionsEnv) getDefinition(uid types.UID) error {
	return e.masters.Get(shardtesting.In(context.Background(), "system:bound-crds"), client.ObjectKey{Name: string(uid)}, &apiextensionsv1.CustomResourceDefinition{})
}

// waitForSchema waits for a schema's definition, and returns the schema.
func (e *definitionsEnv) waitForSchema(cluster, name string) *apisv1alpha1.APIResourceSchema {
	e.t.Helper()
	found := &apisv1alpha1.APIResourceSchema{}
	if err := e.masters.Get(shardtesting.In(context.Background(), cluster), client.ObjectKey{Name: name}, found); err != nil {
		e.t.Fatal(err)
	}
	shardtesting.Eventually(e.t, "the definition of "+name, func(context.Context) error { return e.getDefinition(found.UID) })
	return found
}

func TestUnusedDefinitionCleanup(t *testing.T) {
	s := newDefinitionsEnv(t)
	provider, consumer := s.NewWorkspace(t, "root", "provider").Spec.Cluster, s.NewWorkspace(t, "root", "consumer").Spec.Cluster
	s.NewExport(t, provider, "widgets", widgets, "Widget")
	binding := s.Bind(t, consumer, provider, "widgets")
	schema := s.waitForSchema(provider, "v1.widgets.example.io")
	shardtesting.Eventually(t, "the index has the binding", func(context.Context) error {
		if len(s.Server.Bindings().ListBySchema(schema.UID)) == 0 {
			return errors.New("it has none")
		}
		return nil
	})

	s.clock.SetTime(time.Now().Add(time.Second))
	if result := s.cleanup(schema.UID); result.RequeueAfter <= 0 || result.RequeueAfter > definitions.UnusedGracePeriod {
		t.Errorf("a new definition is requeued after %v", result.RequeueAfter)
	}
	s.clock.SetTime(time.Now().Add(definitions.UnusedGracePeriod + time.Minute))
	if result := s.cleanup(schema.UID); result.RequeueAfter <= 0 || s.getDefinition(schema.UID) != nil {
		t.Error("a bound definition is deleted")
	}
	if err := s.masters.Delete(shardtesting.In(context.Background(), consumer), binding); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "it is not bound", func(context.Context) error {
		if len(s.Server.Bindings().ListBySchema(schema.UID)) > 0 {
			return errors.New("it is bound")
		}
		return nil
	})
	if _, err := s.manager.Ensure(context.Background(), schema); err != nil {
		t.Fatal(err)
	}
	if result := s.cleanup(schema.UID); result.RequeueAfter <= 0 || s.getDefinition(schema.UID) != nil {
		t.Error("a definition is deleted after a recent use")
	}
	s.clock.SetTime(s.clock.Now().Add(definitions.UnusedGracePeriod + time.Minute))
	s.cleanup(schema.UID)
	shardtesting.Eventually(t, "the definition is deleted", func(context.Context) error {
		if err := s.getDefinition(schema.UID); !apierrors.IsNotFound(err) {
			return errors.New("it exists")
		}
		return nil
	})
	s.Bind(t, consumer, provider, "widgets") // the definition is created again for the next binding
}

func TestClaimedDefinitions(t *testing.T) {
	s := newDefinitionsEnv(t)
	provider, claimant := s.NewWorkspace(t, "root", "provider").Spec.Cluster, s.NewWorkspace(t, "root", "claimant").Spec.Cluster
	export := s.NewExport(t, provider, "widgets", widgets, "Widget")
	claimingExport := s.NewExport(t, claimant, "gadgets", schema.GroupResource{Group: "example.io", Resource: "gadgets"}, "Gadget", func(e *apisv1alpha2.APIExport) {
		e.Spec.PermissionClaims = []apisv1alpha2.PermissionClaim{{
			GroupResource: apisv1alpha2.GroupResource{Group: widgets.Group, Resource: widgets.Resource}, IdentityHash: export.Status.IdentityHash, Verbs: []string{"*"},
		}}
	})
	schema := s.waitForSchema(provider, "v1.widgets.example.io") // although no binding exists
	s.sendExportEvent(claimingExport)
	s.clock.SetTime(time.Now().Add(definitions.UnusedGracePeriod + time.Minute))
	if result := s.cleanup(schema.UID); result.RequeueAfter <= 0 || s.getDefinition(schema.UID) != nil {
		t.Error("a claimed definition is deleted")
	}
}

// sendExportEvent passes an event of an export to the controllers of the test, as a watch would.
func (e *definitionsEnv) sendExportEvent(export *apisv1alpha2.APIExport) {
	for _, c := range e.manager.Controllers() {
		for _, input := range c.Sources {
			if input.Resource == apisv1alpha2.Resource("apiexports") {
				input.MapFunc(watch.Event{Type: watch.Added, Object: export})
			}
		}
	}
}
