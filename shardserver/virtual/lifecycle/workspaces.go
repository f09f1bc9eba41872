package lifecycle

import (
	"fmt"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apis/registry"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/virtual"
)

// Config holds the dependencies of the virtual workspaces. All fields are required.
type Config struct {
	// Base is the configuration of the shard's API server before completion.
	Base *genericapiserver.Config
	// Registry reads logical clusters and workspace types.
	Registry *storage.Registry
	// Authorizer is the shard's whole authorization chain.
	Authorizer authorizer.UnconditionalAuthorizer
	// LogicalClusters and Status are the storages of the shard.
	LogicalClusters, Status rest.Storage
	// Serializer encodes errors.
	Serializer runtime.NegotiatedSerializer
}

// New returns the virtual workspaces of initializers and of terminators.
func New(cfg Config) ([]*virtual.Workspace, error) {
	var all []*virtual.Workspace
	for _, k := range []*ownerKind{initializing, terminating} {
		w, err := newWorkspace(cfg, k)
		if err != nil {
			return nil, fmt.Errorf("virtual workspace %q: %w", k.name, err)
		}
		all = append(all, w)
	}
	return all, nil
}

func newWorkspace(cfg Config, k *ownerKind) (*virtual.Workspace, error) {
	store, readable := cfg.LogicalClusters.(storage.Store)
	description, described := cfg.LogicalClusters.(virtual.Description)
	if !readable || !described {
		return nil, fmt.Errorf("the storage of logical clusters is %T, which is not that of a resource of the shard", cfg.LogicalClusters)
	}
	status, ok := cfg.Status.(statusStore)
	if !ok {
		return nil, fmt.Errorf("the storage of the status of logical clusters is %T, which cannot be written", cfg.Status)
	}
	clusters := &clusterStorage{Description: description, kind: k, store: store}
	group := genericapiserver.NewDefaultAPIGroupInfo(corev1alpha1.SchemeGroupVersion.Group, legacyscheme.Scheme, legacyscheme.ParameterCodec, legacyscheme.Codecs)
	group.NegotiatedSerializer = registry.WithoutProtobuf(cfg.Base.Serializer)
	group.VersionedResourcesStorageMap[corev1alpha1.SchemeGroupVersion.Version] = map[string]rest.Storage{
		logicalClusters.Resource:             clusters,
		logicalClusters.Resource + "/status": &statusStorage{clusters: clusters, status: status},
	}
	api, err := virtual.NewAPI(cfg.Base, k.name, &group)
	if err != nil {
		return nil, err
	}
	content := &contentHandler{
		kind:       k,
		clusters:   storage.NewReader[*corev1alpha1.LogicalCluster](cfg.Registry, logicalClusters),
		types:      storage.NewReader[*tenancyv1alpha1.WorkspaceType](cfg.Registry, tenancyv1alpha1.Resource("workspacetypes")).Global(),
		authorizer: cfg.Authorizer,
		serializer: cfg.Serializer,
	}
	return &virtual.Workspace{
		Name:       k.name,
		Resolve:    virtual.NewPathResolver(1),
		Authorizer: typeAuthorizer{kind: k, delegate: cfg.Authorizer},
		Handler: func(cluster http.Handler) http.Handler {
			return k.route(api, content.newHandler(cluster))
		},
		IsOpen: func(request virtual.Request, cluster *corev1alpha1.LogicalCluster) bool {
			return k.isPending(cluster, request.Owner[0])
		},
		Checks: k.newHealthChecks(cfg.LogicalClusters),
	}, nil
}

// route sends requests for LogicalCluster objects to api and requests for the content of a logical cluster to content.
func (k *ownerKind) route(api, content http.Handler) http.Handler {
	resourcePath := "/apis/" + corev1alpha1.SchemeGroupVersion.String() + "/" + logicalClusters.Resource
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		cluster, _ := logicalcluster.From(req.Context())
		path := req.URL.Path
		info, ok := request.RequestInfoFrom(req.Context())
		switch {
		case cluster.IsWildcard(), path == resourcePath, strings.HasPrefix(path, resourcePath+"/"):
			api.ServeHTTP(w, req)
		case k.ownDiscovery && ok && !info.IsResourceRequest && path != "/" && path != "/healthz":
			api.ServeHTTP(w, req)
		default:
			content.ServeHTTP(w, req)
		}
	})
}

// newHealthChecks returns the readiness checks of kcp's names, which all check the same storage.
func (k *ownerKind) newHealthChecks(store rest.Storage) []healthz.HealthChecker {
	check := func(*http.Request) error {
		if storage, ok := store.(interface{ ReadinessCheck() error }); ok {
			return storage.ReadinessCheck()
		}
		return nil
	}
	var checks []healthz.HealthChecker
	for _, part := range []string{"wildcard-logicalclusters", "logicalclusters", "workspace-content"} {
		checks = append(checks, healthz.NamedCheck(k.name+"-"+part, check))
	}
	return checks
}
