// Package home gives every user a workspace of their own: GET workspaces/~ in root answers where it is, and makes it
// the first time. A home workspace has no Workspace object and no parent: its logical cluster is found by the name of
// its user, "user:<name>" in paths.
//
// What a home workspace holds, and who may enter it, follows from its type and its creator as for any other; that is
// the business of package tenancy and of authorization.
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
	// name stands for the home workspace of whoever asks.
	name = "~"
	// typeName is the type of home workspaces, in root.
	typeName = "home"
	// tooLong is how old a home workspace is when it ought to have been ready for a while.
	tooLong = time.Minute
	// denied is the reason of refusals.
	denied = "workspace access not permitted"
)

// Config is what the handler needs. All fields are required.
type Config struct {
	Registry *storage.Registry
	// Client writes through the shard's own API, to the logical cluster of the context, as system:masters.
	Client client.Client
	// Authorizer is the shard's whole authorization chain: it decides who may have a home workspace.
	Authorizer authorizer.Authorizer
	Types      *workspacetype.Resolver
	// ShardName is the shard that homes are made on, this one.
	ShardName  string
	Serializer runtime.NegotiatedSerializer
}

// asked tells whether a request is the question for the home workspace.
func asked(ctx context.Context, verb, group, resource, subresource, object string) bool {
	cluster, _ := logicalcluster.From(ctx)
	return cluster == logicalcluster.Root && verb == "get" && object == name && subresource == "" &&
		group == tenancyv1alpha1.SchemeGroupVersion.Group && resource == "workspaces"
}

// Authorizer lets the question through to the handler: it needs no permission where the answer exists, and another
// than that to read workspaces where it does not.
func Authorizer(delegate authorizer.Authorizer) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.IsResourceRequest() && asked(ctx, a.GetVerb(), a.GetAPIGroup(), a.GetResource(), a.GetSubresource(), a.GetName()) && counts(a.GetUser()) {
			return authorizer.DecisionAllow, "", nil
		}
		return delegate.Authorize(ctx, a)
	})
}

// counts tells whether a user has a name of their own in root: other logical clusters give out the same names to
// service accounts, and to users that they alone know.
func counts(u user.Info) bool { return u != nil && authorization.InScope(logicalcluster.Root, u) }

// handler answers the question.
type handler struct {
	Config
	clusters *storage.Reader[*corev1alpha1.LogicalCluster]
	now      func() time.Time
}

// With answers the question and passes on everything else. It belongs directly below authorization.
func With(next http.Handler, cfg Config) http.Handler {
	h := &handler{Config: cfg, now: time.Now, clusters: storage.NewReader[*corev1alpha1.LogicalCluster](cfg.Registry, corev1alpha1.Resource("logicalclusters"))}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := request.RequestInfoFrom(req.Context())
		if !ok || !info.IsResourceRequest || !asked(req.Context(), info.Verb, info.APIGroup, info.Resource, info.Subresource, info.Name) {
			next.ServeHTTP(w, req)
			return
		}
		u, ok := request.UserFrom(req.Context())
		if !ok || !counts(u) {
			h.refuse(w, req, u)
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
			h.refuse(w, req, u)
			return
		}
		if err == nil {
			cluster, err = h.create(home, u)
		}
	}
	switch {
	case err != nil:
		klog.FromContext(ctx).Error(err, "Finding or making a home workspace failed", "user", u.GetName())
		h.fail(w, req, errors.New("the home workspace cannot be found or made now"))
	case cluster.Spec.CreatedBy == nil || cluster.Spec.CreatedBy.Username != u.GetName():
		h.fail(w, req, errors.New("the logical cluster under the name of the home workspace is none"))
	case pending(cluster) && h.now().Sub(cluster.CreationTimestamp.Time) > tooLong:
		h.fail(w, req, fmt.Errorf("the home workspace is in phase %s for more than %s", cluster.Status.Phase, tooLong))
	case pending(cluster):
		w.Header().Set("Retry-After", "1")
		http.Error(w, "Creating the home workspace", http.StatusTooManyRequests)
	default:
		responsewriters.WriteObjectNegotiated(h.Serializer, negotiation.DefaultEndpointRestrictions, tenancyv1alpha1.SchemeGroupVersion, w, req, http.StatusOK, answer(cluster), false)
	}
}

