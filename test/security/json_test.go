package security_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"sigs.k8s.io/yaml"
)

const oddsPath = "/apis/odd.example.com/v1/namespaces/default/odds"

// testAmbiguousJSON stores custom resources whose JSON is ambiguous, and reads them in every encoding and through every
// endpoint. All readers must see the same object, and the logical cluster is never the one that the client wrote.
func testAmbiguousJSON(t *testing.T, s *env) {
	s.createDefinition(t, definitionJSON("odd.example.com", "odds", "Odd", "Namespaced", "v1", ""), "odds.odd.example.com")
	const head = `{"apiVersion":"odd.example.com/v1","kind":"Odd",`
	claim := `"annotations":{"kcp.io/cluster":"` + s.b + `"}`
	kinds := map[string]string{
		"plain":                                  head + `"metadata":{"name":"%s",` + claim + `}}`,
		"duplicate metadata":                     head + `"metadata":{"name":"x"},"metadata":{"name":"%s",` + claim + `}}`,
		"duplicate metadata, escaped":            head + `"metadata":{"name":"%s"},"\u006detadata":{"name":"%[1]s",` + claim + `}}`,
		"escaped metadata":                       head + `"\u006detadata":{"name":"%s",` + claim + `}}`,
		"metadata in mixed case":                 head + `"metadata":{"name":"%s"},"Metadata":{"name":"other",` + claim + `},"METADATA":{"resourceVersion":"7"}}`,
		"metadata in a string":                   head + `"metadata":{"name":"%s"},"a":"\"metadata\":{\"annotations\":{\"kcp.io/cluster\":\"` + s.b + `\"}}"}`,
		"nested metadata":                        head + `"spec":{"metadata":{"resourceVersion":"7",` + claim + `}},"metadata":{"name":"%s"}}`,
		"duplicate annotations":                  head + `"metadata":{"name":"%s","annotations":{"a":"b"},` + claim + `}}`,
		"escaped annotations":                    head + `"metadata":{"name":"%s","\u0061nnotations":{"kcp.io\/cluster":"` + s.b + `"}}}`,
		"duplicate cluster annotation":           head + `"metadata":{"name":"%s","annotations":{"kcp.io/cluster":"` + s.b + `","kcp.io\u002fcluster":"` + s.b + `"}}}`,
		"cluster annotation is a list":           head + `"metadata":{"name":"%s","annotations":{"kcp.io/cluster":["` + s.b + `"]}}}`,
		"null annotations":                       head + `"metadata":{"name":"%s","annotations":null,"labels":null,"finalizers":null,"ownerReferences":null}}`,
		"empty resourceVersion":                  head + `"metadata":{"name":"%s","resourceVersion":""}}`,
		"duplicate resourceVersion":              head + `"metadata":{"name":"%s","resourceVersion":"","resourceVersion":""}}`,
		"escaped resourceVersion":                head + `"metadata":{"name":"%s","\u0072esourceVersion":""}}`,
		"resourceVersion in mixed case":          head + `"metadata":{"name":"%s","ResourceVersion":"7","selfLink":"/x","SelfLink":"/y"}}`,
		"null metadata":                          head + `"metadata":null}`,
		"metadata is a string":                   head + `"metadata":"x"}`,
		"duplicate name, second is a number":     head + `"metadata":{"name":"%s","name":7}}`,
		"escaped name":                           head + `"metadata":{"n\u0061me":"%s","uid":"7","namespace":"default"}}`,
		"invalid namespace":                      head + `"metadata":{"name":"%s","namespace":"../x"}}`,
		"huge numbers":                           head + `"metadata":{"name":"%s","generation":99999999999999999999},"spec":{"a":1e999,"b":123456789012345678901234567890,"c":-0,"d":1.0,"e":1e2,"f":0.1e-400}}`,
		"numbers beyond float64 precision":       head + `"metadata":{"name":"%s"},"spec":{"b":12345678901234567890123,"c":-0,"d":1.0,"e":1e2,"f":1e-400,"g":9007199254740993}}`,
		"invalid UTF-8":                          head + `"metadata":{"name":"%s"},"spec":{"a":"` + "\xff\xfe\xc0\xaf" + `","` + "\xff" + `":"b"}}`,
		"unpaired surrogates":                    head + `"metadata":{"name":"%s"},"spec":{"a":"\ud800","b":"\udc00\ud800","\ud800":1}}`,
		"control characters and line separators": head + `"metadata":{"name":"%s"},"spec":{"a":"\u0000\u2028\u2029\u007f","\u0000":1,"<&>":"<script>&"}}`,
		"label value is a number":                head + `"metadata":{"name":"%s","labels":{"a":1}}}`,
		"escaped labels":                         head + `"metadata":{"name":"%s","labels":{"\u0061":"b"}},"metadat\u0061":{"name":"%[1]s","labels":{"a":"c"}}}`,
		"empty key":                              head + `"metadata":{"name":"%s"},"":{"":""}}`,
		"duplicate kind and apiVersion":          `{"apiVersion":"odd.example.com/v1","kind":"Odd","kind":"Odd","\u006bind":"Odd","apiVersion":"odd.example.com/v1","metadata":{"name":"%s"}}`,
		"fields set by the server":               head + `"metadata":{"name":"%s","deletionTimestamp":"2020-01-01T00:00:00Z","deletionGracePeriodSeconds":0,"creationTimestamp":null,"managedFields":[{"manager":"x"}]},"status":{"a":1}}`,
		"fields of a list":                       head + `"metadata":{"name":"%s","continue":"x"},"items":[{"metadata":{"name":"y"}}]}`,
		"deep nesting":                           head + `"metadata":{"name":"%s"},"spec":` + strings.Repeat(`{"a":`, 3000) + "1" + strings.Repeat("}", 3000) + `}`,
		"nesting beyond decoder limits":          head + `"metadata":{"name":"%s"},"spec":` + strings.Repeat(`[`, 20000) + strings.Repeat("]", 20000) + `}`,
		"JSON delimiters in a string":            head + `"metadata":{"name":"%s"},"spec":"]}\n{\"type\":\"ADDED\",\"object\":{}}"}`,
		"trailing data":                          head + `"metadata":{"name":"%s"}} {"metadata":{"name":"x"}}`,
	}
	for number, name := range slices.Sorted(maps.Keys(kinds)) {
		body := kinds[name]
		t.Run(name, func(t *testing.T) {
			for i, write := range []func(body, object string) httpResponse{
				func(body, _ string) httpResponse {
					return s.do(t, s.adminA, s.a, request{method: http.MethodPost, path: oddsPath + "?fieldValidation=Ignore", body: body})
				},
				func(body, _ string) httpResponse {
					return s.do(t, s.adminA, s.a, request{method: http.MethodPost, path: oddsPath + "?fieldValidation=Ignore", body: body, contentType: "application/yaml"})
				},
				func(body, object string) httpResponse {
					return s.do(t, s.adminA, s.a, request{method: http.MethodPatch, path: oddsPath + "/" + object + "?fieldManager=me&force=true&fieldValidation=Ignore", body: body, contentType: applyPatchType})
				},
				func(body, object string) httpResponse {
					plain := fmt.Sprintf(head+`"metadata":{"name":"%s","annotations":{"a":"b"}}}`, object)
					s.do(t, s.adminA, s.a, request{method: http.MethodPost, path: oddsPath, body: plain})
					return s.do(t, s.adminA, s.a, request{method: http.MethodPut, path: oddsPath + "/" + object + "?fieldValidation=Ignore", body: body})
				},
				func(body, object string) httpResponse {
					plain := fmt.Sprintf(head+`"metadata":{"name":"%s","annotations":{"a":"b"}}}`, object)
					s.do(t, s.adminA, s.a, request{method: http.MethodPost, path: oddsPath, body: plain})
					return s.do(t, s.adminA, s.a, request{method: http.MethodPatch, path: oddsPath + "/" + object + "?fieldValidation=Ignore", body: body, contentType: mergePatchType})
				},
			} {
				object := fmt.Sprintf("odd-%d-%d", number, i)
				text := body
				if strings.Contains(body, "%s") {
					text = strings.ReplaceAll(strings.ReplaceAll(body, "%[1]s", object), "%s", object)
				}
				got := write(text, object)
				if got.status >= 500 && !isStockError(got.body) {
					t.Errorf("write %d: %d %.300s", i, got.status, got.body)
				}
				if got.status < 300 && !strings.Contains(got.body, `"kcp.io/cluster":"`+s.a+`"`) && !strings.Contains(got.body, "kcp.io/cluster: "+s.a) {
					t.Errorf("write %d was answered with %.300s", i, got.body)
				}
			}
		})
	}
	t.Run("CBOR", func(t *testing.T) { s.testAmbiguousCBOR(t) })
	s.checkReadersAgree(t)
	if got := s.do(t, s.adminA, s.a, request{method: http.MethodDelete, path: oddsPath}); got.status != http.StatusOK {
		t.Errorf("deleting all: %d %.300s", got.status, got.body)
	}
}

