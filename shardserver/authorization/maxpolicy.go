package authorization

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// exportPolicy enforces maximal permission policies: users of a logical cluster may do with a bound resource at most
// what RBAC in the logical cluster of the export allows, if the export sets such a policy.
type exportPolicy struct {
	registry *storage.Registry
	rules    rules
	// If bound or exports is nil, no resource is bound.
	bound   *bindings.Index
	exports *apiindex.Resolver
}

// reviewGroups are the API groups of review requests, which are not stored.
var reviewGroups = sets.New("authorization.k8s.io", "authentication.k8s.io")

// check applies checkTenancyPolicy to the status of tenancy objects in any case: it must not be writable for users in
// whose logical cluster the export of root is not visible.
func (p exportPolicy) check(s *accessRequest) stepResult {
	if v := checkTenancyPolicy(s); v.final || p.bound == nil {
		return v
	}
	a := s.attributesWithoutIdentity()
	switch {
	case s.deepSAR:
		return delegate("a deep access review")
	case !a.IsResourceRequest():
		return delegate("not a resource")
	case isImpersonation(a) || reviewGroups.Has(a.GetAPIGroup()):
		return delegate("not a resource that can be bound")
	}
	bound, ok, err := p.findBoundResource(s.ctx, schema.GroupResource{Group: a.GetAPIGroup(), Resource: a.GetResource()})
	if err != nil {
		return decideWithError(err)
	}
	if !ok {
		return delegate("not a bound API")
	}
	export, err := p.exports.Get(s.ctx, bound.Export)
	switch {
	case apierrors.IsNotFound(err):
		return delegate("no APIExport %q in %q", bound.Export.Name, bound.Export.Cluster)
	case err != nil:
		return decideWithError(fmt.Errorf("reading APIExport %q of %q: %w", bound.Export.Name, bound.Export.Cluster, err))
	case !hasLocalPolicy(export):
		return delegate("APIExport %q of %q has no maximal permission policy", bound.Export.Name, bound.Export.Cluster)
	}
	return p.checkRBAC(s, bound.Export)
}

// findBoundResource returns the binding of a resource. If the informer has no binding for it yet, the registry is read,
// because the request may be served by a binding that the informer has not observed.
func (p exportPolicy) findBoundResource(ctx context.Context, gr schema.GroupResource) (bindings.BoundResource, bool, error) {
	if bound, ok := p.bound.Get(ctx, gr); ok {
		return bound, true, nil
	}
	known, err := p.registry.Resolve(ctx, gr)
	if known != nil || err != nil {
		return bindings.BoundResource{}, false, err
	}
	if _, err := p.registry.Get(gr); err == nil {
		return bindings.BoundResource{}, false, nil // compiled in and not visible in this logical cluster, hence not served
	}
	return p.bound.GetLatest(ctx, gr)
}

// checkRBAC evaluates the RBAC of the export's logical cluster, for the names that users of other logical clusters have
// there.
func (p exportPolicy) checkRBAC(s *accessRequest, export bindings.ExportKey) stepResult {
	exportRequest := *s
	var err error
	if exportRequest.ctx, err = withRemoteCluster(logicalcluster.With(s.ctx, export.Cluster), p.registry, export.Cluster); err != nil {
		return decideWithError(err)
	}
	exportRequest.attributes = s.attributesWithoutIdentity()
	exportRequest.users = bindingUsers(s.cluster, export.Cluster, s.attributes.GetUser())
	var v stepResult
	var failed error
	for _, checkRBAC := range []func(*accessRequest) stepResult{checkPolicy("bootstrap policy", p.rules.bootstrap), checkPolicy("policy of the APIExport", p.rules.local)} {
		if v = checkRBAC(&exportRequest); v.final {
			return delegate("APIExport %q of %q permits it: %s", export.Name, export.Cluster, v.reason)
		}
		failed = errors.Join(failed, v.err)
	}
	return stepResult{final: true, decision: authorizer.DecisionNoOpinion, reason: fmt.Sprintf("APIExport %q of %q does not permit it: %s", export.Name, export.Cluster, v.reason), err: failed}
}

func decideWithError(err error) stepResult {
	return stepResult{final: true, decision: authorizer.DecisionNoOpinion, reason: "the maximal permission policy of a bound API cannot be read", err: err}
}

func hasLocalPolicy(export *apisv1alpha2.APIExport) bool {
	return export.Spec.MaximalPermissionPolicy != nil && export.Spec.MaximalPermissionPolicy.Local != nil
}

// bindingUsers returns the names that a user of one logical cluster has in the maximal permission policy of another:
// the effective users there, with a prefix. A service account has its global name. A user that counts in some logical
// clusters only, because of impersonation or an issuer of one workspace, is merely authenticated in other logical
// clusters: otherwise a consumer could assume any name or origin that the policy grants permissions to.
func bindingUsers(cluster, policy logicalcluster.Name, u user.Info) []user.Info {
	effective := effectiveUsers(cluster, policy, u)
	prefixed := make([]user.Info, 0, len(effective))
	for _, info := range effective {
		if !matchesScopes(policy.String(), info) {
			info = outOfScopeUser(info, provenOrigin(policy, info))
		}
		name := info.GetName()
		if namespace, account, ok := parseServiceAccount(info); ok {
			name = ForeignServiceAccountPrefix + cluster.String() + ":" + namespace + ":" + account
		}
		groups := make([]string, 0, len(info.GetGroups()))
		for _, group := range info.GetGroups() {
			groups = append(groups, BindingSubjectPrefix+group)
		}
		prefixed = append(prefixed, &user.DefaultInfo{Name: BindingSubjectPrefix + name, Groups: groups})
	}
	return prefixed
}

// AuthorizeClaimed decides whether a user may perform a request on a resource with an identity whose objects are
// claimed by an export of home: every owner of that identity with a maximal permission policy has to allow it, by RBAC
// in the logical cluster of its export. The user is evaluated with its effective users in home. A resource without an
// owner is denied.
func (a *Authorizer) AuthorizeClaimed(ctx context.Context, exportCluster logicalcluster.Name, attributes authorizer.Attributes, identity string) (authorizer.Decision, string, error) {
	if a.exports == nil {
		return authorizer.DecisionDeny, reasonDenied, nil
	}
	owners, err := a.exports.ListByIdentity(ctx, identity)
	if err != nil {
		return authorizer.DecisionNoOpinion, reasonDenied, fmt.Errorf("finding the owners of a claimed resource: %w", err)
	}
	if len(owners) == 0 {
		return authorizer.DecisionDeny, reasonDenied, nil
	}
	for _, owner := range owners {
		if !hasLocalPolicy(owner) {
			continue
		}
		// The audit event of the request contains other decisions; those made here are not annotated.
		cluster := logicalcluster.Of(owner)
		ownerCtx := request.WithRequestInfo(WithDeepSAR(logicalcluster.With(ctx, cluster)), nil)
		users := bindingUsers(exportCluster, cluster, attributes.GetUser())
		decision, _, err := forEachUser(users, attributes, func(attributes authorizer.Attributes) (authorizer.Decision, string, error) {
			return a.outer.Authorize(ownerCtx, attributes)
		})
		if decision != authorizer.DecisionAllow {
			return authorizer.DecisionDeny, reasonDenied, err
		}
	}
	return authorizer.DecisionAllow, reasonGranted, nil
}
