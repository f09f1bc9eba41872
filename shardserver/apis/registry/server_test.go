package registry_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	apiextensionsopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/client-go/dynamic"
	restclient "k8s.io/client-go/rest"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/core/install" // ListOptions and the like, as in every server
	generatedopenapi "k8s.io/kubernetes/pkg/generated/openapi"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/internal/embeddedetcd"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apis/apis"
	"github.com/atoll-dev/atoll/shardserver/apis/core"
	kcpopenapi "github.com/atoll-dev/atoll/shardserver/apis/openapi"
	"github.com/atoll-dev/atoll/shardserver/apis/registry"
	"github.com/atoll-dev/atoll/shardserver/apis/tenancy"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

var (
	logicalClusters = corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters")
	shards          = corev1alpha1.SchemeGroupVersion.WithResource("shards")
	workspaces      = tenancyv1alpha1.SchemeGroupVersion.WithResource("workspaces")
	workspaceTypes  = tenancyv1alpha1.SchemeGroupVersion.WithResource("workspacetypes")
	apiExports      = apisv1alpha2.SchemeGroupVersion.WithResource("apiexports")
	apiBindings     = apisv1alpha2.SchemeGroupVersion.WithResource("apibindings")
	apiExportsV1    = apisv1alpha1.SchemeGroupVersion.WithResource("apiexports")
	apiBindingsV1   = apisv1alpha1.SchemeGroupVersion.WithResource("apibindings")
	apiSchemas      = apisv1alpha1.SchemeGroupVersion.WithResource("apiresourceschemas")
	apiSlices       = apisv1alpha1.SchemeGroupVersion.WithResource("apiexportendpointslices")
	apiConversions  = apisv1alpha1.SchemeGroupVersion.WithResource("apiconversions")
)

// serverURL is the URL of the server of this package's tests, which serves kcp's kinds only, with the stock handlers
// and the shard's storage. Each test uses its own logical clusters.
var serverURL string

