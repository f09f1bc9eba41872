package crdstorage_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	stock "k8s.io/apiextensions-apiserver/pkg/apiserver"
	informers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	listers "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/feature"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/tools/cache"

	"github.com/atoll-dev/atoll/internal/embeddedetcd"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/customresources/crdstorage"
	clusterstorage "github.com/atoll-dev/atoll/shardserver/storage"
)

// storageConfig is the etcd that all tests of the package share; each uses a resource of its own. It starts for the first
// test that needs it: fuzzing does not.
var storageConfig = sync.OnceValue(startBackend)

// stopBackend stops the etcd of the tests.
var stopBackend = func() {}

func TestMain(m *testing.M) {
	code := m.Run()
	stopBackend()
	os.Exit(code)
}

func startBackend() storagebackend.Config {
	directory, err := os.MkdirTemp("", "raw")
	if err != nil {
		panic(err)
	}
	server, err := embeddedetcd.Start(context.Background(), embeddedetcd.Config{Directory: directory, UnsafeNoFsync: true, WALSizeBytes: 5000})
	if err != nil {
		panic(err)
	}
	config := *storagebackend.NewDefaultConfig("/registry", nil)
	config.Transport.ServerList = []string{server.Endpoint}
	config.Transport.TrustedCAFile, config.Transport.CertFile, config.Transport.KeyFile = server.CAFile, server.CertFile, server.KeyFile
	config.CompactionInterval = 0
	// The upstream libraries detect the features of etcd once per process, with the first client. In a shard that
	// client is not closed, nor is it here.
	first, release, err := crdstorage.NewPool(crdstorage.Options{Storage: config, WatchCache: true}).Acquire(widgetsResource("first.example.io"), "customresources")
	if err != nil {
		panic(err)
	}
	for !feature.DefaultFeatureSupportChecker.Supports(storage.RequestWatchProgress) {
		if _, err := first.Store().List(logicalcluster.With(context.Background(), logicalcluster.Root), nil); err != nil {
			panic(err)
		}
	}
	stopBackend = func() {
		release()
		server.Close()
		_ = os.RemoveAll(directory)
	}
	return config
}

func newOptions() crdstorage.Options {
	return crdstorage.Options{Storage: storageConfig(), WatchCache: true, DeleteCollectionWorkers: 1}
}

// newEtcdClient returns a client of the etcd of the servers.
func newEtcdClient(t testing.TB) *clientv3.Client {
	t.Helper()
	transportConfig := storageConfig().Transport
	tls, err := transport.TLSInfo{CertFile: transportConfig.CertFile, KeyFile: transportConfig.KeyFile, TrustedCAFile: transportConfig.TrustedCAFile}.ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: transportConfig.ServerList, TLS: tls})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// newDefinition returns a definition of widgets of a group, in the version v1 unless changed.
func newDefinition(group string, change ...func(*apiextensionsv1.CustomResourceDefinition)) *apiextensionsv1.CustomResourceDefinition {
	names := apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList"}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	crd.Name, crd.UID = "widgets."+group, types.UID(group)
	crd.Spec = apiextensionsv1.CustomResourceDefinitionSpec{
		Group: group, Names: names, Scope: apiextensionsv1.NamespaceScoped,
		Conversion: &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter},
		Versions:   []apiextensionsv1.CustomResourceDefinitionVersion{newVersion("v1", "")},
	}
	crd.Spec.Versions[0].Storage = true
	crd.Status.AcceptedNames = names
	for _, condition := range []apiextensionsv1.CustomResourceDefinitionConditionType{apiextensionsv1.NamesAccepted, apiextensionsv1.Established} {
		crd.Status.Conditions = append(crd.Status.Conditions, apiextensionsv1.CustomResourceDefinitionCondition{Type: condition, Status: apiextensionsv1.ConditionTrue})
	}
	for _, c := range change {
		c(crd)
	}
	return crd
}

