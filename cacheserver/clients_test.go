package cacheserver_test

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/atoll-dev/atoll/cacheserver/client"
)

// clientIn returns a client that is no shard, of a scope such as "/shards/*/clusters/*".
func clientIn(t *testing.T, scope string, gvr schema.GroupVersionResource) dynamic.ResourceInterface {
	t.Helper()
	return clientOf(t, cache.Masters(t), scope, gvr)
}

// clientOf returns a stock client of a user.
func clientOf(t *testing.T, user *rest.Config, scope string, gvr schema.GroupVersionResource) dynamic.ResourceInterface {
	t.Helper()
	config := rest.CopyConfig(user)
	config.Host += client.Prefix + scope
	c, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c.Resource(gvr)
}

func namesOf(list *unstructured.UnstructuredList) []string {
	var names []string
	for _, item := range list.Items {
		names = append(names, item.GetName())
	}
	slices.Sort(names)
	return names
}

// watchNames returns the names of the first count objects of a watch.
func watchNames(t *testing.T, c dynamic.ResourceInterface, count int) []string {
	t.Helper()
	var names []string
	for _, object := range watchObjects(t, c, count) {
		names = append(names, object.GetName())
	}
	slices.Sort(names)
	return names
}

// watchObjects returns the first count objects of a watch.
func watchObjects(t *testing.T, c dynamic.ResourceInterface, count int) []*unstructured.Unstructured {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	watcher, err := c.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	var objects []*unstructured.Unstructured
	for range count {
		event := <-watcher.ResultChan() // closed after the timeout
		object, ok := event.Object.(*unstructured.Unstructured)
		if !ok {
			t.Fatalf("the event is %v", event)
		}
		objects = append(objects, object)
	}
	return objects
}

