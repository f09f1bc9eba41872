package crdstorage_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

const (
	metadataJSON     = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	metadataListJSON = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	metadataListPB   = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1," + metadataListJSON
	tableJSON        = "application/json;as=Table;g=meta.k8s.io;v=v1,application/json"
)

// newFilledServer serves one definition by the reads of this package, at /ours, and by the upstream handler alone, at
// /stock, from the same keys: six widgets in each of two logical clusters, whose specs are large enough to be shared in
// memory.
func newFilledServer(t *testing.T, group string) (s *server, path string) {
	t.Helper()
	s = newServer(t)
	crd := newDefinition(group)
	s.handle("ours", newContentHandler(t, newStorage(t, widgetsResource(group)), crd))
	s.handle("stock", newStockHandler(t, crd, stockRESTOptions{t}))
	path = "/apis/" + group + "/v1"
	for _, cluster := range []string{"one", "two"} {
		for i := range 6 {
			namespace, color := []string{"east", "west"}[i%2], []string{"blue", "red", "green"}[i%3]
			body := newWidgetJSON(group, "v1", fmt.Sprintf("w%d", i), map[string]string{"even": fmt.Sprint(i%2 == 0)}, fmt.Sprintf(`{"color":%q,"count":%d,"ratio":0.5,"note":%q}`, color, i, strings.Repeat("some words. ", 30)))
			s.mustDo(t, http.MethodPost, "/ours/clusters/"+cluster+path+"/namespaces/"+namespace+"/widgets", body)
		}
	}
	return s, path
}

// durations matches content that changes with time: the age of an object in a table, the first version of a watch
// cache.
var durations = regexp.MustCompile(`(["(])\d+(s"|\))`)

// normalizeJSON returns a decoded body without content that changes with time, or the unchanged body if it is not JSON.
func normalizeJSON(body string) any {
	body = durations.ReplaceAllString(body, "${1}passing$2")
	var value any
	if json.Unmarshal([]byte(body), &value) != nil {
		return body
	}
	return value
}

