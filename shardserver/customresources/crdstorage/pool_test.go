package crdstorage_test

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/customresources/crdstorage"
	clusterstorage "github.com/atoll-dev/atoll/shardserver/storage"
)

func TestPoolReferenceCounting(t *testing.T) {
	resource := schema.GroupResource{Group: "pool.example.io", Resource: "widgets"}
	pool := crdstorage.NewPool(newOptions())
	cycle := func() {
		first, releaseFirst, err := pool.Acquire(resource, "customresources")
		if err != nil {
			t.Fatal(err)
		}
		second, releaseSecond, err := pool.Acquire(resource, "customresources")
		if err != nil {
			t.Fatal(err)
		}
		other, releaseOther, err := pool.Acquire(resource, "identity")
		if err != nil {
			t.Fatal(err)
		}
		if first != second || first == other || pool.Len() != 2 {
			t.Errorf("storages are %p, %p and %p of %d", first, second, other, pool.Len())
		}
		if first.Prefix() != "/pool.example.io/widgets/customresources" {
			t.Errorf("the prefix is %s", first.Prefix())
		}
		ctx := logicalcluster.With(t.Context(), logicalcluster.Root)
		if _, err := first.Store().List(ctx, &internalversion.ListOptions{}); err != nil {
			t.Error(err)
		}
		releaseFirst()
		releaseFirst() // no effect: the second reference remains
		if pool.Len() != 2 {
			t.Error("a referenced storage is closed")
		}
		stream, err := second.Store().Watch(ctx, &internalversion.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		releaseSecond()
		releaseOther()
		for range stream.ResultChan() { // ends
			continue
		}
		if pool.Len() != 0 {
			t.Error("an unreferenced storage is open")
		}
	}
	cycle() // starts goroutines that upstream libraries start once per process
	before := goleak.IgnoreCurrent()
	cycle()
	// Some goroutines of the stock libraries only end with a timeout of seconds.
	var leak error
	for range 30 {
		if leak = goleak.Find(before); leak == nil {
			break
		}
	}
	if leak != nil {
		t.Error(leak)
	}
}

func TestPoolRetriesFailedOpen(t *testing.T) {
	broken := newOptions()
	broken.Storage.Type = "no such storage"
	pool := crdstorage.NewPool(broken)
	for range 2 {
		if _, _, err := pool.Acquire(widgetsResource("broken.example.io"), "customresources"); err == nil || pool.Len() != 0 {
			t.Errorf("acquiring returned %v, %d storages are open", err, pool.Len())
		}
	}
}

func TestStoreWildcardReads(t *testing.T) {
	for name, cached := range map[string]bool{"with a watch cache": true, "without one": false} {
		t.Run(name, func(t *testing.T) {
			const group = "store.example.io"
			cleanupStorage(t, widgetsResource(group))
			o := newOptions()
			o.WatchCache = cached
			storage, release, err := crdstorage.NewPool(o).Acquire(widgetsResource(group), "customresources")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(release)
			s := newServer(t)
			s.handle("ours", newContentHandler(t, storage, newDefinition(group)))
			for _, cluster := range []string{"one", "two"} {
				for _, namespace := range []string{"east", "west"} {
					s.mustDo(t, http.MethodPost, "/ours/clusters/"+cluster+"/apis/"+group+"/v1/namespaces/"+namespace+"/widgets", newWidgetJSON(group, "v1", "a", map[string]string{"in": cluster}, `{}`))
				}
			}
			testReads(t, storage.Store())
			resource := &clusterstorage.Resource{GVR: widgetsResource(group).WithVersion("v1"), Store: storage.Store()}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if !cached {
				return // initial events need a watch cache
			}
			stream, err := clusterstorage.WatchAll(ctx, resource)
			if err != nil {
				t.Fatal(err)
			}
			defer stream.Stop()
			var added []string
			for event := range stream.ResultChan() {
				if event.Type == watch.Bookmark {
					break
				}
				obj, ok := event.Object.(*crdstorage.Object)
				if !ok {
					t.Fatalf("got %v", event)
				}
				added = append(added, logicalcluster.Of(obj).String()+"/"+obj.GetNamespace())
			}
			if slices.Sort(added); !reflect.DeepEqual(added, []string{"one/east", "one/west", "two/east", "two/west"}) {
				t.Errorf("the watch of all clusters delivers %v", added)
			}
		})
	}
}

// testReads reads four objects with the name a: in the clusters one and two, in the namespaces east and west.
func testReads(t *testing.T, store clusterstorage.Store) {
	t.Helper()
	if _, err := store.List(logicalcluster.With(t.Context(), logicalcluster.Wildcard), nil); err != nil { // waits for the cache
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		cluster   logicalcluster.Name
		namespace string
		options   internalversion.ListOptions
		want      int
	}{
		"all":                               {cluster: logicalcluster.Wildcard, want: 4},
		"all, from the cache":               {cluster: logicalcluster.Wildcard, options: internalversion.ListOptions{ResourceVersion: "0"}, want: 4},
		"all in a namespace":                {cluster: logicalcluster.Wildcard, namespace: "east", want: 2},
		"all by name":                       {cluster: logicalcluster.Wildcard, options: internalversion.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", "a")}, want: 4},
		"all by namespace":                  {cluster: logicalcluster.Wildcard, options: internalversion.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.namespace", "west")}, want: 2},
		"all by label":                      {cluster: logicalcluster.Wildcard, options: internalversion.ListOptions{LabelSelector: labels.SelectorFromSet(labels.Set{"in": "two"})}, want: 2},
		"a cluster":                         {cluster: logicalcluster.MustParseName("one"), want: 2},
		"a cluster by name":                 {cluster: logicalcluster.MustParseName("one"), options: internalversion.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", "a")}, want: 2},
		"a cluster by label":                {cluster: logicalcluster.MustParseName("one"), options: internalversion.ListOptions{LabelSelector: labels.SelectorFromSet(labels.Set{"in": "two"})}},
		"a namespace of a cluster":          {cluster: logicalcluster.MustParseName("one"), namespace: "east", want: 1},
		"a namespace of a cluster, by name": {cluster: logicalcluster.MustParseName("one"), namespace: "east", options: internalversion.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", "a")}, want: 1},
		"a cluster whose name is a prefix of another": {cluster: logicalcluster.MustParseName("on")},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := request.WithNamespace(logicalcluster.With(t.Context(), tc.cluster), tc.namespace)
			obj, err := store.List(ctx, &tc.options)
			if err != nil {
				t.Fatal(err)
			}
			list, _ := obj.(*crdstorage.List)
			for i := range list.Items {
				if cluster := logicalcluster.Of(&list.Items[i]); !tc.cluster.IsWildcard() && cluster != tc.cluster {
					t.Errorf("an object of %s", cluster)
				}
			}
			if len(list.Items) != tc.want || list.ResourceVersion == "" {
				t.Errorf("got %d objects at %q, want %d", len(list.Items), list.ResourceVersion, tc.want)
			}
		})
	}
	ctx := request.WithNamespace(logicalcluster.With(t.Context(), logicalcluster.MustParseName("two")), "east")
	obj, err := store.Get(ctx, "a", &metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := obj.(*crdstorage.Object); got.GetLabels()["in"] != "two" || got.GetUID() == "" {
		t.Errorf("got %s", got.JSON())
	}
}

func TestMetadataWithoutDefinition(t *testing.T) {
	const group = "metadata.example.io"
	s, path := newFilledServer(t, group)
	storage := newStorage(t, widgetsResource(group))
	metadata := crdstorage.NewMetadataHandler(time.Hour)
	s.handle("metadata", http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !metadata.Serve(w, req, widgetsResource(group), storage.Store()) {
			http.NotFound(w, req)
		}
	}))
	for _, query := range []string{"", "?labelSelector=even%3Dtrue", "?limit=100", "?fieldSelector=metadata.name%21%3Dw1"} {
		for _, cluster := range []string{"*", "one"} {
			for _, accept := range []string{metadataListJSON, metadataListPB} {
				actual := s.do(t, http.MethodGet, "/metadata/clusters/"+cluster+path+"/widgets"+query, accept, "")
				upstream := s.do(t, http.MethodGet, "/stock/clusters/"+cluster+path+"/widgets"+query, accept, "")
				if actual.code != http.StatusOK || !reflect.DeepEqual(normalizeJSON(actual.body), normalizeJSON(upstream.body)) {
					t.Errorf("%s in %s: got %d %s, want %s", query, cluster, actual.code, actual.body, upstream.body)
				}
			}
		}
	}
	for request, accept := range map[string]string{
		"/widgets": "application/json", "/namespaces/east/widgets/w0": metadataJSON, "/widgets?pretty=1": tableJSON,
	} {
		if res := s.do(t, http.MethodGet, "/metadata/clusters/*"+path+request, accept, ""); res.code != http.StatusNotFound {
			t.Errorf("%s as %s: %d %s", request, accept, res.code, res.body)
		}
	}
	res := s.do(t, http.MethodGet, "/metadata/clusters/*"+path+"/widgets?fieldSelector=spec.color%3Dblue", metadataListJSON, "")
	if res.code != http.StatusBadRequest {
		t.Errorf("selecting by a field of some schema: %d %s", res.code, res.body)
	}
	stream := s.watch(t, "/metadata/clusters/*"+path+"/widgets?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan", metadataJSON)
	if events := stream.nextEvents(t, 0); len(events) != 13 {
		t.Errorf("the watch starts with %d events: %v", len(events), events)
	}
	for i, cluster := range []string{"one", "two"} {
		s.mustDo(t, http.MethodPatch, "/ours/clusters/"+cluster+path+"/namespaces/east/widgets/w0", fmt.Sprintf(`{"spec":{"count":%d}}`, 100+i))
	}
	for i, event := range stream.nextEvents(t, 2) {
		object, _ := event["object"].(map[string]any)
		if cluster := object["metadata"].(map[string]any)["annotations"].(map[string]any)["kcp.io/cluster"]; cluster != []string{"one", "two"}[i] || object["spec"] != nil {
			t.Errorf("event %d is %v", i, event)
		}
	}
}
