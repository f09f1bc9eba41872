package cachedresources_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// qualifiedName returns "<cluster>/<name>".
func qualifiedName(object *unstructured.Unstructured) string {
	return object.GetAnnotations()["kcp.io/cluster"] + "/" + object.GetName()
}

// listQualified lists all pages.
func listQualified(ctx context.Context, flavors dynamic.ResourceInterface, limit int64) (names []string, resourceVersion string, err error) {
	options := metav1.ListOptions{Limit: limit}
	for {
		list, err := flavors.List(ctx, options)
		if err != nil {
			return nil, "", err
		}
		for i := range list.Items {
			names = append(names, qualifiedName(&list.Items[i]))
		}
		if options.Continue = list.GetContinue(); options.Continue == "" {
			slices.Sort(names)
			return names, list.GetResourceVersion(), nil
		}
	}
}

// testExportView reads the cached resource in the virtual workspace of the export, in one logical cluster and in all.
func (e *env) testExportView(t *testing.T) {
	view := "/services/apiexport/" + e.provider + "/flavors/clusters/"
	admin := e.consumers.Admin(t)
	single, all := e.flavorsClient(t, admin, view+e.consumer), e.flavorsClient(t, admin, view+"*")
	own, _, err := listQualified(t.Context(), e.flavorsIn(t, e.consumer), 0)
	if err != nil || !slices.Contains(own, e.consumer+"/sweet") {
		t.Fatalf("the consumer reads %v, %v", own, err)
	}
	for name, flavors := range map[string]dynamic.ResourceInterface{"one logical cluster": single, "all logical clusters": all} {
		got, version, err := listQualified(t.Context(), flavors, 0)
		if err != nil || !slices.Equal(got, own) {
			t.Errorf("the provider lists %v in %s, %v", got, name, err)
		}
		events, err := flavors.Watch(t.Context(), metav1.ListOptions{TimeoutSeconds: ptr.To[int64](60)})
		if err != nil {
			t.Fatal(err)
		}
		if event := <-events.ResultChan(); event.Type != watch.Added {
			t.Errorf("the first event in %s is %+v", name, event)
		}
		events.Stop()
		if events, err = flavors.Watch(t.Context(), metav1.ListOptions{ResourceVersion: version}); err != nil {
			t.Errorf("resuming a watch in %s: %v", name, err)
		} else {
			events.Stop()
		}
	}
	if _, err := single.Get(t.Context(), "sweet", metav1.GetOptions{}); err != nil {
		t.Errorf("a published object: %v", err)
	}
	if _, err := single.Get(t.Context(), "secret", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("an object that is not published: %v", err)
	}
	if err := single.Delete(t.Context(), "sweet", metav1.DeleteOptions{}); !apierrors.IsMethodNotSupported(err) {
		t.Errorf("a deletion: %v", err)
	}
	for _, cluster := range []string{e.consumer, "*"} {
		if response, body := shardtesting.Send(t, admin, http.MethodGet, view+cluster+"/apis/example.com/v1", ""); response.StatusCode != http.StatusOK || !strings.Contains(body, `"verbs":["get","list","watch"]`) {
			t.Errorf("discovery in %q: %d %s", cluster, response.StatusCode, body)
		}
	}
	e.testExportViewFollowsConsumers(t, all, own)
}