func TestReadsMatchUpstream(t *testing.T) {
	const group = "reads.example.io"
	s, path := newFilledServer(t, group)
	version := s.mustDo(t, http.MethodGet, "/ours/clusters/one"+path+"/widgets", "").GetResourceVersion()
	eastPath := path + "/namespaces/east/widgets"
	// Both caches have observed all writes before cached lists are compared.
	s.mustDo(t, http.MethodGet, "/stock/clusters/one"+path+"/widgets", "")
	for name, tc := range map[string]struct {
		path, accept string
		slow         bool
	}{
		"one object":                                       {path: eastPath + "/w0"},
		"one object, from the cache":                       {path: eastPath + "/w0?resourceVersion=0"},
		"one object, not older than":                       {path: eastPath + "/w0?resourceVersion=" + version},
		"one object, invalid version":                      {path: eastPath + "/w0?resourceVersion=x"},
		"a missing object":                                 {path: eastPath + "/none"},
		"a missing object, from the cache":                 {path: eastPath + "/none?resourceVersion=0"},
		"an invalid name":                                  {path: eastPath + "/a%25b"},
		"the parameter export":                             {path: eastPath + "/w0?export=true"},
		"one object, indented":                             {path: eastPath + "/w0?pretty=true"},
		"one object as YAML":                               {path: eastPath + "/w0", accept: "application/yaml", slow: true},
		"one object as a table":                            {path: eastPath + "/w0", accept: tableJSON, slow: true},
		"one object in an unsupported encoding":            {path: eastPath + "/w0", accept: "text/csv", slow: true},
		"one object, protobuf or JSON":                     {path: eastPath + "/w0", accept: "application/vnd.kubernetes.protobuf,application/json"},
		"one object, protobuf only":                        {path: eastPath + "/w0", accept: "application/vnd.kubernetes.protobuf", slow: true},
		"the metadata of one object":                       {path: eastPath + "/w0", accept: metadataJSON},
		"the status of one object":                         {path: eastPath + "/w0/status", slow: true},
		"all objects":                                      {path: path + "/widgets"},
		"all objects, indented":                            {path: path + "/widgets?pretty=1"},
		"the objects of a namespace":                       {path: eastPath},
		"the objects of a namespace that is empty":         {path: path + "/namespaces/none/widgets"},
		"all objects, from the cache":                      {path: path + "/widgets?resourceVersion=0"},
		"all objects, at a version":                        {path: path + "/widgets?resourceVersionMatch=Exact&resourceVersion=" + version},
		"all objects, not older than":                      {path: path + "/widgets?resourceVersionMatch=NotOlderThan&resourceVersion=" + version},
		"a match without a version":                        {path: path + "/widgets?resourceVersionMatch=Exact"},
		"an exact match of version 0":                      {path: path + "/widgets?resourceVersionMatch=Exact&resourceVersion=0"},
		"an invalid version":                               {path: path + "/widgets?resourceVersion=x"},
		"a compacted version":                              {path: path + "/widgets?resourceVersionMatch=Exact&resourceVersion=1"},
		"an invalid token":                                 {path: path + "/widgets?limit=2&continue=x"},
		"a token with a version":                           {path: path + "/widgets?continue=x&resourceVersion=" + version},
		"a page":                                           {path: path + "/widgets?limit=2"},
		"a page of a namespace":                            {path: eastPath + "?limit=2"},
		"a page, at a version":                             {path: path + "/widgets?limit=2&resourceVersionMatch=Exact&resourceVersion=" + version},
		"a page, from the cache":                           {path: path + "/widgets?limit=2&resourceVersion=0"},
		"by label":                                         {path: path + "/widgets?labelSelector=even%3Dtrue"},
		"by label, a page":                                 {path: path + "/widgets?labelSelector=even%3Dtrue&limit=2"},
		"by an invalid selector":                           {path: path + "/widgets?labelSelector=%21%21"},
		"by name":                                          {path: path + "/widgets?fieldSelector=metadata.name%3Dw1"},
		"by name in a namespace":                           {path: eastPath + "?fieldSelector=metadata.name%3Dw2"},
		"by name in another namespace":                     {path: eastPath + "?fieldSelector=metadata.name%3Dw1"},
		"by namespace":                                     {path: path + "/widgets?fieldSelector=metadata.namespace%3Dwest"},
		"by exclusion of a namespace":                      {path: path + "/widgets?fieldSelector=metadata.namespace%21%3Dwest"},
		"by a field of the schema":                         {path: path + "/widgets?fieldSelector=spec.color%3Dblue"},
		"by a field of the schema, from the cache":         {path: path + "/widgets?resourceVersion=0&fieldSelector=spec.color%3Dblue"},
		"by a field of the schema, a page":                 {path: path + "/widgets?fieldSelector=spec.color%21%3Dblue&limit=2"},
		"by a field of the schema and a label":             {path: path + "/widgets?fieldSelector=spec.color%3Dblue&labelSelector=even%3Dtrue"},
		"by a field of the schema and a namespace":         {path: path + "/widgets?fieldSelector=spec.color%3Dblue,metadata.namespace%3Dwest"},
		"by a field that is not selectable":                {path: path + "/widgets?fieldSelector=spec.count%3D1"},
		"all objects as YAML":                              {path: path + "/widgets", accept: "application/yaml", slow: true},
		"all objects as a table":                           {path: path + "/widgets", accept: tableJSON, slow: true},
		"all objects by field as a table":                  {path: path + "/widgets?fieldSelector=spec.color%3Dblue", accept: tableJSON, slow: true},
		"a page as a table":                                {path: path + "/widgets?limit=2", accept: tableJSON, slow: true},
		"the metadata of all objects":                      {path: path + "/widgets", accept: metadataListJSON},
		"the metadata of a page":                           {path: path + "/widgets?limit=2", accept: metadataListJSON},
		"the metadata by a field of the schema":            {path: path + "/widgets?fieldSelector=spec.color%3Dblue", accept: metadataListJSON},
		"the metadata of all objects, as protobuf":         {path: path + "/widgets", accept: metadataListPB},
		"the metadata of a list with the kind for objects": {path: path + "/widgets", accept: metadataJSON, slow: true},
		"a version that is not served":                     {path: "/apis/" + group + "/v9/widgets", slow: true},
		"an object without its namespace":                  {path: path + "/widgets/w0", slow: true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, cluster := range []string{"one", "two", "empty", "*"} {
				if cluster == "*" && (strings.Contains(tc.path, "/namespaces/") || strings.Contains(tc.path, "namespace%3D") || strings.Contains(tc.path, "metadata.name")) {
					continue // the upstream store does not support it
				}
				actual := s.do(t, http.MethodGet, "/ours/clusters/"+cluster+tc.path, tc.accept, "")
				upstream := s.do(t, http.MethodGet, "/stock/clusters/"+cluster+tc.path, tc.accept, "")
				if actual.fromReads == tc.slow {
					t.Errorf("in %s: served by the reads of this package: %t", cluster, actual.fromReads)
				}
				if actual.code != upstream.code || !reflect.DeepEqual(normalizeJSON(actual.body), normalizeJSON(upstream.body)) {
					t.Errorf("in %s: got %d\n%s\nwant %d\n%s", cluster, actual.code, actual.body, upstream.code, upstream.body)
				}
				if o, w := actual.header.Get("Content-Type"), upstream.header.Get("Content-Type"); o != w {
					t.Errorf("in %s: content type %q, want %q", cluster, o, w)
				}
			}
		})
	}
}

