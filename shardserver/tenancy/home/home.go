// Package home serves GET workspaces/~ in root: it returns the home workspace of the user and creates it on the first
// request. A home workspace has no Workspace object and no parent: the name of its logical cluster is derived from the
// user name, and its path is "user:<name>" if that is a path. The path of a user name with a colon would be that of a
// workspace in another user's home.
//
// Initialization of home workspaces belongs to package tenancy, access to them to package authorization.
package home

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/authorization"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/tenancy/workspacetype"
)

const (
	// name is the object name that stands for the home workspace of the requesting user.
	name = "~"
	// typeName is the type of home workspaces, in root.
	typeName = "home"
	// creationTimeout is the age at which a home workspace that is not ready is reported as an error.
	creationTimeout = time.Minute
	// deniedReason is the reason in Forbidden responses.
	deniedReason = "workspace access not permitted"
)

// Config holds the dependencies of the handler. All fields are required.
type Config struct {
	Registry *storage.Registry
	// Client is a loopback client for the logical cluster of the context, as system:masters.
	Client client.Client
	// Authorizer is the shard's complete authorization chain. It decides which users may have a home workspace.
	Authorizer authorizer.UnconditionalAuthorizer
	Types      *workspacetype.Resolver
	// ShardName is the name of this shard, where home workspaces are created.
	ShardName  string
	Serializer runtime.NegotiatedSerializer
}

// isHomeRequest reports whether a request is GET workspaces/~ in root.
func isHomeRequest(ctx context.Context, verb, group, resource, subresource, object string) bool {
	cluster, _ := logicalcluster.From(ctx)
	return cluster == logicalcluster.Root && verb == "get" && object == name && subresource == "" &&
		group == tenancyv1alpha1.SchemeGroupVersion.Group && resource == "workspaces"
}

// Authorizer allows home requests of users that may have a home workspace; the handler checks the permission to create
// one. Other requests are delegated.
func Authorizer(delegate authorizer.UnconditionalAuthorizer) authorizer.UnconditionalAuthorizer {
	return authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.IsResourceRequest() && isHomeRequest(ctx, a.GetVerb(), a.GetAPIGroup(), a.GetResource(), a.GetSubresource(), a.GetName()) && isGlobalUser(a.GetUser()) {
			return authorizer.DecisionAllow, "", nil
		}
		return delegate.Authorize(ctx, a)
	})
}

// isGlobalUser reports whether the user name is valid in root. Service accounts and users of the authentication
// configuration of other logical clusters may have the same names as other users there.
func isGlobalUser(u user.Info) bool { return u != nil && authorization.InScope(logicalcluster.Root, u) }

// handler serves home requests.
type handler struct {
	Config
	clusters *storage.Reader[*corev1alpha1.LogicalCluster]
	now      func() time.Time
}

// WithHome serves home requests and passes all others to next. It belongs directly below authorization.
func WithHome(next http.Handler, cfg Config) http.Handler {
	h := &handler{Config: cfg, now: time.Now, clusters: storage.NewReader[*corev1alpha1.LogicalCluster](cfg.Registry, corev1alpha1.Resource("logicalclusters"))}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := request.RequestInfoFrom(req.Context())
		if !ok || !info.IsResourceRequest || !isHomeRequest(req.Context(), info.Verb, info.APIGroup, info.Resource, info.Subresource, info.Name) {
			next.ServeHTTP(w, req)
			return
		}
		u, ok := request.UserFrom(req.Context())
		if !ok || !isGlobalUser(u) {
			h.forbid(w, req, u)
			return
		}
		h.serve(w, req, u)
	})
}

func (h *handler) serve(w http.ResponseWriter, req *http.Request, u user.Info) {
	ctx := req.Context()
	home := logicalcluster.With(ctx, logicalcluster.HomeName(u.GetName()))
	cluster, err := h.clusters.Get(home, "", corev1alpha1.LogicalClusterName)
	if apierrors.IsNotFound(err) {
		cluster, err = h.clusters.GetLatest(home, "", corev1alpha1.LogicalClusterName)
	}
	if apierrors.IsNotFound(err) {
		var allowed bool
		if allowed, err = h.mayCreate(ctx, u); err == nil && !allowed {
			h.forbid(w, req, u)
			return
		}
		if err == nil {
			cluster, err = h.create(home, u)
		}
	}
	switch {
	case err != nil:
		klog.FromContext(ctx).Error(err, "Failed to get or create a home workspace", "user", u.GetName())
		h.fail(w, req, errors.New("the home workspace cannot be read or created now"))
	case cluster.Spec.CreatedBy == nil || cluster.Spec.CreatedBy.Username != u.GetName():
		h.fail(w, req, errors.New("the logical cluster with the name of the home workspace belongs to another user"))
	case pending(cluster) && h.now().Sub(cluster.CreationTimestamp.Time) > creationTimeout:
		h.fail(w, req, fmt.Errorf("the home workspace has been in phase %s for more than %s", cluster.Status.Phase, creationTimeout))
	case pending(cluster):
		w.Header().Set("Retry-After", "1")
		http.Error(w, "Creating the home workspace", http.StatusTooManyRequests)
	default:
		responsewriters.WriteObjectNegotiated(h.Serializer, negotiation.DefaultEndpointRestrictions, tenancyv1alpha1.SchemeGroupVersion, w, req, http.StatusOK, workspaceFor(cluster), false)
	}
}

