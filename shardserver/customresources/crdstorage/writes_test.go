package crdstorage_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// randomValues matches content that differs between two servers after the same requests: UIDs, and versions in
// messages.
var randomValues = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}|record \(\d+\)`)

// normalizeResponse returns a response without random and volatile values.
func normalizeResponse(body string) any {
	value := normalizeJSON(randomValues.ReplaceAllString(body, "CHANCE"))
	removeVolatileFields(value)
	return value
}

// removeVolatileFields removes times and versions, and sorts managed fields, which are ordered by time in seconds.
func removeVolatileFields(value any) {
	switch value := value.(type) {
	case map[string]any:
		for key := range value {
			switch key {
			case "creationTimestamp", "time", "resourceVersion", "uid", "deletionTimestamp":
				delete(value, key)
			case "managedFields":
				removeVolatileFields(value[key])
				if entries, ok := value[key].([]any); ok {
					slices.SortFunc(entries, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
				}
			default:
				removeVolatileFields(value[key])
			}
		}
	case []any:
		for _, item := range value {
			removeVolatileFields(item)
		}
	}
}

func TestWritesMatchUpstream(t *testing.T) {
	// Two groups with names of equal length receive the same requests, one over the shared storage and one over the
	// upstream storage.
	groups := map[string]string{"ours": "writes-ours.example.io", "stock": "writes-them.example.io"}
	s := newServer(t)
	cleanupStorage(t, widgetsResource(groups["stock"]))
	s.handle("ours", newContentHandler(t, newStorage(t, widgetsResource(groups["ours"])), newDefinition(groups["ours"])))
	s.handle("stock", newStockHandler(t, newDefinition(groups["stock"]), stockRESTOptions{t}))
	steps := []struct{ name, method, path, body string }{
		{"create", http.MethodPost, "", `{"apiVersion":"GROUP/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"color":"blue","unknown":1}}`},
		{"create what exists", http.MethodPost, "", `{"apiVersion":"GROUP/v1","kind":"Widget","metadata":{"name":"a"}}`},
		{"create with a resource version", http.MethodPost, "", `{"apiVersion":"GROUP/v1","kind":"Widget","metadata":{"name":"b","resourceVersion":"5"}}`},
		{"create what is invalid", http.MethodPost, "", `{"apiVersion":"GROUP/v1","kind":"Widget","metadata":{"name":"b"},"spec":{"count":"x"}}`},
		{"create in another cluster's name", http.MethodPost, "", `{"apiVersion":"GROUP/v1","kind":"Widget","metadata":{"name":"b","annotations":{"kcp.io/cluster":"two","own":"kept"}}}`},
		{"create for trial", http.MethodPost, "?dryRun=All", `{"apiVersion":"GROUP/v1","kind":"Widget","metadata":{"name":"trial"}}`},
		{"get after a dry run", http.MethodGet, "/trial", ""},
		{"patch", http.MethodPatch, "/a", `{"spec":{"count":1}}`},
		{"patch nothing", http.MethodPatch, "/a", `{"spec":{"count":1}}`},
		{"patch for trial", http.MethodPatch, "/a?dryRun=All", `{"spec":{"count":9}}`},
		{"patch the status", http.MethodPatch, "/a/status", `{"status":{"phase":"Ready"},"spec":{"count":7}}`},
		{"patch with a version that is past", http.MethodPatch, "/a", `{"metadata":{"resourceVersion":"1"},"spec":{"count":2}}`},
		{"patch with another identity", http.MethodPatch, "/a", `{"metadata":{"uid":"no"}}`},
		{"patch to something invalid", http.MethodPatch, "/a", `{"spec":{"count":"x"}}`},
		{"patch what is not there", http.MethodPatch, "/none", `{"spec":{"count":1}}`},
		{"put what is not there", http.MethodPut, "/none", `{"apiVersion":"GROUP/v1","kind":"Widget","metadata":{"name":"none","resourceVersion":"5"}}`},
		{"move into another cluster", http.MethodPatch, "/a", `{"metadata":{"annotations":{"kcp.io/cluster":"two"}}}`},
		{"delete with another identity", http.MethodDelete, "/a", `{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"uid":"no"}}`},
		{"delete with a version that is past", http.MethodDelete, "/a", `{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"resourceVersion":"1"}}`},
		{"delete as dry run", http.MethodDelete, "/a?dryRun=All", ""},
		{"get after the dry run of a deletion", http.MethodGet, "/a", ""},
		{"add a finalizer", http.MethodPatch, "/a", `{"metadata":{"finalizers":["example.io/f"]}}`},
		{"delete with a finalizer", http.MethodDelete, "/a", ""},
		{"get while it is being deleted", http.MethodGet, "/a", ""},
		{"add a finalizer too late", http.MethodPatch, "/a", `{"metadata":{"finalizers":["example.io/f","example.io/g"]}}`},
		{"remove the last finalizer", http.MethodPatch, "/a", `{"metadata":{"finalizers":null}}`},
		{"get after the deletion", http.MethodGet, "/a", ""},
		{"delete a missing object", http.MethodDelete, "/a", ""},
		{"delete all, selected by field", http.MethodDelete, "?fieldSelector=spec.color%3Dblue", ""},
		{"list the remaining objects", http.MethodGet, "", ""},
		{"delete all", http.MethodDelete, "", ""},
		{"list without objects", http.MethodGet, "", ""},
	}
	for _, step := range steps {
		t.Run(step.name, func(t *testing.T) {
			responses := map[string]any{}
			for name, group := range groups {
				path := "/" + name + "/clusters/one/apis/" + group + "/v1/namespaces/default/widgets" + step.path
				res := s.do(t, step.method, path, "", strings.ReplaceAll(step.body, "GROUP", group))
				if step.method == http.MethodDelete && res.code == http.StatusMethodNotAllowed {
					t.Fatal("not routed")
				}
				responses[name] = []any{res.code, normalizeResponse(strings.ReplaceAll(res.body, group, "GROUP"))}
			}
			if !reflect.DeepEqual(responses["ours"], responses["stock"]) {
				t.Errorf("got\n%v\nwant\n%v", responses["ours"], responses["stock"])
			}
		})
	}
}