func TestMain(m *testing.M) {
	code, err := runWithServer(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runWithServer(run func() int) (int, error) {
	dir, err := os.MkdirTemp("", "registry-test-")
	if err != nil {
		return 1, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	store, err := embeddedetcd.Start(context.Background(), embeddedetcd.Config{Directory: dir, UnsafeNoFsync: true, WALSizeBytes: 5000})
	if err != nil {
		return 1, fmt.Errorf("starting etcd: %w", err)
	}
	defer store.Close()
	server, err := newServer(store)
	if err != nil {
		return 1, err
	}
	defer server.Destroy()
	httpServer := httptest.NewServer(withClusterPath(server.Handler))
	defer httpServer.Close()
	serverURL = httpServer.URL
	return run(), nil
}

func newServer(store *embeddedetcd.Server) (*genericapiserver.GenericAPIServer, error) {
	config := genericapiserver.NewConfig(legacyscheme.Codecs)
	config.EffectiveVersion = basecompatibility.NewEffectiveVersionFromString("1.37", "", "")
	config.ExternalAddress = "localhost:443"
	config.PublicAddress = net.IPv4(127, 0, 0, 1)
	config.LoopbackClientConfig = &restclient.Config{}
	config.Authorization.Authorizer = authorizerfactory.NewAlwaysAllowAuthorizer()
	definitions := func(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
		all := generatedopenapi.GetOpenAPIDefinitions(ref)
		maps.Copy(all, apiextensionsopenapi.GetOpenAPIDefinitions(ref))
		maps.Copy(all, kcpopenapi.GetOpenAPIDefinitions(ref))
		return all
	}
	namer := openapinamer.NewDefinitionNamer(legacyscheme.Scheme)
	config.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(definitions, namer)
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(definitions, namer)
	config.OpenAPIConfig.GetDefinitionName = kcpopenapi.WithoutInternal(namer.GetDefinitionName)
	config.OpenAPIV3Config.GetDefinitionName = config.OpenAPIConfig.GetDefinitionName

	server, err := config.Complete(nil).New("registry-test", genericapiserver.NewEmptyDelegate())
	if err != nil {
		return nil, fmt.Errorf("creating the server: %w", err)
	}
	for _, group := range []struct {
		name     string
		storages storagesFunc
	}{
		{corev1alpha1.GroupName, asV1alpha1(core.Storages)},
		{tenancyv1alpha1.GroupName, asV1alpha1(tenancy.Storages)},
		{apisv1alpha2.GroupName, apis.Storages},
	} {
		storages, err := group.storages(restOptions{store})
		if err != nil {
			return nil, err
		}
		info := genericapiserver.NewDefaultAPIGroupInfo(group.name, legacyscheme.Scheme, legacyscheme.ParameterCodec, legacyscheme.Codecs)
		info.NegotiatedSerializer = registry.WithoutProtobuf(legacyscheme.Codecs)
		info.VersionedResourcesStorageMap = storages
		if err := server.InstallAPIGroup(&info); err != nil {
			return nil, fmt.Errorf("installing %s: %w", group.name, err)
		}
	}
	server.PrepareRun() // installs OpenAPI
	return server, nil
}

// storagesFunc returns stores by version and resource.
type storagesFunc = func(generic.RESTOptionsGetter) (map[string]map[string]rest.Storage, error)

func asV1alpha1(storages func(generic.RESTOptionsGetter) (map[string]rest.Storage, error)) storagesFunc {
	return func(getter generic.RESTOptionsGetter) (map[string]map[string]rest.Storage, error) {
		stores, err := storages(getter)
		return map[string]map[string]rest.Storage{"v1alpha1": stores}, err
	}
}

// restOptions stores a resource as a shard does: as JSON, with the logical cluster in key and object.
type restOptions struct{ etcd *embeddedetcd.Server }

func (o restOptions) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	version := "v1alpha1"
	if resource == apiExports.GroupResource() || resource == apiBindings.GroupResource() {
		version = apiExports.Version
	}
	codec := legacyscheme.Codecs.LegacyCodec(schema.GroupVersion{Group: resource.Group, Version: version})
	config := storagebackend.NewDefaultConfig("/registry", codec)
	config.Transport.ServerList = []string{o.etcd.Endpoint}
	config.Transport.TrustedCAFile, config.Transport.CertFile, config.Transport.KeyFile = o.etcd.CAFile, o.etcd.CertFile, o.etcd.KeyFile
	return generic.RESTOptions{
		StorageConfig:  config.ForResource(resource),
		Decorator:      storage.WithCache(storage.CacheOptions{}),
		ResourcePrefix: resource.Group + "/" + resource.Resource,
	}, nil
}

// withClusterPath resolves /clusters/<name>/... like the shard's filter.
func withClusterPath(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		name, path, _ := strings.Cut(strings.TrimPrefix(req.URL.Path, "/clusters/"), "/")
		cluster := logicalcluster.Wildcard
		if name != "*" {
			cluster = logicalcluster.MustParseName(name)
		}
		req = req.Clone(logicalcluster.With(req.Context(), cluster))
		req.URL.Path, req.RequestURI = "/"+path, ""
		next.ServeHTTP(w, req)
	})
}

var clusterCounter atomic.Int64

// newClusterName returns a new logical cluster, also when tests are repeated.
func newClusterName(prefix string) string { return fmt.Sprintf("%s-%d", prefix, clusterCounter.Add(1)) }

func newClient(t *testing.T, cluster string) dynamic.Interface {
	t.Helper()
	client, err := dynamic.NewForConfig(&restclient.Config{Host: serverURL + "/clusters/" + cluster, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// newObject returns an object of the resource; fields has the keys "spec" and so on.
func newObject(resource schema.GroupVersionResource, name string, fields map[string]any) *unstructured.Unstructured {
	kinds := map[string]string{"logicalclusters": "LogicalCluster", "shards": "Shard", "workspaces": "Workspace", "workspacetypes": "WorkspaceType",
		"apiexports": "APIExport", "apibindings": "APIBinding", "apiresourceschemas": "APIResourceSchema", "apiexportendpointslices": "APIExportEndpointSlice", "apiconversions": "APIConversion"}
	obj := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(fields)}
	if obj.Object == nil {
		obj.Object = map[string]any{}
	}
	obj.SetAPIVersion(resource.GroupVersion().String())
	obj.SetKind(kinds[resource.Resource])
	obj.SetName(name)
	return obj
}

func createObject(t *testing.T, client dynamic.ResourceInterface, obj *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	created, err := client.Create(t.Context(), obj, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created
}
