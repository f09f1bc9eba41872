// Package apiresourceschema holds the virtual workspace in which consumers read the APIResourceSchemas of the APIs that
// they have bound. The schemas are in the workspaces of the providers, to which consumers have no access.
package apiresourceschema

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	"github.com/atoll-dev/atoll/shardserver/apis/registry"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/virtual"
)

// name is the name of the virtual workspace and of its readiness check.
const name = "apiresourceschema"

// auditKey is the prefix of the audit annotations with the decision.
const auditKey = "virtual.apiresourceschema.authorization.kcp.io"

const (
	reasonGranted = "access granted"
	reasonDenied  = "access denied"
)

// errAuthorizationFailed results in a response with status 500.
var errAuthorizationFailed = errors.New("the request cannot be authorized now")

// Config holds the dependencies of the virtual workspace. All fields are required.
type Config struct {
	// Base is the configuration of the shard's API server before completion.
	Base *genericapiserver.Config
	// Registry reads bindings.
	Registry *storage.Registry
	// Exports returns exports and schemas.
	Exports Exports
	// Schemas is the storage of schemas of the shard.
	Schemas rest.Storage
	// Authorizer is the shard's whole authorization chain.
	Authorizer authorizer.UnconditionalAuthorizer
	// Serializer encodes errors.
	Serializer runtime.NegotiatedSerializer
}

// Exports returns exports and schemas, as *apiindex.Resolver does. Methods return a Kubernetes NotFound error for an
// object that does not exist.
type Exports interface {
	Get(ctx context.Context, export bindings.ExportKey) (*apisv1alpha2.APIExport, error)
	GetSchema(ctx context.Context, cluster logicalcluster.Name, name string) (*apisv1alpha1.APIResourceSchema, error)
}

// New returns the virtual workspace.
func New(cfg Config) (*virtual.Workspace, error) {
	description, ok := cfg.Schemas.(virtual.Description)
	if !ok {
		return nil, fmt.Errorf("the storage of schemas is %T, which is not that of a resource of the shard", cfg.Schemas)
	}
	store := &schemaStorage{
		Description: description,
		registry:    cfg.Registry,
		exports:     cfg.Exports,
		bindings:    storage.NewReader[*apisv1alpha2.APIBinding](cfg.Registry, apisv1alpha2.Resource("apibindings")),
	}
	group := genericapiserver.NewDefaultAPIGroupInfo(apisv1alpha1.SchemeGroupVersion.Group, legacyscheme.Scheme, legacyscheme.ParameterCodec, legacyscheme.Codecs)
	group.PrioritizedVersions = []schema.GroupVersion{apisv1alpha1.SchemeGroupVersion}
	group.NegotiatedSerializer = registry.WithoutProtobuf(cfg.Base.Serializer)
	group.VersionedResourcesStorageMap[apisv1alpha1.SchemeGroupVersion.Version] = map[string]rest.Storage{schemas.Resource: store}
	api, err := virtual.NewAPI(cfg.Base, name, &group)
	if err != nil {
		return nil, err
	}
	return &virtual.Workspace{
		Name:       name,
		Resolve:    resolve,
		Authorizer: bindingReaderAuthorizer{cfg.Authorizer},
		Handler:    func(http.Handler) http.Handler { return requireBindings(api, store, cfg.Serializer) },
		Checks: []healthz.HealthChecker{healthz.NamedCheck(name, func(*http.Request) error {
			_, err := cfg.Registry.Get(schemas)
			return err
		})},
	}, nil
}

// resolve parses "<cluster of the consumer>/[clusters/<*|the same>/]<path>".
func resolve(path string) (virtual.Request, bool) {
	consumer, rest, _ := strings.Cut(path, "/")
	cluster, err := logicalcluster.ParseName(consumer)
	if err != nil || cluster.IsWildcard() {
		return virtual.Request{}, false
	}
	if clusterPath, ok := strings.CutPrefix(rest, "clusters/"); ok {
		clusterName, remainder, _ := strings.Cut(clusterPath, "/")
		if clusterName != consumer && clusterName != logicalcluster.Wildcard.String() {
			return virtual.Request{}, false
		}
		rest = remainder
	}
	return virtual.Request{Owner: []string{consumer}, Cluster: cluster, Path: "/" + rest}, true
}

// requireBindings responds with 404 to all requests if the logical cluster has no bound bindings.
func requireBindings(api http.Handler, store *schemaStorage, serializer runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		bound, err := store.listBoundBindings(req.Context())
		if err == nil && len(bound) == 0 {
			err = apierrors.NewGenericServerResponse(http.StatusNotFound, strings.ToLower(req.Method), schemas, "", "", 0, true)
		}
		if err != nil {
			responsewriters.ErrorNegotiated(err, serializer, schema.GroupVersion{}, w, req)
			return
		}
		api.ServeHTTP(w, req)
	})
}

// bindingReaderAuthorizer allows users who may get bindings in the logical cluster of the consumer, to which they need
// access.
type bindingReaderAuthorizer struct {
	delegate authorizer.UnconditionalAuthorizer
}

// Authorize implements authorizer.UnconditionalAuthorizer.
func (r bindingReaderAuthorizer) Authorize(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	allowed, reason, err := r.authorizeRead(ctx, attributes)
	decision, publicReason := authorizer.DecisionDeny, reasonDenied
	auditDecision := "Denied"
	if allowed {
		decision, publicReason, auditDecision = authorizer.DecisionAllow, reasonGranted, "Allowed"
	}
	audit.AddAuditAnnotations(ctx, auditKey+"/decision", auditDecision, auditKey+"/reason", reason)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to authorize a request to the virtual workspace of schemas", "path", attributes.GetPath())
		return decision, publicReason, errAuthorizationFailed
	}
	return decision, publicReason, nil
}

func (r bindingReaderAuthorizer) authorizeRead(ctx context.Context, attributes authorizer.Attributes) (allowed bool, reason string, err error) {
	if !slices.Contains([]string{"get", "list", "watch"}, attributes.GetVerb()) {
		return false, fmt.Sprintf("%s is not reading", attributes.GetVerb()), nil
	}
	// The context carries the logical cluster of the consumer.
	decision, reason, err := r.delegate.Authorize(ctx, authorizer.AttributesRecord{
		User:            attributes.GetUser(),
		Verb:            "get",
		APIGroup:        apisv1alpha2.SchemeGroupVersion.Group,
		APIVersion:      apisv1alpha2.SchemeGroupVersion.Version,
		Resource:        "apibindings",
		ResourceRequest: true,
	})
	return decision == authorizer.DecisionAllow && err == nil, "get apibindings: " + reason, err
}