func TestNoopUpdate(t *testing.T) {
	const group = "noop.example.io"
	s := newServer(t)
	s.handle("ours", newContentHandler(t, newStorage(t, widgetsResource(group)), newDefinition(group)))
	path := "/ours/clusters/one/apis/" + group + "/v1/namespaces/default/widgets"
	created := s.mustDo(t, http.MethodPost, path, newWidgetJSON(group, "v1", "a", nil, `{"color":"blue <&>","ratio":1.0}`))
	for range 3 {
		if patched := s.mustDo(t, http.MethodPatch, path+"/a", `{"spec":{"color":"blue <&>"}}`); patched.GetResourceVersion() != created.GetResourceVersion() {
			t.Fatalf("from version %s to %s", created.GetResourceVersion(), patched.GetResourceVersion())
		}
	}
}

func TestStoredKeysAndValues(t *testing.T) {
	const group = "keys.example.io"
	s := newServer(t)
	s.handle("ours", newContentHandler(t, newStorage(t, widgetsResource(group)), newDefinition(group)))
	s.handle("stock", newStockHandler(t, newDefinition(group), stockRESTOptions{t}))
	for _, server := range []string{"ours", "stock"} {
		s.mustDo(t, http.MethodPost, "/"+server+"/clusters/one/apis/"+group+"/v1/namespaces/default/widgets", newWidgetJSON(group, "v1", server, nil, `{"color":"<"}`))
	}
	prefix := "/registry/" + group + "/widgets/customresources/one/default/"
	res, err := newEtcdClient(t).Get(t.Context(), "/registry/"+group, clientv3.WithPrefix())
	if err != nil || len(res.Kvs) != 2 || string(res.Kvs[0].Key) != prefix+"ours" {
		t.Fatalf("keys are %v, %v", res, err)
	}
	normalizeStored := func(data []byte) string {
		obj := normalizeJSON(string(data))
		removeVolatileFields(obj)
		metadata, _ := obj.(map[string]any)["metadata"].(map[string]any)
		delete(metadata, "name")
		out, _ := json.Marshal(obj)
		return string(out) + string(data[len(data)-2:])
	}
	if actual, upstream := normalizeStored(res.Kvs[0].Value), normalizeStored(res.Kvs[1].Value); actual != upstream {
		t.Errorf("stored value is %s, want %s", actual, upstream)
	}
}

