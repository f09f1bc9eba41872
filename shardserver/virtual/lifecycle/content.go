package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	endpointfilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/klog/v2"
	rbacauthorizer "k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/authorization"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/virtual"
)

// contentHandler serves the content of the logical clusters that wait for an owner.
type contentHandler struct {
	kind       *ownerKind
	clusters   *storage.Reader[*corev1alpha1.LogicalCluster]
	types      *storage.Reader[*tenancyv1alpha1.WorkspaceType]
	authorizer authorizer.UnconditionalAuthorizer
	serializer runtime.NegotiatedSerializer
}

// newHandler returns the handler of authorized requests. The caller acts with the permissions that the workspace type gives
// its owner or, if it gives none, as the creator of the workspace.
func (c *contentHandler) newHandler(cluster http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		ctx := req.Context()
		owner, err := ownerFrom(ctx)
		if err != nil {
			c.writeError(w, req, err)
			return
		}
		target, err := c.getLogicalCluster(ctx)
		if err != nil {
			c.writeError(w, req, err)
			return
		}
		if !c.kind.isPending(target, owner) {
			http.Error(w, fmt.Sprintf("%s %q cannot access this workspace", c.kind.noun, owner), http.StatusForbidden)
			return
		}
		rules, err := c.getRules(ctx, owner)
		if err != nil {
			c.writeError(w, req, err)
			return
		}
		attributes, err := endpointfilters.GetAuthorizerAttributes(ctx)
		if err != nil {
			c.writeError(w, req, apierrors.NewInternalError(err))
			return
		}
		if len(rules) > 0 {
			c.serveByRules(w, req, cluster, owner, attributes, rules)
			return
		}
		c.serveAsCreator(w, req, cluster, target)
	})
}

// getLogicalCluster reads the logical cluster, with a consistent read if the watch cache does not have it.
func (c *contentHandler) getLogicalCluster(ctx context.Context) (*corev1alpha1.LogicalCluster, error) {
	cluster, err := c.clusters.Get(ctx, "", corev1alpha1.LogicalClusterName)
	if apierrors.IsNotFound(err) {
		cluster, err = c.clusters.GetLatest(ctx, "", corev1alpha1.LogicalClusterName)
	}
	if apierrors.IsNotFound(err) {
		return nil, apierrors.NewInternalError(errors.New("the logical cluster does not exist"))
	}
	return cluster, err
}

// getRules returns the policy rules that the owner's workspace type gives it. Base types do not count.
func (c *contentHandler) getRules(ctx context.Context, owner string) ([]rbacv1.PolicyRule, error) {
	cluster, name, ok := parseWorkspaceType(owner)
	if !ok {
		return nil, nil // a system initializer or terminator
	}
	found, err := c.types.Get(logicalcluster.With(ctx, cluster), "", name)
	if apierrors.IsNotFound(err) {
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("the workspace type of %s %q does not exist", c.kind.noun, owner))
	}
	if err != nil {
		return nil, err
	}
	return c.kind.permissions(&found.Spec), nil
}

// serveByRules serves the request as the caller with the group of the owner, restricted to rules.
func (c *contentHandler) serveByRules(w http.ResponseWriter, req *http.Request, cluster http.Handler, owner string, attributes authorizer.Attributes, rules []rbacv1.PolicyRule) {
	allowed := ruleAuthorizer(rules)
	if decision, _, _ := allowed.Authorize(req.Context(), attributes); decision != authorizer.DecisionAllow {
		http.Error(w, fmt.Sprintf("%s %q denied by %sPermissions: no rule allows %s on %s", c.kind.noun, owner, c.kind.noun, attributes.GetVerb(), describeResource(attributes)), http.StatusForbidden)
		return
	}
	if authorization.IsReserved(attributes) { // tenants write workspace types, which must not allow this
		http.Error(w, fmt.Sprintf("%s %q cannot write %s: it is maintained by the server", c.kind.noun, owner, describeResource(attributes)), http.StatusForbidden)
		return
	}
	caller := attributes.GetUser()
	scopedUser := &user.DefaultInfo{
		Name: caller.GetName(), UID: caller.GetUID(), Extra: caller.GetExtra(),
		Groups: append(slices.Clone(caller.GetGroups()), c.kind.groupPrefix+owner),
	}
	cluster.ServeHTTP(w, virtual.InClusterAs(req, scopedUser, allowed))
}

// serveAsCreator serves the request as the creator of the workspace.
func (c *contentHandler) serveAsCreator(w http.ResponseWriter, req *http.Request, cluster http.Handler, target *corev1alpha1.LogicalCluster) {
	if target.Spec.CreatedBy == nil || target.Spec.CreatedBy.Username == "" {
		c.writeError(w, req, apierrors.NewInternalError(errors.New("the logical cluster has no spec.createdBy")))
		return
	}
	scoped := virtual.InClusterAs(req, newCreator(target.Spec.CreatedBy), nil)
	attributes, err := endpointfilters.GetAuthorizerAttributes(scoped.Context())
	if err != nil {
		c.writeError(w, req, apierrors.NewInternalError(err))
		return
	}
	decision, reason, err := c.authorizer.Authorize(scoped.Context(), attributes)
	switch {
	case decision == authorizer.DecisionAllow:
		cluster.ServeHTTP(w, scoped)
	case err != nil:
		c.writeError(w, req, apierrors.NewInternalError(err))
	default:
		responsewriters.Forbidden(attributes, w, scoped, reason, c.serializer)
	}
}

// newCreator returns the creator of a workspace without the groups that must not be passed on: system:masters, and those of
// initializers and terminators.
func newCreator(createdBy *authenticationv1.UserInfo) user.Info {
	extra := map[string][]string{}
	for key, values := range createdBy.Extra {
		extra[key] = values
	}
	return &user.DefaultInfo{
		Name: createdBy.Username, UID: createdBy.UID, Extra: extra,
		Groups: slices.DeleteFunc(slices.Clone(createdBy.Groups), func(group string) bool {
			return group == user.SystemPrivilegedGroup ||
				strings.HasPrefix(group, authorization.InitializerGroupPrefix) || strings.HasPrefix(group, authorization.TerminatorGroupPrefix)
		}),
	}
}

// ruleAuthorizer authorizes by policy rules.
type ruleAuthorizer []rbacv1.PolicyRule

func (r ruleAuthorizer) Authorize(_ context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	if rbacauthorizer.RulesAllow(attributes, r...) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionDeny, "no rule allows it", nil
}

// describeResource returns "<group or core>/<resource>[/<subresource>]", or the path of a non-resource request.
func describeResource(attributes authorizer.Attributes) string {
	if !attributes.IsResourceRequest() {
		return attributes.GetPath()
	}
	group := attributes.GetAPIGroup()
	if group == "" {
		group = "core"
	}
	text := group + "/" + attributes.GetResource()
	if attributes.GetSubresource() != "" {
		text += "/" + attributes.GetSubresource()
	}
	return text
}

func (c *contentHandler) writeError(w http.ResponseWriter, req *http.Request, err error) {
	if !apierrors.IsServiceUnavailable(err) {
		klog.FromContext(req.Context()).V(2).Info("Failed to serve the content of a logical cluster", "virtualWorkspace", c.kind.name, "err", err)
	}
	responsewriters.ErrorNegotiated(err, c.serializer, schema.GroupVersion{}, w, req)
}