// newVersion returns a version with a schema of color, count and, if a default for it is given, size.
func newVersion(name, size string) apiextensionsv1.CustomResourceDefinitionVersion {
	spec := apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
		"color": {Type: "string"}, "count": {Type: "integer"}, "ratio": {Type: "number"}, "note": {Type: "string"},
	}}
	if size != "" {
		spec.Properties["size"] = apiextensionsv1.JSONSchemaProps{Type: "string", Default: &apiextensionsv1.JSON{Raw: []byte(fmt.Sprintf("%q", size))}}
	}
	return apiextensionsv1.CustomResourceDefinitionVersion{
		Name: name, Served: true,
		Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
			Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": spec, "status": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"phase": {Type: "string"}}}},
		}},
		Subresources:     &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
		SelectableFields: []apiextensionsv1.SelectableField{{JSONPath: ".spec.color"}},
	}
}

// staticInformer is the informer of one definition.
type staticInformer struct {
	cache.SharedIndexInformer
	crd *apiextensionsv1.CustomResourceDefinition
}

var _ informers.CustomResourceDefinitionInformer = staticInformer{}

func (s staticInformer) Informer() cache.SharedIndexInformer            { return s }
func (s staticInformer) Lister() listers.CustomResourceDefinitionLister { return s }
func (s staticInformer) AddEventHandler(cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return nil, nil
}
func (s staticInformer) List(labels.Selector) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	return []*apiextensionsv1.CustomResourceDefinition{s.crd}, nil
}
func (s staticInformer) Get(string) (*apiextensionsv1.CustomResourceDefinition, error) {
	return s.crd, nil
}

// newStockHandler returns the upstream handler of custom resources for one definition.
func newStockHandler(t testing.TB, crd *apiextensionsv1.CustomResourceDefinition, options generic.RESTOptionsGetter) http.Handler {
	t.Helper()
	h, err := stock.NewCustomResourceDefinitionHandler(nil, nil, staticInformer{crd: crd}, http.NotFoundHandler(), options, admission.NewChainHandler(),
		nil, webhook.NewDefaultServiceResolver(), nil, 1, authorizerfactory.NewAlwaysAllowAuthorizer(), time.Minute, 30*time.Minute, nil, 3<<20)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.GetCustomResourceListerCollectionDeleter(crd); err != nil {
		t.Fatal(err)
	}
	return h
}

// stockRESTOptions store unstructured objects, each version with a watch cache of its own.
type stockRESTOptions struct{ t testing.TB }

func (o stockRESTOptions) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	base := storageConfig()
	config := base.ForResource(resource)
	config.Codec = unstructured.UnstructuredJSONScheme
	return generic.RESTOptions{
		StorageConfig: config, Decorator: o.decorate, DeleteCollectionWorkers: 1,
		ResourcePrefix: resource.Group + "/" + resource.Resource + "/customresources",
	}, nil
}

// decorate closes the storage with the test; the upstream handler keeps it until the end of the process.
func (o stockRESTOptions) decorate(config *storagebackend.ConfigForResource, prefix string, key func(runtime.Object) (string, error),
	newFunc, newListFunc func() runtime.Object, attrs storage.AttrFunc, trigger storage.IndexerFuncs, indexers *cache.Indexers,
) (storage.Interface, factory.DestroyFunc, error) {
	store, destroy, err := clusterstorage.WithCache(clusterstorage.CacheOptions{})(config, prefix, key, newFunc, newListFunc, attrs, trigger, indexers)
	if err == nil {
		o.t.Cleanup(destroy)
	}
	return store, destroy, err
}

// contentHandler serves one definition from a storage.
type contentHandler struct {
	views *crdstorage.Views
	reads *crdstorage.ReadHandler
	stock http.Handler
}

func newContentHandler(t testing.TB, storage *crdstorage.Storage, crd *apiextensionsv1.CustomResourceDefinition) *contentHandler {
	t.Helper()
	views := storage.Views()
	t.Cleanup(views.Close)
	return &contentHandler{views: views, stock: newStockHandler(t, crd, views), reads: crdstorage.NewReadHandler(views, crd, 30*time.Minute)}
}

// ServeHTTP sets a header if the reads of this package served the request.
func (c *contentHandler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	w.Header().Set(fastHeader, "true")
	if !c.reads.Serve(w, req) {
		w.Header().Set(fastHeader, "false")
		c.stock.ServeHTTP(w, req)
	}
}

const fastHeader = "X-Fast"

// server serves any number of handlers, each at its own path: /<name>/clusters/<cluster>/apis/...
type server struct {
	*httptest.Server
	mu       sync.Mutex
	handlers map[string]http.Handler
}