// pending reports whether the workspace has not been ready yet.
func pending(cluster *corev1alpha1.LogicalCluster) bool {
	switch cluster.Status.Phase {
	case "", corev1alpha1.LogicalClusterPhaseScheduling, corev1alpha1.LogicalClusterPhaseInitializing:
		return cluster.DeletionTimestamp == nil
	}
	return false
}

// workspaceFor returns the Workspace that represents a home workspace. It is not stored.
func workspaceFor(cluster *corev1alpha1.LogicalCluster) *tenancyv1alpha1.Workspace {
	return &tenancyv1alpha1.Workspace{
		ObjectMeta: metav1.ObjectMeta{Name: corev1alpha1.LogicalClusterName, CreationTimestamp: cluster.CreationTimestamp},
		Spec:       tenancyv1alpha1.WorkspaceSpec{Cluster: logicalcluster.Of(cluster).String(), URL: cluster.Status.URL},
		Status: tenancyv1alpha1.WorkspaceStatus{
			Phase: cluster.Status.Phase, Conditions: cluster.Status.Conditions, Initializers: cluster.Status.Initializers,
		},
	}
}

// mayCreate reports whether the user is allowed to create a home workspace.
func (h *handler) mayCreate(ctx context.Context, u user.Info) (bool, error) {
	decision, _, err := h.Authorizer.Authorize(ctx, createAttributes(u))
	return decision == authorizer.DecisionAllow, err
}

func createAttributes(u user.Info) authorizer.Attributes {
	return authorizer.AttributesRecord{
		User: u, Verb: "create", Name: name, ResourceRequest: true, Resource: "workspaces",
		APIGroup: tenancyv1alpha1.SchemeGroupVersion.Group, APIVersion: tenancyv1alpha1.SchemeGroupVersion.Version,
	}
}

// create creates the logical cluster, or returns the one that a concurrent request has created.
func (h *handler) create(ctx context.Context, u user.Info) (*corev1alpha1.LogicalCluster, error) {
	homeType, err := h.Types.Get(ctx, workspacetype.Reference{Path: logicalcluster.Root.Path(), Name: typeName})
	if err != nil {
		return nil, err
	}
	aliases, err := h.Types.Aliases(ctx, homeType)
	if err != nil {
		return nil, err
	}
	cluster, err := newCluster(u, homeType.Reference, aliases, h.ShardName)
	if err != nil {
		return nil, err
	}
	err = h.Client.Create(ctx, cluster)
	if apierrors.IsAlreadyExists(err) {
		return h.clusters.GetLatest(ctx, "", corev1alpha1.LogicalClusterName)
	}
	return cluster, err
}

func newCluster(u user.Info, typeRef workspacetype.Reference, aliases []workspacetype.Resolved, shard string) (*corev1alpha1.LogicalCluster, error) {
	creator := &authenticationv1.UserInfo{Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups()}
	for key, values := range u.GetExtra() {
		if creator.Extra == nil {
			creator.Extra = map[string]authenticationv1.ExtraValue{}
		}
		creator.Extra[key] = values
	}
	owner, err := json.Marshal(creator)
	if err != nil {
		return nil, fmt.Errorf("encoding user %q as owner: %w", u.GetName(), err)
	}
	annotations := map[string]string{
		corev1alpha1.LogicalClusterTypeAnnotationKey:            typeRef.String(),
		corev1alpha1.ShardAnnotationKey:                         shard,
		corev1alpha1.ResourceBindingsAnnotationKey:              "{}", // nothing is bound yet
		tenancyv1alpha1.ExperimentalWorkspaceOwnerAnnotationKey: string(owner),
	}
	if path, ok := logicalcluster.HomePath(u.GetName()); ok {
		annotations[corev1alpha1.LogicalClusterPathAnnotationKey] = path.String()
	}
	return &corev1alpha1.LogicalCluster{
		ObjectMeta: metav1.ObjectMeta{
			Name:        corev1alpha1.LogicalClusterName,
			Annotations: annotations,
			Finalizers:  []string{corev1alpha1.LogicalClusterDeletionFinalizer},
		},
		Spec: corev1alpha1.LogicalClusterSpec{
			CreatedBy:    creator,
			Initializers: workspacetype.Initializers(aliases),
			Terminators:  workspacetype.Terminators(aliases),
		},
	}, nil
}

func (h *handler) forbid(w http.ResponseWriter, req *http.Request, u user.Info) {
	responsewriters.Forbidden(createAttributes(u), w, req, deniedReason, h.Serializer)
}

func (h *handler) fail(w http.ResponseWriter, req *http.Request, err error) {
	responsewriters.ErrorNegotiated(apierrors.NewInternalError(err), h.Serializer, tenancyv1alpha1.SchemeGroupVersion, w, req)
}
