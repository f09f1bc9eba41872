package shardserver_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/logicalcluster"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// testAbsence asks a view for an object of a logical cluster that moves, as programs do that delete what belongs to objects which do not exist
// any more. There is no evidence of that while no shard serves the logical cluster, though no list has the object.
func testAbsence(t *testing.T, shard *shardtesting.Shard) {
	const name = "ponies"
	masters := shard.Client(t, shard.Masters(t))
	provider, consumer := shard.NewWorkspace(t, "root", "absence-provider").Spec.Cluster, shard.NewWorkspace(t, "root", "absence-consumer").Spec.Cluster
	pony := schema.GroupVersionKind{Group: "absence.example.io", Version: "v1", Kind: "Pony"}
	shardtesting.NewExport(t, masters, provider, name, schema.GroupResource{Group: pony.Group, Resource: name}, pony.Kind)
	shardtesting.Bind(t, masters, consumer, provider, name)
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(pony)
	object.SetNamespace(metav1.NamespaceDefault)
	object.SetName("one")
	var asked atomic.Int64 // for the consumer
	config := shard.Masters(t)
	counting := rest.CopyConfig(config)
	counting.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			if strings.Contains(request.URL.Path, "/clusters/"+consumer+"/") {
				asked.Add(1)
			}
			return next.RoundTrip(request)
		})
	})
	endpoint, err := workspaces.NewEndpoint(counting, config.Host+"/services/apiexport/"+provider+"/"+name)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := endpoint.Dynamic()
	if err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the creation of an object", func(ctx context.Context) error {
		ctx = logicalcluster.With(ctx, logicalcluster.MustParseName(consumer))
		_, err := objects.Resource(pony.GroupVersion().WithResource(name)).Namespace(metav1.NamespaceDefault).Create(ctx, object, metav1.CreateOptions{})
		return err
	})
	resource := workspaces.Resource{GroupVersionKind: pony, Resource: name, Namespaced: true}
	at := func(cluster, name string) workspaces.Object {
		return workspaces.Object{Cluster: logicalcluster.MustParseName(cluster), NamespacedName: types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: name}}
	}
	one := at(consumer, "one")
	expect := func(state string, want int, unknown bool, objects ...workspaces.Object) {
		t.Helper()
		shardtesting.Eventually(t, state, func(ctx context.Context) error {
			missing, err := workspaces.Missing(ctx, []*workspaces.Endpoint{endpoint}, resource, objects)
			if (err != nil) != unknown || len(missing) != want {
				return fmt.Errorf("missing are %v (%w)", missing, err)
			}
			return nil
		})
	}
	expect("all objects are in the view", 0, false, one)
	expect("others are missing", 3, false, one, at(consumer, "two"), at(provider, "one"), at("nowhere", "one"))

	m := newMover(t, shard, consumer)
	arriving, movedTo := annotation(corev1alpha1.ArrivingAnnotationKey), annotation(corev1alpha1.MovedToAnnotationKey)
	registry := shard.Server.Registry
	for _, state := range []string{movedTo, arriving} {
		m.replace(t, annotations, state)
		shardtesting.Eventually(t, "the logical cluster is hidden", func(context.Context) error {
			if !registry.IsHidden(one.Cluster) {
				return fmt.Errorf("it is served")
			}
			return nil
		})
		path := "/services/apiexport/" + provider + "/" + name + "/clusters/" + consumer + "/apis/" + pony.GroupVersion().String() + "/" + name
		if got := do(t, config, http.MethodGet, path, ""); got.status != http.StatusServiceUnavailable {
			t.Errorf("%s: the view answers %d %s", state, got.status, got.body)
		}
		// There is no answer about this workspace, after one question; those about others count.
		asked.Store(0)
		other := at("nowhere", "one")
		missing, err := workspaces.Missing(t.Context(), []*workspaces.Endpoint{endpoint}, resource, []workspaces.Object{one, other})
		if err == nil || !slices.Equal(missing, []workspaces.Object{other}) {
			t.Errorf("%s: missing are %v (%v), want no answer about %v", state, missing, err, one)
		}
		if count := asked.Load(); count != 1 {
			t.Errorf("%s: %d requests for the workspace that is not available", state, count)
		}
		expect("other workspaces are known", 1, false, at("nowhere", "one"))
		m.replace(t, state, annotations)
		expect("the object is back", 0, false, one)
	}
}
