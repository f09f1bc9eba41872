// Package admin holds the virtual workspace in which administrators of an installation read its shards, close them for new
// workspaces, and limit them, and in which they write policies of permission claims. All else of a Shard belongs to the shard itself.
//
// The root shard serves it, from what its workspace root stores. Other shards forward requests to it.
package admin

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	adminv1alpha1 "github.com/atoll-dev/atoll/api/admin/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apis/registry"
	"github.com/atoll-dev/atoll/shardserver/authorization"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/virtual"
)

// name is the name of the virtual workspace and of its readiness check.
const name = "admin"

// auditKey is the prefix of the audit annotations with the decision.
const auditKey = "virtual.admin.authorization.kcp.io"

// Reasons of decisions.
const (
	reasonGranted  = "access granted"
	reasonNoMember = "access to the admin workspace requires membership in the " + authorization.GroupAdmin + " or " + authorization.GroupMasters + " group"
	reasonVerb     = "verb not supported by the admin workspace"
	reasonResource = "verb not supported by the admin workspace for this resource"
	reasonOther    = "only the root shard changes the Shards of others, and policies: use its admin workspace, or that of a front proxy"
)

// Config holds the dependencies of the virtual workspace. All fields are required.
type Config struct {
	// Base is the configuration of the shard's API server before completion.
	Base *genericapiserver.Config
	// Shards is the storage of Shards.
	Shards rest.Storage
	// Policies is the storage of PermissionClaimPolicies, which is served as it is.
	Policies rest.Storage
}

// New returns the virtual workspace.
func New(cfg Config) (*virtual.Workspace, error) {
	description, described := cfg.Shards.(virtual.Description)
	readable, stored := cfg.Shards.(storage.Store)
	writable, updated := cfg.Shards.(updater)
	if !described || !stored || !updated {
		return nil, fmt.Errorf("the storage of shards is %T, which is not that of a resource of the shard", cfg.Shards)
	}
	group := genericapiserver.NewDefaultAPIGroupInfo(corev1alpha1.SchemeGroupVersion.Group, legacyscheme.Scheme, legacyscheme.ParameterCodec, legacyscheme.Codecs)
	group.NegotiatedSerializer = registry.WithoutProtobuf(cfg.Base.Serializer)
	group.VersionedResourcesStorageMap[corev1alpha1.SchemeGroupVersion.Version] = map[string]rest.Storage{
		shards.Resource: &shardStorage{Description: description, store: readable, updater: writable},
	}
	policyGroup := genericapiserver.NewDefaultAPIGroupInfo(adminv1alpha1.GroupName, legacyscheme.Scheme, legacyscheme.ParameterCodec, legacyscheme.Codecs)
	policyGroup.NegotiatedSerializer = group.NegotiatedSerializer
	policyGroup.VersionedResourcesStorageMap[adminv1alpha1.SchemeGroupVersion.Version] = map[string]rest.Storage{policies.Resource: cfg.Policies}
	api, err := virtual.NewAPI(cfg.Base, name, &policyGroup, &group)
	if err != nil {
		return nil, err
	}
	return &virtual.Workspace{
		Name:       name,
		Resolve:    resolve,
		Authorizer: groupAuthorizer{shards: true},
		Handler:    func(http.Handler) http.Handler { return api },
		IsOpen:     func(virtual.Request, *corev1alpha1.LogicalCluster) bool { return true },
		Checks: []healthz.HealthChecker{healthz.NamedCheck(name, func(*http.Request) error {
			if checked, ok := cfg.Shards.(interface{ ReadinessCheck() error }); ok {
				return checked.ReadinessCheck()
			}
			return nil
		})},
	}, nil
}

// resolve parses "<path>" and "clusters/<name or *>/<path>". All show the same: the shards of the installation.
func resolve(path string) (virtual.Request, bool) {
	request := virtual.Request{Cluster: logicalcluster.Root, Path: "/" + path}
	if rest, ok := strings.CutPrefix(path, "clusters/"); ok {
		cluster, rest, _ := strings.Cut(rest, "/")
		if _, err := logicalcluster.ParseName(cluster); err != nil && cluster != logicalcluster.Wildcard.String() {
			return virtual.Request{}, false
		}
		request.Path = "/" + rest
	}
	return request, true
}

// policies are the policies of permission claims.
var policies = adminv1alpha1.Resource("permissionclaimpolicies")

// verbs are those that are served, by resource. Shards create and delete their objects themselves.
var verbs = map[schema.GroupResource][]string{
	policies: {"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"},
	shards:   {"get", "list", "watch", "update", "patch"},
}

// groupAuthorizer allows members of two groups, and asks no RBAC: the shards of an installation are not content of a workspace. On the root shard
// it also allows shards to read, and to change their own Shard: they forward the requests of members. Policies are for members only to write.
type groupAuthorizer struct {
	// shards allows shards; it is set on the root shard.
	shards bool
}

// Authorize implements authorizer.UnconditionalAuthorizer.
func (g groupAuthorizer) Authorize(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	decision, reason := g.decide(attributes)
	text := "allowed"
	if decision != authorizer.DecisionAllow {
		text = "denied"
	}
	audit.AddAuditAnnotations(ctx, auditKey+"/decision", text, auditKey+"/reason", reason)
	return decision, reason, nil
}

func (g groupAuthorizer) decide(attributes authorizer.Attributes) (authorizer.Decision, string) {
	who := attributes.GetUser()
	isMember := slices.Contains(who.GetGroups(), authorization.GroupAdmin) || slices.Contains(who.GetGroups(), authorization.GroupMasters)
	isShard := g.shards && slices.Contains(who.GetGroups(), authorization.GroupShard)
	switch {
	case !isMember && !isShard:
		return authorizer.DecisionDeny, reasonNoMember
	case !attributes.IsResourceRequest() && attributes.GetVerb() == "get":
		return authorizer.DecisionAllow, reasonGranted
	case !attributes.IsResourceRequest():
		return authorizer.DecisionDeny, reasonVerb
	}
	resource := schema.GroupResource{Group: attributes.GetAPIGroup(), Resource: attributes.GetResource()}
	switch {
	case attributes.GetSubresource() != "" || !slices.Contains(verbs[resource], attributes.GetVerb()):
		return authorizer.DecisionDeny, reasonResource
	case !isMember && !attributes.IsReadOnly() && resource == policies:
		return authorizer.DecisionDeny, reasonOther
	case !isMember && !attributes.IsReadOnly() && who.GetName() != authorization.ShardUserPrefix+attributes.GetName():
		return authorizer.DecisionDeny, reasonOther
	}
	return authorizer.DecisionAllow, reasonGranted
}