// testExportViewFollowsConsumers binds the export in another logical cluster, and unbinds it.
func (e *env) testExportViewFollowsConsumers(t *testing.T, all dynamic.ResourceInterface, own []string) {
	_, before, err := listQualified(t.Context(), all, 0)
	if err != nil {
		t.Fatal(err)
	}
	events := startWatch(t, all, before)
	second := e.createWorkspace(t, "second", e.consumers)
	e.consumers.Bind(t, second, e.provider, "flavors")
	expectExpired(t, events)
	both := slices.Clone(own)
	for _, name := range own {
		both = append(both, strings.Replace(name, e.consumer, second, 1))
	}
	slices.Sort(both)
	for _, limit := range []int64{0, 1} {
		if got, _, err := listQualified(t.Context(), all, limit); err != nil || !slices.Equal(got, both) {
			t.Errorf("with the limit %d the provider lists %v, want %v, %v", limit, got, both, err)
		}
	}
	shardtesting.Eventually(t, "a watch from before the binding to be refused", func(ctx context.Context) error {
		events, err := all.Watch(ctx, metav1.ListOptions{ResourceVersion: before})
		if err == nil {
			events.Stop()
		}
		if !apierrors.IsResourceExpired(err) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})

	_, version, err := listQualified(t.Context(), all, 0)
	if err != nil {
		t.Fatal(err)
	}
	events = startWatch(t, all, version)
	provider := e.flavorsIn(t, e.provider)
	if _, err := provider.Create(t.Context(), newFlavor("umami", "yes"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expectForBoth(t, events, watch.Added, e.consumer+"/umami", second+"/umami")
	if err := provider.Delete(t.Context(), "umami", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expectForBoth(t, events, watch.Deleted, e.consumer+"/umami", second+"/umami")

	if err := e.consumers.Client(t, e.consumers.Admin(t)).Delete(shardtesting.In(t.Context(), second), &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: "flavors"}}); err != nil {
		t.Fatal(err)
	}
	expectExpired(t, events)
	if got, _, err := listQualified(t.Context(), all, 0); err != nil || !slices.Equal(got, own) {
		t.Errorf("after the deletion of the binding the provider lists %v, %v", got, err)
	}
}

// testExportViewWithoutConsumers reads on the shard of the provider, where the export is then bound.
func (s *shardedEnv) testExportViewWithoutConsumers(t *testing.T) {
	all := s.flavorsClient(t, s.shard.Admin(t), "/services/apiexport/"+s.provider+"/flavors/clusters/*")
	got, before, err := listQualified(t.Context(), all, 0)
	if err != nil || len(got) > 0 {
		t.Fatalf("without consumers the provider lists %v, %v", got, err)
	}
	events := startWatch(t, all, before)
	third := s.createWorkspace(t, "third", s.shard)
	s.shard.Bind(t, third, s.provider, "flavors")
	for event := range events.ResultChan() {
		t.Errorf("the watch without consumers returns %+v", event)
	}
	if events, err := all.Watch(t.Context(), metav1.ListOptions{ResourceVersion: before}); !apierrors.IsResourceExpired(err) {
		if err == nil {
			events.Stop()
		}
		t.Errorf("resuming the watch: %v", err)
	}
	if got, _, err := listQualified(t.Context(), all, 0); err != nil || !slices.Contains(got, third+"/sweet") {
		t.Errorf("the provider lists %v, %v", got, err)
	}
	if err := s.c.Delete(shardtesting.In(t.Context(), third), &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: "flavors"}}); err != nil {
		t.Fatal(err)
	}
}

func startWatch(t *testing.T, flavors dynamic.ResourceInterface, resourceVersion string) watch.Interface {
	t.Helper()
	events, err := flavors.Watch(t.Context(), metav1.ListOptions{ResourceVersion: resourceVersion, TimeoutSeconds: ptr.To[int64](60)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(events.Stop)
	return events
}

// expectExpired waits for the end of a watch with the error after which clients list again.
func expectExpired(t *testing.T, events watch.Interface) {
	t.Helper()
	for event := range events.ResultChan() {
		if event.Type != watch.Error {
			continue
		}
		if err := apierrors.FromObject(event.Object); !apierrors.IsResourceExpired(err) {
			t.Errorf("the watch ends with %v", err)
		}
		return
	}
	t.Error("the watch ends without an error")
}

// expectForBoth waits for an event in two logical clusters.
func expectForBoth(t *testing.T, events watch.Interface, kind watch.EventType, names ...string) {
	t.Helper()
	var got []string
	for range names {
		event := <-events.ResultChan()
		object, ok := event.Object.(*unstructured.Unstructured)
		if !ok || event.Type != kind {
			t.Fatalf("got %+v, want %s", event, kind)
		}
		got = append(got, qualifiedName(object))
	}
	slices.Sort(got)
	slices.Sort(names)
	if !slices.Equal(got, names) {
		t.Errorf("%s: got %v, want %v", kind, got, names)
	}
}