// pending tells whether the workspace is not usable for the first time yet.
func pending(cluster *corev1alpha1.LogicalCluster) bool {
	switch cluster.Status.Phase {
	case "", corev1alpha1.LogicalClusterPhaseScheduling, corev1alpha1.LogicalClusterPhaseInitializing:
		return cluster.DeletionTimestamp == nil
	}
	return false
}

// answer is the Workspace that a client sees. There is no such object.
func answer(cluster *corev1alpha1.LogicalCluster) *tenancyv1alpha1.Workspace {
	return &tenancyv1alpha1.Workspace{
		ObjectMeta: metav1.ObjectMeta{Name: corev1alpha1.LogicalClusterName, CreationTimestamp: cluster.CreationTimestamp},
		Spec:       tenancyv1alpha1.WorkspaceSpec{Cluster: logicalcluster.Of(cluster).String(), URL: cluster.Status.URL},
		Status: tenancyv1alpha1.WorkspaceStatus{
			Phase: cluster.Status.Phase, Conditions: cluster.Status.Conditions, Initializers: cluster.Status.Initializers,
		},
	}
}

// mayCreate asks whether the user may have a home workspace.
func (h *handler) mayCreate(ctx context.Context, u user.Info) (bool, error) {
	decision, _, err := h.Authorizer.Authorize(ctx, creation(u))
	return decision == authorizer.DecisionAllow, err
}

func creation(u user.Info) authorizer.Attributes {
	return authorizer.AttributesRecord{
		User: u, Verb: "create", Name: name, ResourceRequest: true, Resource: "workspaces",
		APIGroup: tenancyv1alpha1.SchemeGroupVersion.Group, APIVersion: tenancyv1alpha1.SchemeGroupVersion.Version,
	}
}

// create makes the logical cluster, or returns the one that somebody else has made at the same time.
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

func newCluster(u user.Info, of workspacetype.Reference, aliases []workspacetype.Resolved, shard string) (*corev1alpha1.LogicalCluster, error) {
	creator := &authenticationv1.UserInfo{Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups()}
	for key, values := range u.GetExtra() {
		if creator.Extra == nil {
			creator.Extra = map[string]authenticationv1.ExtraValue{}
		}
		creator.Extra[key] = values
	}
	owner, err := json.Marshal(creator)
	if err != nil {
		return nil, fmt.Errorf("writing user %q as owner: %w", u.GetName(), err)
	}
	return &corev1alpha1.LogicalCluster{
		ObjectMeta: metav1.ObjectMeta{
			Name: corev1alpha1.LogicalClusterName,
			Annotations: map[string]string{
				corev1alpha1.LogicalClusterPathAnnotationKey:            "user:" + u.GetName(),
				corev1alpha1.LogicalClusterTypeAnnotationKey:            of.String(),
				corev1alpha1.ShardAnnotationKey:                         shard,
				corev1alpha1.ResourceBindingsAnnotationKey:              "{}", // nothing is bound yet
				tenancyv1alpha1.ExperimentalWorkspaceOwnerAnnotationKey: string(owner),
			},
			Finalizers: []string{corev1alpha1.LogicalClusterDeletionFinalizer},
		},
		Spec: corev1alpha1.LogicalClusterSpec{
			CreatedBy:    creator,
			Initializers: workspacetype.Initializers(aliases),
			Terminators:  workspacetype.Terminators(aliases),
		},
	}, nil
}

func (h *handler) refuse(w http.ResponseWriter, req *http.Request, u user.Info) {
	responsewriters.Forbidden(creation(u), w, req, denied, h.Serializer)
}

func (h *handler) fail(w http.ResponseWriter, req *http.Request, err error) {
	responsewriters.ErrorNegotiated(apierrors.NewInternalError(err), h.Serializer, tenancyv1alpha1.SchemeGroupVersion, w, req)
}