// testAmbiguousCBOR is testAmbiguousJSON for CBOR, whose maps may have keys of more than one type, and tags.
func (e *env) testAmbiguousCBOR(t *testing.T) {
	text := func(value string) string { return cborHeader(3, len(value)) + value }
	bytes := func(value string) string { return cborHeader(2, len(value)) + value }
	pairs := func(pairs ...string) string { return cborHeader(5, len(pairs)/2) + strings.Join(pairs, "") }
	whole := func(rest ...string) string {
		return pairs(append([]string{text("apiVersion"), text("odd.example.com/v1"), text("kind"), text("Odd")}, rest...)...)
	}
	claim := pairs(text("kcp.io/cluster"), text(e.b))
	for i, body := range []string{
		whole(text("metadata"), pairs(text("name"), text("cbor-0"), text("annotations"), claim)),
		whole(text("metadata"), pairs(text("name"), text("cbor-1")), text("metadata"), pairs(text("name"), text("cbor-1"), text("annotations"), claim)),
		whole(bytes("metadata"), pairs(text("name"), text("cbor-2"), text("annotations"), claim), text("metadata"), pairs(text("name"), text("cbor-2"))),
		whole(text("metadata"), pairs(text("name"), text("cbor-3"), bytes("annotations"), claim)),
		whole(text("metadata"), pairs(text("name"), text("cbor-4"), text("annotations"), pairs(bytes("kcp.io/cluster"), bytes(e.b)))),
		whole(text("metadata"), pairs(text("name"), text("cbor-5")), text("spec"), pairs(text("\xff"), text("\xfe\xff"))),
		whole(text("metadata"), pairs(text("name"), text("cbor-6")), text("spec"), bytes("\x00\xff\"}")),
		whole(text("metadata"), pairs(text("name"), text("cbor-7")), text("spec"), "\xc2"+bytes(strings.Repeat("\xff", 100))),
		whole(text("metadata"), pairs(text("name"), text("cbor-8")), text("spec"), "\xfb\x7f\xf0\x00\x00\x00\x00\x00\x00"), // infinity
		whole(text("metadata"), pairs(text("name"), text("cbor-9")), text("spec"), strings.Repeat("\xd9\xd9\xf7", 5000)+text("x")),
		whole(text("metadata"), pairs(text("name"), text("cbor-10")), text("spec"), strings.Repeat("\x81", 100000)+"\x01"),
		whole(text("metadata"), pairs(text("name"), text("cbor-11")), text("spec"), "\xbf"+text("a")+text("b")+"\xff"),
		whole(text("metadata"), pairs(text("name"), text("cbor-12")), text("spec"), "\x9b\x00\x00\x00\xff\xff\xff\xff\xff"),
		whole(text("metadata"), pairs(text("name"), text("cbor-13"), text("resourceVersion"), text(""), text("generation"), "\x3b\xff\xff\xff\xff\xff\xff\xff\xff")),
	} {
		for _, magic := range []string{"\xd9\xd9\xf7", ""} {
			got := e.do(t, e.adminA, e.a, request{method: http.MethodPost, path: oddsPath + "?fieldValidation=Ignore", body: magic + body, contentType: "application/cbor"})
			if got.status >= 500 || got.status < 300 && !strings.Contains(got.body, `"kcp.io/cluster":"`+e.a+`"`) {
				t.Errorf("%d: %d %.300q", i, got.status, got.body)
			}
		}
	}
}