// listPages follows continue tokens to the end and returns names and tokens.
func listPages(t *testing.T, s *server, path, accept string) (names, tokens []string) {
	t.Helper()
	token := ""
	for range 20 {
		res := s.do(t, http.MethodGet, path+"&continue="+url.QueryEscape(token), accept, "")
		var list struct {
			Metadata struct{ Continue, ResourceVersion string }
			Items    []struct{ Metadata struct{ Name string } }
		}
		if err := json.Unmarshal([]byte(res.body), &list); err != nil || res.code != http.StatusOK {
			t.Fatalf("%d %s", res.code, res.body)
		}
		for _, item := range list.Items {
			names = append(names, item.Metadata.Name)
		}
		tokens = append(tokens, list.Metadata.ResourceVersion+" "+list.Metadata.Continue)
		if token = list.Metadata.Continue; token == "" {
			break
		}
	}
	return names, tokens
}

func TestPaginationMatchesUpstream(t *testing.T) {
	const group = "pages.example.io"
	s, path := newFilledServer(t, group)
	for _, query := range []string{"?limit=1", "?limit=2", "?limit=4", "?limit=2&labelSelector=even%3Dtrue", "?limit=1&fieldSelector=spec.color%21%3Dred"} {
		wantNames, wantTokens := listPages(t, s, "/stock/clusters/one"+path+"/widgets"+query, "")
		for _, accept := range []string{"", metadataListJSON} {
			names, tokens := listPages(t, s, "/ours/clusters/one"+path+"/widgets"+query, accept)
			if !reflect.DeepEqual(names, wantNames) || !reflect.DeepEqual(tokens, wantTokens) {
				t.Errorf("%s as %q: got %v %v, want %v %v", query, accept, names, tokens, wantNames, wantTokens)
			}
		}
	}
}

func TestPaginationIsConsistent(t *testing.T) {
	const group = "snapshot.example.io"
	s, path := newFilledServer(t, group)
	first := s.mustDo(t, http.MethodGet, "/ours/clusters/one"+path+"/widgets?limit=3", "")
	token, _, _ := unstructuredString(first.Object, "metadata", "continue")
	s.mustDo(t, http.MethodDelete, "/ours/clusters/one"+path+"/namespaces/west/widgets/w5", "")
	rest := s.mustDo(t, http.MethodGet, "/ours/clusters/one"+path+"/widgets?continue="+url.QueryEscape(token), "")
	items, _ := rest.Object["items"].([]any)
	if len(items) != 3 || rest.GetResourceVersion() != first.GetResourceVersion() {
		t.Errorf("the rest has %d items at %s, want 3 at %s", len(items), rest.GetResourceVersion(), first.GetResourceVersion())
	}
	if all := s.mustDo(t, http.MethodGet, "/ours/clusters/one"+path+"/widgets", ""); len(all.Object["items"].([]any)) != 5 {
		t.Error("a list without a version must not contain the deleted object")
	}
}

func TestDeprecationWarning(t *testing.T) {
	for name, tc := range map[string]struct{ text *string }{
		"with a warning of the definition": {text: ptrTo("use something else")},
		"without":                          {},
	} {
		t.Run(name, func(t *testing.T) {
			group := strings.ReplaceAll(name, " ", "-") + ".deprecated.example.io"
			crd := newDefinition(group, func(crd *apiextensionsv1.CustomResourceDefinition) {
				v1alpha1 := newVersion("v1alpha1", "")
				v1alpha1.Deprecated, v1alpha1.DeprecationWarning = true, tc.text
				crd.Spec.Versions = append(crd.Spec.Versions, v1alpha1)
			})
			s := newServer(t)
			s.handle("ours", withWarnings(newContentHandler(t, newStorage(t, widgetsResource(group)), crd)))
			s.handle("stock", withWarnings(newStockHandler(t, crd, stockRESTOptions{t})))
			path := "/clusters/one/apis/" + group + "/v1alpha1/widgets"
			actual, upstream := s.do(t, http.MethodGet, "/ours"+path, "", ""), s.do(t, http.MethodGet, "/stock"+path, "", "")
			if !actual.fromReads || len(upstream.header.Values("Warning")) != 1 || !reflect.DeepEqual(actual.header.Values("Warning"), upstream.header.Values("Warning")) {
				t.Errorf("warnings are %q, want %q", actual.header.Values("Warning"), upstream.header.Values("Warning"))
			}
		})
	}
}
