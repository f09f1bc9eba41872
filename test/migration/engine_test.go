package migration

import (
	"context"
	"fmt"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/logicalcluster"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
)

// engine does during a move what the sync agent and the infrastructure provider do: it watches an exported resource at two shards, and asks
// again and again for evidence that an object of the workspace that moves, or the workspace, does not exist.
type engine struct {
	key       workspaces.Key
	informers []*workspaces.Informer

	stop                  func()
	asked, unknown, found int
	violations            []string
}

func (e *env) startEngine(t *testing.T, export exported, cluster, name string) *engine {
	t.Helper()
	n := &engine{key: workspaces.Key{Cluster: cluster, Namespace: metav1.NamespaceDefault, Name: name}}
	resource := workspaces.Resource{GroupVersionKind: export.GroupVersion().WithKind(export.kind), Resource: export.Resource, Namespaced: true}
	ctx, cancel := context.WithCancel(t.Context())
	var endpoints []*workspaces.Endpoint
	var bindings []dynamic.ResourceInterface
	var running sync.WaitGroup
	n.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(n.stop)
	for _, shard := range []string{installation.Beta, installation.Alpha} { // the destination first: what it does not have yet, the origin may have no more
		endpoint, err := workspaces.NewEndpoint(e.Admin(t, "root"), e.viewURL(export, shard))
		if err != nil {
			t.Fatal(err)
		}
		objects, err := endpoint.Dynamic()
		if err != nil {
			t.Fatal(err)
		}
		endpoints = append(endpoints, endpoint)
		bindings = append(bindings, objects.Resource(apisv1alpha2.SchemeGroupVersion.WithResource("apibindings")))
		informer := workspaces.NewInformer(objects.Resource(export.GroupVersionResource), "", func(*unstructured.Unstructured) workspaces.IndexKey { return workspaces.IndexKey{} }, workspaces.Handler{
			OnChange: func(workspaces.Change) {}, OnConnect: func() {}, OnDisconnect: func() {},
		})
		n.informers = append(n.informers, informer)
		running.Go(func() { informer.Run(ctx) })
	}
	shardtesting.Eventually(t, "the object in the store of the origin", func(context.Context) error { return n.expect(1) })
	object := workspaces.Object{Cluster: logicalcluster.MustParseName(cluster), NamespacedName: types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: name}}
	running.Go(func() {
		for pause(ctx) {
			n.ask(ctx, endpoints, resource, object, bindings)
		}
	})
	return n
}

// ask asks once, and remembers an answer that would be a reason to delete what belongs to the object.
func (e *engine) ask(ctx context.Context, endpoints []*workspaces.Endpoint, resource workspaces.Resource, object workspaces.Object, bindings []dynamic.ResourceInterface) {
	missing, err := workspaces.Missing(ctx, endpoints, resource, []workspaces.Object{object})
	switch {
	case err != nil:
		e.unknown++
	case len(missing) > 0 && ctx.Err() == nil:
		e.violations = append(e.violations, fmt.Sprintf("the object is missing, in the answer %d", e.asked))
	default:
		e.found++
	}
	if isGone, _ := workspaces.IsGone(ctx, object.Cluster, bindings, false); isGone && ctx.Err() == nil {
		e.violations = append(e.violations, fmt.Sprintf("the workspace is gone, in the answer %d", e.asked))
	}
	e.asked++
}

// expect returns an error unless the store of one informer, by its number, has the object, and no other one.
func (e *engine) expect(at int) error {
	for i, informer := range e.informers {
		if informer.Has(e.key) != (i == at) {
			synced, err := informer.Status()
			return fmt.Errorf("informer %d has the object: %t (synced %t, %w)", i, i != at, synced, err)
		}
	}
	return nil
}

// check waits until the store of the destination has the object, and fails if there was evidence against it at any time.
func (e *engine) check(t *testing.T) {
	t.Helper()
	shardtesting.Eventually(t, "the object in the store of the destination", func(context.Context) error { return e.expect(0) })
	e.stop()
	if len(e.violations) > 0 {
		t.Errorf("of %d questions, these have wrong answers: %q", e.asked, e.violations)
	}
	if e.found == 0 {
		t.Errorf("no question was answered, of %d", e.asked)
	}
	t.Logf("%d questions for the moving object: %d found it, and %d got no answer", e.asked, e.found, e.unknown)
}