func TestConcurrentWrites(t *testing.T) {
	const group, writers, writesPerWriter = "counting.example.io", 8, 10
	s := newServer(t)
	s.handle("ours", newContentHandler(t, newStorage(t, widgetsResource(group)), newDefinition(group)))
	path := "/ours/clusters/one/apis/" + group + "/v1/namespaces/default/widgets"
	s.mustDo(t, http.MethodPost, path, newWidgetJSON(group, "v1", "a", nil, `{"count":0}`))
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range writesPerWriter {
				for {
					obj := s.mustDo(t, http.MethodGet, path+"/a", "")
					count, _ := obj.Object["spec"].(map[string]any)["count"].(float64)
					body := fmt.Sprintf(`{"metadata":{"resourceVersion":%q},"spec":{"count":%d}}`, obj.GetResourceVersion(), int(count)+1)
					if res := s.do(t, http.MethodPatch, path+"/a", "", body); res.code == http.StatusOK {
						break
					} else if res.code != http.StatusConflict {
						t.Errorf("%d %s", res.code, res.body)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	obj := s.mustDo(t, http.MethodGet, path+"/a", "")
	if count := obj.Object["spec"].(map[string]any)["count"]; count != float64(writers*writesPerWriter) {
		t.Errorf("the count is %v", count)
	}
	if generation := obj.GetGeneration(); generation != 0 && generation != writers*writesPerWriter+1 {
		t.Errorf("generation %d", generation)
	}
}

// withoutStorageKey returns a Status, as JSON, without the logical cluster in the key in storage, which the key contains only
// below the upstream store.
func withoutStorageKey(body string) string {
	status, err := yaml.YAMLToJSON([]byte(body))
	if err != nil {
		return body
	}
	return strings.ReplaceAll(string(status), "/customresources/one/", "/customresources/")
}

func TestCorruptObjectMatchesUpstream(t *testing.T) {
	for name, value := range map[string]string{
		"no kind":            `{"apiVersion":"GROUP/v1","metadata":{"name":"a","namespace":"default","annotations":{"kcp.io/cluster":"one"}}}`,
		"an unknown version": `{"apiVersion":"GROUP/v7","kind":"Widget","metadata":{"name":"a","namespace":"default","annotations":{"kcp.io/cluster":"one"}}}`,
		"invalid JSON":       `{"apiVersion":`,
	} {
		t.Run(name, func(t *testing.T) {
			group := strings.ReplaceAll(name, " ", "-") + ".corrupt.example.io"
			group = strings.ToLower(group)
			value = strings.ReplaceAll(value, "GROUP", group)
			if _, err := newEtcdClient(t).Put(context.Background(), "/registry/"+group+"/widgets/customresources/one/default/a", value); err != nil {
				t.Fatal(err)
			}
			s := newServer(t)
			s.handle("ours", newContentHandler(t, newStorage(t, widgetsResource(group)), newDefinition(group)))
			s.handle("stock", newStockHandler(t, newDefinition(group), stockRESTOptions{t}))
			path := "/clusters/one/apis/" + group + "/v1/namespaces/default/widgets"
			for _, accept := range []string{"", "application/yaml"} {
				actual, upstream := s.do(t, http.MethodGet, "/ours"+path+"/a", accept, ""), s.do(t, http.MethodGet, "/stock"+path+"/a", accept, "")
				if actual.code != upstream.code || (name != "invalid JSON" && withoutStorageKey(actual.body) != withoutStorageKey(upstream.body)) {
					t.Errorf("as %q: got %d\n%s, want %d\n%s", accept, actual.code, withoutStorageKey(actual.body), upstream.code, withoutStorageKey(upstream.body))
				}
				list := s.do(t, http.MethodGet, "/ours"+path+"?limit=5", accept, "")
				if want := s.do(t, http.MethodGet, "/stock"+path+"?limit=5", accept, ""); list.code != want.code {
					t.Errorf("as %q: the list got %d %s, want %d %s", accept, list.code, list.body, want.code, want.body)
				}
			}
			for _, method := range []string{http.MethodDelete, http.MethodPatch} {
				actual, upstream := s.do(t, method, "/ours"+path+"/a", "", "{}"), s.do(t, method, "/stock"+path+"/a", "", "{}")
				if actual.code != upstream.code {
					t.Errorf("%s: got %d %s, want %d %s", method, actual.code, actual.body, upstream.code, upstream.body)
				}
			}
		})
	}
}

// newTwoVersionDefinition is a definition with v1 and v2, storing one of them.
func newTwoVersionDefinition(group, storage string) *apiextensionsv1.CustomResourceDefinition {
	return newDefinition(group, func(crd *apiextensionsv1.CustomResourceDefinition) {
		crd.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{newVersion("v1", ""), newVersion("v2", "large")}
		for i := range crd.Spec.Versions {
			crd.Spec.Versions[i].Storage = crd.Spec.Versions[i].Name == storage
		}
	})
}

func TestVersionConversion(t *testing.T) {
	const group = "versions.example.io"
	storage := newStorage(t, widgetsResource(group))
	s := newServer(t)
	s.handle("before", newContentHandler(t, storage, newTwoVersionDefinition(group, "v1")))
	s.handle("after", newContentHandler(t, storage, newTwoVersionDefinition(group, "v2")))
	s.handle("stock", newStockHandler(t, newTwoVersionDefinition(group, "v1"), stockRESTOptions{t}))
	path := func(server, version string) string {
		return "/" + server + "/clusters/one/apis/" + group + "/" + version + "/namespaces/default/widgets"
	}
	for i, v := range []string{"v1", "v2"} {
		s.mustDo(t, http.MethodPost, path("before", v), newWidgetJSON(group, v, fmt.Sprintf("w%d", i), nil, `{"color":"blue"}`))
	}
	for _, v := range []string{"v1", "v2"} { // upstream has a cache per version
		s.mustDo(t, http.MethodGet, path("stock", v), "")
	}
	for range 2 { // converted, then from the cache
		for _, v := range []string{"v1", "v2"} {
			for _, query := range []string{"", "/w0", "/w1", "?resourceVersion=0", "?limit=1", "?fieldSelector=spec.color%3Dblue"} {
				for _, accept := range []string{"", tableJSON, "application/yaml", metadataListJSON} {
					actual, upstream := s.do(t, http.MethodGet, path("before", v)+query, accept, ""), s.do(t, http.MethodGet, path("stock", v)+query, accept, "")
					if actual.code != upstream.code || !reflect.DeepEqual(normalizeJSON(actual.body), normalizeJSON(upstream.body)) {
						t.Errorf("%s%s as %q: got %s, want %s", v, query, accept, actual.body, upstream.body)
					}
				}
			}
		}
	}
	before := s.mustDo(t, http.MethodGet, path("before", "v2")+"/w0", "")
	after := s.mustDo(t, http.MethodPatch, path("after", "v2")+"/w0", `{}`)
	if before.GetResourceVersion() == after.GetResourceVersion() {
		t.Error("an update without changes must store the object in the new version")
	}
	res, err := newEtcdClient(t).Get(t.Context(), "/registry/"+group+"/widgets/customresources/one/default/w0")
	if err != nil || len(res.Kvs) != 1 || !strings.Contains(string(res.Kvs[0].Value), `"apiVersion":"`+group+`/v2"`) {
		t.Errorf("stored value is %v, %v", res, err)
	}
	if repatched := s.mustDo(t, http.MethodPatch, path("after", "v2")+"/w0", `{}`); repatched.GetResourceVersion() != after.GetResourceVersion() || repatched.GetAPIVersion() != group+"/v2" {
		t.Errorf("the second update without changes returned %v", repatched)
	}
}

func TestDefaultsApplyToExistingObjects(t *testing.T) {
	const group = "defaults.example.io"
	storage := newStorage(t, widgetsResource(group))
	newSizedDefinition := func(size string) *apiextensionsv1.CustomResourceDefinition {
		return newDefinition(group, func(crd *apiextensionsv1.CustomResourceDefinition) {
			crd.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{newVersion("v1", size)}
			crd.Spec.Versions[0].Storage = true
		})
	}
	s := newServer(t)
	s.handle("old", newContentHandler(t, storage, newSizedDefinition("")))
	path := "/clusters/one/apis/" + group + "/v1/namespaces/default/widgets"
	created := s.mustDo(t, http.MethodPost, "/old"+path, newWidgetJSON(group, "v1", "a", nil, `{"color":"blue"}`))
	s.handle("small", newContentHandler(t, storage, newSizedDefinition("small")))
	s.handle("large", newContentHandler(t, storage, newSizedDefinition("large")))
	s.handle("stock", newStockHandler(t, newSizedDefinition("small"), stockRESTOptions{t}))
	for range 3 {
		for server, want := range map[string]any{"old": nil, "small": "small", "large": "large"} {
			obj := s.mustDo(t, http.MethodGet, "/"+server+path+"/a", "")
			if got := obj.Object["spec"].(map[string]any)["size"]; got != want || obj.GetResourceVersion() != created.GetResourceVersion() {
				t.Errorf("%s returns %v at %s, want %v", server, got, obj.GetResourceVersion(), want)
			}
		}
	}
	s.mustDo(t, http.MethodGet, "/stock"+path, "")
	for _, query := range []string{"", "/a", "?resourceVersion=0"} {
		if actual, upstream := s.do(t, http.MethodGet, "/small"+path+query, "", ""), s.do(t, http.MethodGet, "/stock"+path+query, "", ""); !actual.fromReads || !reflect.DeepEqual(normalizeJSON(actual.body), normalizeJSON(upstream.body)) {
			t.Errorf("got %s, want %s", actual.body, upstream.body)
		}
	}
	events := s.watch(t, "/small"+path+"?watch=1&resourceVersion=0", "").nextEvents(t, 1)
	if !strings.Contains(fmt.Sprint(events), "size:small") {
		t.Errorf("the watch returned %v", events)
	}
}

func TestEqualNamesAreIsolated(t *testing.T) {
	const group = "two.example.io"
	storage := newStorage(t, widgetsResource(group))
	s := newServer(t)
	s.handle("namespaced", newContentHandler(t, storage, newDefinition(group)))
	s.handle("clusterwide", newContentHandler(t, storage, newDefinition(group, func(crd *apiextensionsv1.CustomResourceDefinition) {
		crd.Spec.Scope = apiextensionsv1.ClusterScoped
		crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"] = apiextensionsv1.JSONSchemaProps{Type: "string"}
		crd.Spec.Versions[0].SelectableFields = nil
	})))
	path := "/apis/" + group + "/v1"
	s.mustDo(t, http.MethodPost, "/namespaced/clusters/one"+path+"/namespaces/a/widgets", newWidgetJSON(group, "v1", "a", nil, `{"color":"blue"}`))
	s.mustDo(t, http.MethodPost, "/clusterwide/clusters/two"+path+"/widgets", newWidgetJSON(group, "v1", "a", nil, `"text"`))
	for request, want := range map[string]int{
		"/namespaced/clusters/one" + path + "/namespaces/a/widgets/a":   http.StatusOK,
		"/namespaced/clusters/two" + path + "/namespaces/a/widgets/a":   http.StatusNotFound,
		"/clusterwide/clusters/two" + path + "/widgets/a":               http.StatusOK,
		"/clusterwide/clusters/one" + path + "/widgets/a":               http.StatusNotFound,
		"/clusterwide/clusters/two" + path + "/namespaces/a/widgets/a":  http.StatusNotFound,
		"/clusterwide/clusters/two" + path + "/namespaces/a/widgets":    http.StatusNotFound,
		"/clusterwide/clusters/three" + path + "/widgets/a":             http.StatusNotFound,
		"/namespaced/clusters/three" + path + "/namespaces/a/widgets/a": http.StatusNotFound,
	} {
		for _, accept := range []string{"", tableJSON} {
			if res := s.do(t, http.MethodGet, request, accept, ""); res.code != want {
				t.Errorf("%s as %q: %d %s", request, accept, res.code, res.body)
			}
		}
	}
	for cluster, server := range map[string]string{"one": "namespaced", "two": "clusterwide"} {
		list := s.mustDo(t, http.MethodGet, "/"+server+"/clusters/"+cluster+path+"/widgets", "")
		if items := list.Object["items"].([]any); len(items) != 1 {
			t.Errorf("in %s: %v", cluster, items)
		}
	}
}
