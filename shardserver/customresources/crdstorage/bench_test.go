package crdstorage_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// benchObjects is how many objects of 160 fields the benchmarks work with.
const benchObjects = 1000

// wide is a definition with a schema of 160 fields in nested objects.
func wide(group string) *apiextensionsv1.CustomResourceDefinition {
	return definition(group, func(crd *apiextensionsv1.CustomResourceDefinition) {
		part := apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{}}
		for i := range 16 {
			part.Properties[fmt.Sprintf("field%02d", i)] = apiextensionsv1.JSONSchemaProps{Type: "string"}
		}
		spec := apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{}}
		for i := range 10 {
			spec.Properties[fmt.Sprintf("part%d", i)] = part
		}
		crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"] = spec
		crd.Spec.Versions[0].SelectableFields = nil
	})
}

func wideSpec(seed int) string {
	parts := make([]string, 0, 10)
	for p := range 10 {
		fields := make([]string, 0, 16)
		for f := range 16 {
			fields = append(fields, fmt.Sprintf(`"field%02d":"value %d of %d"`, f, p*f, seed))
		}
		parts = append(parts, fmt.Sprintf(`"part%d":{%s}`, p, strings.Join(fields, ",")))
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// fill creates the objects of a benchmark and returns the path of the list.
func fill(b *testing.B, group string) (path string) {
	b.Helper()
	s := newServer(b)
	s.handle("ours", newContent(b, acquire(b, widgets(group)), wide(group)))
	path = "/apis/" + group + "/v1/namespaces/default/widgets"
	for i := range benchObjects {
		s.must(b, http.MethodPost, "/ours/clusters/one"+path, widget(group, "v1", fmt.Sprintf("w%d", i), map[string]string{"app": "bench"}, wideSpec(i)))
	}
	return path
}

// servers are what is compared.
func servers(group string) map[string]func(b *testing.B) http.Handler {
	return map[string]func(b *testing.B) http.Handler{
		"raw":   func(b *testing.B) http.Handler { return newContent(b, open(b, widgets(group)), wide(group)) },
		"stock": func(b *testing.B) http.Handler { return handler(b, wide(group), stockOptions{b}) },
	}
}

// discard is a response that only counts.
type discard struct {
	header http.Header
	code   int
	bytes  int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(code int)        { d.code = code }
func (d *discard) Write(p []byte) (int, error) { d.bytes += len(p); return len(p), nil }

// get serves one request without a network.
func get(b *testing.B, handler http.Handler, path, accept string) *discard {
	b.Helper()
	req := httptest.NewRequest(http.MethodGet, path, nil)
	req = req.WithContext(logicalcluster.With(req.Context(), logicalcluster.MustParseName("one")))
	req.Header.Set("Accept", accept)
	w := &discard{header: http.Header{}}
	handler.ServeHTTP(w, req)
	if w.code == http.StatusTooManyRequests { // the watch cache fills
		time.Sleep(time.Millisecond)
		return get(b, handler, path, accept)
	}
	if w.code != http.StatusOK {
		b.Fatalf("%s: %d", path, w.code)
	}
	return w
}

func routed(handler http.Handler) http.Handler {
	return filters.WithRequestInfo(handler, &request.RequestInfoFactory{APIPrefixes: sets.NewString("apis"), GrouplessAPIPrefixes: sets.NewString()})
}

// BenchmarkReads compares reads with those of the stock handler: lists of 1000 objects and single objects.
func BenchmarkReads(b *testing.B) {
	const group = "bench-reads.example.io"
	path := fill(b, group)
	for request, tc := range map[string]struct{ query, accept string }{
		"list":            {},
		"list from cache": {query: "?resourceVersion=0"},
		"list by label":   {query: "?labelSelector=app%3Dnone"},
		"list as table":   {accept: tableJSON},
		"list metadata":   {accept: metadataListJSON},
		"page of 100":     {query: "?limit=100"},
		"get":             {query: "/w7"},
		"get from cache":  {query: "/w7?resourceVersion=0"},
		"get as table":    {query: "/w7", accept: tableJSON},
	} {
		for name, start := range servers(group) {
			b.Run(request+"/"+name, func(b *testing.B) {
				h := routed(start(b))
				size := get(b, h, path+tc.query, tc.accept).bytes
				get(b, h, path, "")
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					get(b, h, path+tc.query, tc.accept)
				}
			})
		}
	}
}

// BenchmarkMemory reports what an object costs in the watch cache, in bytes and as a multiple of its JSON: as cached,
// and once it was read.
func BenchmarkMemory(b *testing.B) {
	const group = "bench-memory.example.io"
	path := fill(b, group)
	heap := func() float64 {
		for range 3 {
			goruntime.GC()
		}
		var stats goruntime.MemStats
		goruntime.ReadMemStats(&stats)
		return float64(stats.HeapAlloc)
	}
	for name, start := range servers(group) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				before := heap()
				h := routed(start(b))
				size := float64(get(b, h, path+"?limit=1000", "").bytes) // at a consistent version: the cache is full
				cached := heap() - before
				get(b, h, path+"?resourceVersion=0", "")
				read := heap() - before
				b.ReportMetric(cached/benchObjects, "B/object")
				b.ReportMetric(cached/size, "x-JSON")
				b.ReportMetric(read/size, "x-JSON-after-read")
				goruntime.KeepAlive(h)
			}
		})
	}
}