func TestExportsInBothVersions(t *testing.T) {
	const scope = "/shards/versions/clusters/abc"
	exportsV1 := schema.GroupVersionResource{Group: "apis.kcp.io", Version: "v1alpha1", Resource: "apiexports"}
	older, newer := clientIn(t, scope, exportsV1), clientIn(t, scope, exports)
	newExport := func(name, version string) *unstructured.Unstructured {
		obj := newObject(exports, name)
		obj.SetAPIVersion("apis.kcp.io/" + version)
		_ = unstructured.SetNestedField(obj.Object, name, "spec", "field")
		return obj
	}
	watcher, err := older.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	if _, err := newer.Create(t.Context(), newExport("a", "v1alpha2"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if event := <-watcher.ResultChan(); event.Object.GetObjectKind().GroupVersionKind() != exportsV1.GroupVersion().WithKind("APIExport") {
		t.Errorf("the event is %v", event)
	}
	created, err := older.Create(t.Context(), newExport("b", "v1alpha1"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_ = unstructured.SetNestedField(created.Object, "changed", "spec", "field")
	if _, err := older.Update(t.Context(), created, metav1.UpdateOptions{}); err != nil {
		t.Error(err)
	}
	for version, c := range map[string]dynamic.ResourceInterface{"v1alpha1": older, "v1alpha2": newer} {
		list, err := c.List(t.Context(), metav1.ListOptions{})
		if err != nil || !slices.Equal(namesOf(list), []string{"a", "b"}) || list.GetAPIVersion() != "apis.kcp.io/"+version || list.GetKind() != "APIExportList" {
			t.Fatalf("%s: %v, %v", version, list, err)
		}
		for _, item := range list.Items {
			if item.GetAPIVersion() != "apis.kcp.io/"+version {
				t.Errorf("%s: %v", version, item)
			}
		}
		got, err := c.Get(t.Context(), "b", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if value, _, _ := unstructured.NestedString(got.Object, "spec", "field"); value != "changed" || got.GetAPIVersion() != "apis.kcp.io/"+version {
			t.Errorf("%s: %v", version, got)
		}
		if code, answer := sendRequest(t, cache.Masters(t), http.MethodGet, client.Prefix+scope+"/apis/apis.kcp.io/"+version, "", ""); code != http.StatusOK || !strings.Contains(answer, `"apiexports"`) {
			t.Errorf("discovery of %s: %d %s", version, code, answer)
		}
	}
}

// TestReachAnnotation: shards and caches, also of earlier versions, read the annotation of the reach, and other clients
// only those of the contract.
func TestReachAnnotation(t *testing.T) {
	created := newObject(exports, "global", setGlobalReach)
	if _, err := cache.Client(t, "reach").Create(t.Context(), exports, testCluster, created); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		user *rest.Config
		want string
	}{
		"a shard":    {cache.Shard(t, "reach"), client.ReachGlobal},
		"a cache":    {cache.User(t, "system:kcp:cache:x", "system:kcp:cache"), client.ReachGlobal},
		"all others": {cache.Masters(t), ""},
	} {
		c := clientOf(t, tc.user, "/shards/reach/clusters/"+testCluster.String(), exports)
		got, err := c.Get(t.Context(), "global", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		list, err := c.List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 {
			t.Fatalf("%s: %v, %v", name, list, err)
		}
		watched := watchObjects(t, c, 1)[0]
		for _, object := range []*unstructured.Unstructured{got, &list.Items[0], watched} {
			if annotations := object.GetAnnotations(); annotations[client.ReachAnnotation] != tc.want || annotations[client.ShardAnnotation] != "reach" {
				t.Errorf("%s: annotations %v", name, annotations)
			}
		}
	}
}

// TestCachedResourcesWithoutIdentity: what users cache is read by its name, without the markers of completeness.
func TestCachedResourcesWithoutIdentity(t *testing.T) {
	flavors := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "flavors"}
	clusterCachedResources := schema.GroupVersionResource{Group: "cache.kcp.io", Version: "v1alpha1", Resource: "clustercachedresources"}
	for shard, names := range map[string][]string{"flavors-a": {"sour", "sweet"}, "flavors-b": {"salty"}} {
		c, identity := cache.Client(t, shard), "identity-of-"+shard
		cached := newObject(clusterCachedResources, "flavors", func(u *unstructured.Unstructured) {
			u.Object["spec"] = map[string]any{"group": flavors.Group, "version": flavors.Version, "resource": flavors.Resource}
			u.Object["status"] = map[string]any{"identityHash": identity}
			u.SetAnnotations(map[string]string{"cache.kcp.io/resource-kind": "Flavor"})
		})
		if _, err := c.Create(t.Context(), clusterCachedResources, testCluster, cached); err != nil {
			t.Fatal(err)
		}
		marker := &unstructured.Unstructured{}
		marker.SetKind(client.CompleteKind)
		marker.SetNamespace(client.CompleteNamespace)
		marker.SetName("complete")
		marker.SetAPIVersion("example.com/v1")
		objects := []*unstructured.Unstructured{marker}
		for _, name := range names {
			flavor := &unstructured.Unstructured{}
			flavor.SetAPIVersion("example.com/v1")
			flavor.SetKind("Flavor")
			flavor.SetName(name)
			objects = append(objects, flavor)
		}
		for _, object := range objects {
			if _, err := c.Create(t.Context(), client.CachedResource(flavors, identity), testCluster, object); err != nil {
				t.Fatal(err)
			}
		}
	}
	ofA := client.CachedResource(flavors, "identity-of-flavors-a")
	for name, tc := range map[string]struct {
		scope string
		gvr   schema.GroupVersionResource
		want  []string
	}{
		"all shards":             {"/shards/*/clusters/*", flavors, []string{"salty", "sour", "sweet"}},
		"a cluster":              {"/shards/*/clusters/abc", flavors, []string{"salty", "sour", "sweet"}},
		"a shard":                {"/shards/flavors-a/clusters/*", flavors, []string{"sour", "sweet"}},
		"a cluster of a shard":   {"/shards/flavors-b/clusters/abc", flavors, []string{"salty"}},
		"an identity":            {"/shards/*/clusters/*", ofA, []string{"sour", "sweet"}},
		"an identity of a shard": {"/shards/flavors-a/clusters/abc", ofA, []string{"sour", "sweet"}},
	} {
		c := clientIn(t, tc.scope, tc.gvr)
		list, err := c.List(t.Context(), metav1.ListOptions{})
		if err != nil || !slices.Equal(namesOf(list), tc.want) {
			t.Errorf("%s: %v, %v", name, list, err)
			continue
		}
		page, err := c.List(t.Context(), metav1.ListOptions{Limit: int64(len(tc.want))})
		if err != nil || len(page.Items) != len(tc.want) || page.GetRemainingItemCount() != nil {
			t.Errorf("%s, a page of all: %v, %v", name, page, err)
		}
		if watched := watchNames(t, c, len(tc.want)); !slices.Equal(watched, tc.want) {
			t.Errorf("%s: watched %q", name, watched)
		}
	}
	one := clientIn(t, "/shards/flavors-a/clusters/abc", flavors)
	if got, err := one.Get(t.Context(), "sweet", metav1.GetOptions{}); err != nil || got.GetKind() != "Flavor" {
		t.Errorf("an object by its name: %v, %v", got, err)
	}
	withMarkers, _, err := cache.Client(t, "flavors-b").List(t.Context(), ofA)
	if err != nil || len(withMarkers) != 3 {
		t.Errorf("shards list %v, %v", withMarkers, err)
	}
	for name, config := range map[string]*rest.Config{
		"a shard": cache.Shard(t, "flavors-b"), "a cache": cache.User(t, "system:kcp:cache:x", "system:kcp:cache"),
	} {
		c := clientOf(t, config, "/shards/*/clusters/*", ofA)
		list, err := c.List(t.Context(), metav1.ListOptions{})
		if err != nil || !slices.Equal(namesOf(list), []string{"complete", "sour", "sweet"}) {
			t.Errorf("%s of an earlier version, which sends no header, lists %v, %v", name, list, err)
		}
		if watched := watchNames(t, c, 3); !slices.Equal(watched, []string{"complete", "sour", "sweet"}) {
			t.Errorf("%s of an earlier version watches %q", name, watched)
		}
	}
	body, err := json.Marshal(map[string]any{"apiVersion": "example.com/v1", "kind": "Flavor", "metadata": map[string]any{"name": "bitter"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		method, path string
		code         int
	}{
		"a resource that is not cached":      {http.MethodGet, "/shards/*/clusters/*/apis/example.com/v1/colours", http.StatusNotFound},
		"another version":                    {http.MethodGet, "/shards/*/clusters/*/apis/example.com/v2/flavors", http.StatusNotFound},
		"a cluster that does not cache it":   {http.MethodGet, "/shards/flavors-a/clusters/other/apis/example.com/v1/flavors", http.StatusNotFound},
		"an object of no particular cluster": {http.MethodGet, "/shards/*/clusters/*/apis/example.com/v1/flavors/sweet", http.StatusMethodNotAllowed},
		"a write":                            {http.MethodPost, "/shards/flavors-a/clusters/abc/apis/example.com/v1/flavors", http.StatusNotFound},
	} {
		if code, answer := sendRequest(t, cache.Masters(t), tc.method, client.Prefix+tc.path, "application/json", string(body)); code != tc.code {
			t.Errorf("%s: %d %s, want %d", name, code, answer, tc.code)
		}
	}
}