// cborHeader encodes the head of a CBOR item: major type and length.
func cborHeader(major, length int) string {
	return string([]byte{byte(major<<5 | 26), byte(length >> 24), byte(length >> 16), byte(length >> 8), byte(length)})
}

// isStockError reports whether an error is that of a stock API server for an object that it cannot write or apply.
func isStockError(body string) bool {
	return strings.Contains(body, "failed to create typed patch object") || strings.Contains(body, "is not a list: no Items field") || strings.Contains(body, "control characters are not allowed")
}

// checkReadersAgree reads all objects that testAmbiguousJSON stored through every reader.
func (e *env) checkReadersAgree(t *testing.T) {
	t.Helper()
	const yamlType = "application/yaml"
	lists := map[string]map[string]any{}
	add := func(reader string, object map[string]any) {
		if object == nil {
			return
		}
		metadata, _ := object["metadata"].(map[string]any)
		annotations, _ := metadata["annotations"].(map[string]any)
		if annotations["kcp.io/cluster"] != e.a {
			t.Errorf("%s shows %v", reader, metadata)
		}
		delete(object, "apiVersion") // absent from list items; metadata readers have another one
		delete(object, "kind")
		if lists[reader] == nil {
			lists[reader] = map[string]any{}
		}
		lists[reader][fmt.Sprint(metadata["name"])] = object
	}
	decode := func(reader, body string, wantsYAML bool) map[string]any {
		object := map[string]any{}
		if isStockError(body) {
			return nil
		}
		text := []byte(body)
		var err error
		if wantsYAML {
			text, err = yaml.YAMLToJSON(text)
		}
		decoder := json.NewDecoder(strings.NewReader(string(text)))
		decoder.UseNumber()
		if err == nil {
			err = decoder.Decode(&object)
		}
		if err != nil {
			t.Errorf("%s: %v in %.500s", reader, err, body)
		}
		return object
	}
	items := func(reader string, r request) {
		got := e.do(t, e.adminA, e.a, r)
		if got.status != http.StatusOK {
			if !isStockError(got.body) {
				t.Errorf("%s: %d %.300s", reader, got.status, got.body)
			}
			return
		}
		list, _ := decode(reader, got.body, r.header.Get("Accept") == yamlType)["items"].([]any)
		for _, item := range list {
			add(reader, item.(map[string]any))
		}
	}
	accept := func(value string) http.Header { return http.Header{"Accept": {value}} }
	items("a list", request{path: oddsPath})
	items("a page", request{path: oddsPath + "?limit=500"})
	items("a cached list", request{path: oddsPath + "?resourceVersion=0"})
	items("a list with a field selector", request{path: oddsPath + "?fieldSelector=metadata.namespace=default"})
	items("YAML", request{path: oddsPath, header: accept(yamlType)})
	watch := e.do(t, e.adminA, e.a, request{path: oddsPath + "?watch=1&timeoutSeconds=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"})
	events := json.NewDecoder(strings.NewReader(watch.body))
	events.UseNumber()
	for events.More() {
		var event struct {
			Type   string
			Object map[string]any
		}
		if err := events.Decode(&event); err != nil {
			t.Errorf("a watch: %v in %.500s", err, watch.body)
			break
		}
		if event.Type == "ADDED" {
			add("a watch", event.Object)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(lists["a list"])) {
		add("a get", decode("a get", e.do(t, e.adminA, e.a, request{path: oddsPath + "/" + name}).body, false))
		add("a cached get", decode("a cached get", e.do(t, e.adminA, e.a, request{path: oddsPath + "/" + name + "?resourceVersion=0"}).body, false))
		add("a pretty get", decode("a pretty get", e.do(t, e.adminA, e.a, request{path: oddsPath + "/" + name + "?pretty=1"}).body, false))
		add("a get of YAML", decode("a get of YAML", e.do(t, e.adminA, e.a, request{path: oddsPath + "/" + name, header: accept(yamlType)}).body, true))
	}
	want := lists["a list"]
	for reader, list := range lists {
		if strings.Contains(reader, "YAML") { // YAML writes numbers differently
			continue
		}
		if !reflect.DeepEqual(list, want) {
			t.Errorf("%s shows %.1500v\na list shows %.1500v", reader, list, want)
		}
	}
	if got := e.do(t, e.adminA, e.a, request{path: oddsPath, header: accept("application/cbor")}); got.status == http.StatusOK {
		var list map[string]any
		must(t, direct.Unmarshal([]byte(got.body), &list))
		items, _ := list["items"].([]any)
		for _, item := range items {
			metadata, _ := item.(map[string]any)["metadata"].(map[string]any)
			if annotations, _ := metadata["annotations"].(map[string]any); annotations["kcp.io/cluster"] != e.a {
				t.Errorf("CBOR shows %v", metadata)
			}
		}
		if len(items) != len(want) {
			t.Errorf("CBOR shows %d objects, a list %d", len(items), len(want))
		}
	} else if !isStockError(got.body) {
		t.Errorf("CBOR: %d %.300q", got.status, got.body)
	}
	const partial = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	for reader, r := range map[string]request{
		"metadata": {path: oddsPath, header: accept(partial)}, "metadata of a page": {path: oddsPath + "?limit=500", header: accept(partial)},
	} {
		items(reader, r)
		for name, object := range lists[reader] {
			whole, _ := want[name].(map[string]any)
			got := object.(map[string]any)["metadata"].(map[string]any)
			wanted, _ := whole["metadata"].(map[string]any)
			for _, field := range []string{"name", "namespace", "uid", "resourceVersion", "labels", "annotations", "finalizers", "deletionTimestamp"} {
				if !reflect.DeepEqual(got[field], wanted[field]) {
					t.Errorf("%s shows %s %v, a list %v", reader, field, got[field], wanted[field])
				}
			}
		}
	}
	if len(lists["metadata"]) != len(want) {
		t.Errorf("metadata shows %d objects, a list %d", len(lists["metadata"]), len(want))
	}
	wildcardList := e.do(t, e.masters, "*", request{path: "/apis/odd.example.com/v1/odds", header: accept(partial)})
	if strings.Contains(wildcardList.body, e.b) && strings.Contains(wildcardList.body, `"kcp.io/cluster":"`+e.b+`"`) {
		t.Errorf("the list of all clusters assigns an object to b: %.800s", wildcardList.body)
	}
	if got := e.do(t, e.adminA, e.a, request{path: oddsPath, header: accept("application/json;as=Table;g=meta.k8s.io;v=v1")}); got.status != http.StatusOK || strings.Count(got.body, `"cells"`) != len(want) {
		t.Errorf("a table: %d %.500s", got.status, got.body)
	}
}
