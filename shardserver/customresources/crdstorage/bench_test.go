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

// benchObjects is the number of objects of 160 fields in the benchmarks.
const benchObjects = 1000

// newWideDefinition is a definition with a schema of 160 fields in nested objects.
func newWideDefinition(group string) *apiextensionsv1.CustomResourceDefinition {
	return newDefinition(group, func(crd *apiextensionsv1.CustomResourceDefinition) {
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

func newWideSpec(seed int) string {
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

// createBenchObjects creates the objects of a benchmark and returns the path of the list.
func createBenchObjects(b *testing.B, group string) (path string) {
	b.Helper()
	s := newServer(b)
	s.handle("ours", newContentHandler(b, newStorage(b, widgetsResource(group)), newWideDefinition(group)))
	path = "/apis/" + group + "/v1/namespaces/default/widgets"
	for i := range benchObjects {
		s.mustDo(b, http.MethodPost, "/ours/clusters/one"+path, newWidgetJSON(group, "v1", fmt.Sprintf("w%d", i), map[string]string{"app": "bench"}, newWideSpec(i)))
	}
	return path
}

// handlerFactories create the compared handlers.
func handlerFactories(group string) map[string]func(b *testing.B) http.Handler {
	return map[string]func(b *testing.B) http.Handler{
		"raw": func(b *testing.B) http.Handler {
			return newContentHandler(b, openStorage(b, widgetsResource(group)), newWideDefinition(group))
		},
		"stock": func(b *testing.B) http.Handler {
			return newStockHandler(b, newWideDefinition(group), stockRESTOptions{b})
		},
	}
}

// discardWriter is a response writer that only counts bytes.
type discardWriter struct {
	header http.Header
	status int
	bytes  int
}

func (d *discardWriter) Header() http.Header         { return d.header }
func (d *discardWriter) WriteHeader(code int)        { d.status = code }
func (d *discardWriter) Write(p []byte) (int, error) { d.bytes += len(p); return len(p), nil }

// getOK serves one request without a network.
func getOK(b *testing.B, handler http.Handler, path, accept string) *discardWriter {
	b.Helper()
	req := httptest.NewRequest(http.MethodGet, path, nil)
	req = req.WithContext(logicalcluster.With(req.Context(), logicalcluster.MustParseName("one")))
	req.Header.Set("Accept", accept)
	w := &discardWriter{header: http.Header{}}
	handler.ServeHTTP(w, req)
	if w.status == http.StatusTooManyRequests { // the watch cache is not filled yet
		time.Sleep(time.Millisecond)
		return getOK(b, handler, path, accept)
	}
	if w.status != http.StatusOK {
		b.Fatalf("%s: %d", path, w.status)
	}
	return w
}

func withRequestInfo(handler http.Handler) http.Handler {
	return filters.WithRequestInfo(handler, &request.RequestInfoFactory{APIPrefixes: sets.NewString("apis"), GrouplessAPIPrefixes: sets.NewString()})
}

// BenchmarkReads compares reads with those of the upstream handler: lists of 1000 objects and single objects.
func BenchmarkReads(b *testing.B) {
	const group = "bench-reads.example.io"
	path := createBenchObjects(b, group)
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
		for name, start := range handlerFactories(group) {
			b.Run(request+"/"+name, func(b *testing.B) {
				h := withRequestInfo(start(b))
				size := getOK(b, h, path+tc.query, tc.accept).bytes
				getOK(b, h, path, "")
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					getOK(b, h, path+tc.query, tc.accept)
				}
			})
		}
	}
}

// BenchmarkMemory reports the memory of an object in the watch cache, in bytes and as a multiple of its JSON, before
// and after its first read.
func BenchmarkMemory(b *testing.B) {
	const group = "bench-memory.example.io"
	path := createBenchObjects(b, group)
	heap := func() float64 {
		for range 3 {
			goruntime.GC()
		}
		var stats goruntime.MemStats
		goruntime.ReadMemStats(&stats)
		return float64(stats.HeapAlloc)
	}
	for name, start := range handlerFactories(group) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				before := heap()
				h := withRequestInfo(start(b))
				size := float64(getOK(b, h, path+"?limit=1000", "").bytes) // a consistent read, after which the cache is filled
				cached := heap() - before
				getOK(b, h, path+"?resourceVersion=0", "")
				read := heap() - before
				b.ReportMetric(cached/benchObjects, "B/object")
				b.ReportMetric(cached/size, "x-JSON")
				b.ReportMetric(read/size, "x-JSON-after-read")
				goruntime.KeepAlive(h)
			}
		})
	}
}