func newServer(t testing.TB) *server {
	t.Helper()
	s := &server{handlers: map[string]http.Handler{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

func (s *server) handle(name string, handler http.Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handlers[name] = filters.WithRequestInfo(handler, &request.RequestInfoFactory{APIPrefixes: sets.NewString("apis"), GrouplessAPIPrefixes: sets.NewString()})
}

// ServeHTTP finds handler and logical cluster.
func (s *server) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	parts := strings.SplitN(req.URL.Path, "/", 5)
	if len(parts) < 5 {
		http.NotFound(w, req)
		return
	}
	cluster := logicalcluster.Wildcard
	if parts[3] != "*" {
		cluster = logicalcluster.MustParseName(parts[3])
	}
	s.mu.Lock()
	handler := s.handlers[parts[1]]
	s.mu.Unlock()
	req = req.WithContext(audit.WithAuditContext(logicalcluster.With(req.Context(), cluster)))
	req.URL.Path = "/" + parts[4]
	handler.ServeHTTP(w, req)
}

// newStorage opens a storage that is closed and emptied with the test.
func newStorage(t testing.TB, resource schema.GroupResource) *crdstorage.Storage {
	t.Helper()
	cleanupStorage(t, resource)
	return openStorage(t, resource)
}

// openStorage opens a storage without removing its objects.
func openStorage(t testing.TB, resource schema.GroupResource) *crdstorage.Storage {
	t.Helper()
	storage, release, err := crdstorage.NewPool(newOptions()).Acquire(resource, "customresources")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return storage
}

// cleanupStorage removes all objects of a resource at the end of the test.
func cleanupStorage(t testing.TB, resource schema.GroupResource) {
	t.Helper()
	client := newEtcdClient(t)
	t.Cleanup(func() {
		if _, err := client.Delete(context.Background(), "/registry/"+resource.Group+"/", clientv3.WithPrefix()); err != nil {
			t.Error(err)
		}
	})
}

func widgetsResource(group string) schema.GroupResource {
	return schema.GroupResource{Group: group, Resource: "widgets"}
}

// response is the response to a request.
type response struct {
	code      int
	fromReads bool
	header    http.Header
	body      string
}

// do sends a request to /<path>, with a body if it is not empty.
func (s *server) do(t testing.TB, method, path, accept, body string) response {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	switch method {
	case http.MethodPatch:
		req.Header.Set("Content-Type", "application/merge-patch+json")
	case http.MethodPost, http.MethodPut, http.MethodDelete:
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode == http.StatusTooManyRequests { // the watch cache of the upstream handler is not filled yet
		time.Sleep(10 * time.Millisecond)
		return s.do(t, method, path, accept, body)
	}
	return response{code: res.StatusCode, fromReads: res.Header.Get(fastHeader) == "true", header: res.Header, body: string(data)}
}

// mustDo is do for requests that must succeed; it returns the object.
func (s *server) mustDo(t testing.TB, method, path, body string) *unstructured.Unstructured {
	t.Helper()
	res := s.do(t, method, path, "", body)
	if res.code/100 != 2 {
		t.Fatalf("%s %s: %d %s", method, path, res.code, res.body)
	}
	obj := &unstructured.Unstructured{Object: map[string]any{}}
	if err := json.Unmarshal([]byte(res.body), &obj.Object); err != nil {
		t.Fatal(err)
	}
	return obj
}

// newWidgetJSON returns the body of a create request.
func newWidgetJSON(group, version, name string, labels map[string]string, spec string) string {
	var buffer bytes.Buffer
	l, _ := json.Marshal(labels)
	fmt.Fprintf(&buffer, `{"apiVersion":"%s/%s","kind":"Widget","metadata":{"name":%q,"labels":%s},"spec":%s}`, group, version, name, l, spec)
	return buffer.String()
}

func ptrTo[T any](value T) *T { return &value }

// withWarnings adds a recorder of warnings to requests.
func withWarnings(handler http.Handler) http.Handler { return filters.WithWarningRecorder(handler) }

// unstructuredString returns a string field of an object.
func unstructuredString(content map[string]any, path ...string) (string, bool, error) {
	return unstructured.NestedString(content, path...)
}
