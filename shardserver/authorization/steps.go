package authorization

import (
	"errors"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authorization/authorizer"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
)

// checkRequiredGroups enforces the groups that the annotation of a logical cluster requires. Service accounts and the
// identities that manage logical clusters from outside are exempt.
func checkRequiredGroups(s *accessRequest) stepResult {
	switch {
	case s.shardLevel:
		return delegate("a path of the whole shard")
	case s.deepSAR:
		return delegate("a deep access review")
	case s.groups[GroupLogicalClusterAdmin], s.groups[GroupExternalLogicalClusterAdmin]:
		return delegate("an administrator of logical clusters")
	case IsServiceAccount(s.attributes.GetUser()):
		return delegate("a service account")
	case !s.state.exists:
		return decide(authorizer.DecisionNoOpinion, "no logical cluster %q", s.cluster)
	}
	required, found := s.state.annotations[corev1alpha1.RequiredGroupsAnnotationKey]
	switch {
	case !found:
		return delegate("no required groups")
	case s.groups[GroupAdmin], s.groups[GroupBootstrapper], satisfies(s.groups, required):
		return delegate("the user is in the required groups")
	}
	return decide(authorizer.DecisionDeny, "the user is not in the required groups %q", required)
}

// satisfies evaluates "a,b;c": (a and b) or c.
func satisfies(groups map[string]bool, required string) bool {
	for alternative := range strings.SplitSeq(required, ";") {
		names := strings.Split(alternative, ",")
		if !slices.ContainsFunc(names, func(name string) bool { return !groups[name] }) {
			return true
		}
	}
	return false
}

// content decides whether a user may access the logical cluster at all: the verb `access` on "/".
type content struct{ rules rules }

func (c content) check(s *accessRequest) stepResult {
	switch {
	case s.shardLevel:
		return delegate("a path of the whole shard")
	case s.deepSAR:
		return delegate("a deep access review")
	case s.groups[GroupLogicalClusterAdmin]:
		return delegate("an administrator of logical clusters")
	case s.cluster.IsSystem():
		return decide(authorizer.DecisionNoOpinion, "%q belongs to the shard itself", s.cluster)
	case !s.state.exists:
		return decide(authorizer.DecisionDeny, "no logical cluster %q", s.cluster)
	case !accessiblePhases[s.state.phase]:
		return decide(authorizer.DecisionNoOpinion, "the logical cluster is in phase %q", s.state.phase)
	}
	if group, ok := s.lifecycleGroup(); ok {
		// Initializers and terminators have the permissions of tenants, not more.
		if v := checkReserved(s); v.final {
			return v
		}
		return decide(authorizer.DecisionAllow, "%s while in phase %s", group, s.state.phase)
	}
	if u := s.attributes.GetUser(); IsServiceAccount(u) && InScope(s.cluster, u) {
		return delegate("a service account of the logical cluster")
	}
	return c.checkAccess(s)
}

// checkAccess evaluates RBAC for the verb `access` on "/".
func (c content) checkAccess(s *accessRequest) stepResult {
	entry := *s
	entry.attributes = authorizer.AttributesRecord{User: s.attributes.GetUser(), Verb: "access", Path: "/"}
	var v stepResult
	var failed error
	for _, checkRBAC := range []func(*accessRequest) stepResult{checkPolicy("bootstrap policy", c.rules.bootstrap), checkPolicy("local policy", c.rules.local)} {
		if v = checkRBAC(&entry); v.final {
			return delegate("access permitted by %s", v.reason)
		}
		failed = errors.Join(failed, v.err)
	}
	return stepResult{final: true, decision: authorizer.DecisionNoOpinion, reason: "access not permitted by " + v.reason, err: failed}
}

// accessiblePhases are the phases in which RBAC decides about access to a logical cluster.
var accessiblePhases = map[string]bool{
	phaseInitializing: true,
	phaseReady:        true,
	phaseInactive:     true,
	phaseTerminating:  true,
	phaseDeleting:     true,
}

// lifecycleGroup returns the group of the request's initializer or terminator, if the logical cluster still waits for
// it.
func (a *accessRequest) lifecycleGroup() (string, bool) {
	prefix, pending := "", []string(nil)
	switch a.state.phase {
	case phaseInitializing:
		prefix, pending = InitializerGroupPrefix, a.state.initializers
	case phaseTerminating:
		prefix, pending = TerminatorGroupPrefix, a.state.terminators
	}
	// The groups of the original user count, too: a service account of another workspace is an anonymous user here, but
	// the virtual workspace, which alone adds such a group, added it for this logical cluster.
	own := a.attributes.GetUser().GetGroups()
	for _, name := range pending {
		if group := prefix + name; a.groups[group] || slices.Contains(own, group) {
			return group, true
		}
	}
	return "", false
}

// checkReserved denies requests for resources that only the server itself writes.
func checkReserved(s *accessRequest) stepResult {
	if v := checkSystemResources(s); v.final {
		return v
	}
	return checkTenancyPolicy(s)
}

// IsReserved reports whether a request writes what only the server itself maintains: no role of a tenant permits it. It
// is for authorizers of requests to logical clusters that do not run the chain.
func IsReserved(attributes authorizer.Attributes) bool {
	return checkReserved(&accessRequest{attributes: attributes}).final
}

// checkSystemResources denies clients, regardless of their RBAC, the status of objects that only the server itself
// maintains.
func checkSystemResources(s *accessRequest) stepResult {
	a := s.attributesWithoutIdentity()
	if a.IsResourceRequest() && a.GetAPIGroup() == "apis.kcp.io" && a.GetSubresource() == "status" &&
		(a.GetResource() == "apibindings" || a.GetResource() == "apiexports") {
		return decide(authorizer.DecisionDeny, "%s/status is maintained by the server", a.GetResource())
	}
	return delegate("not a resource that only the server maintains")
}

// checkTenancyPolicy is the maximal permission policy of the tenancy API's export, regardless of RBAC: all but the
// status of workspaces and workspace types, from which the server and the front proxy resolve paths.
func checkTenancyPolicy(s *accessRequest) stepResult {
	a := s.attributesWithoutIdentity()
	switch {
	case s.deepSAR:
		return delegate("a deep access review")
	case !a.IsResourceRequest() || a.GetAPIGroup() != "tenancy.kcp.io" || a.GetSubresource() != "status" || a.IsReadOnly():
		return delegate("not the status of a tenancy object")
	case a.GetResource() != "workspaces" && a.GetResource() != "workspacetypes":
		return delegate("not the status of a tenancy object")
	case s.groups[GroupAdmin], s.groups[GroupBootstrapper]:
		return delegate("an administrator of the installation")
	}
	return decide(authorizer.DecisionNoOpinion, "%s/status is maintained by the server", a.GetResource())
}
