package authorization

import (
	"errors"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authorization/authorizer"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
)

// requiredGroups enforces the groups that the annotation of a logical cluster requires. Service accounts and the
// identities that manage logical clusters from outside are exempt.
func requiredGroups(s *subject) verdict {
	switch {
	case s.shardLevel:
		return pass("a path of the whole shard")
	case s.deep:
		return pass("a deep access review")
	case s.groups[GroupLogicalClusterAdmin], s.groups[GroupExternalLogicalClusterAdmin]:
		return pass("an administrator of logical clusters")
	case IsServiceAccount(s.attributes.GetUser()):
		return pass("a service account")
	case !s.state.exists:
		return settle(authorizer.DecisionNoOpinion, "no logical cluster %q", s.cluster)
	}
	required, demanded := s.state.annotations[corev1alpha1.RequiredGroupsAnnotationKey]
	switch {
	case !demanded:
		return pass("no groups are required")
	case s.groups[GroupAdmin], s.groups[GroupBootstrapper], satisfies(s.groups, required):
		return pass("the required groups are held")
	}
	return settle(authorizer.DecisionDeny, "the required groups %q are not held", required)
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

func (c content) check(s *subject) verdict {
	switch {
	case s.shardLevel:
		return pass("a path of the whole shard")
	case s.deep:
		return pass("a deep access review")
	case s.groups[GroupLogicalClusterAdmin]:
		return pass("an administrator of logical clusters")
	case s.cluster.IsSystem():
		return settle(authorizer.DecisionNoOpinion, "%q belongs to the shard itself", s.cluster)
	case !s.state.exists:
		return settle(authorizer.DecisionDeny, "no logical cluster %q", s.cluster)
	case !enterable[s.state.phase]:
		return settle(authorizer.DecisionNoOpinion, "the logical cluster is in phase %q", s.state.phase)
	}
	if group, ok := s.lifecycleGroup(); ok {
		// Initializers and terminators have the permissions of tenants, not more.
		if v := reserved(s); v.settles {
			return v
		}
		return settle(authorizer.DecisionAllow, "%s while in phase %s", group, s.state.phase)
	}
	if u := s.attributes.GetUser(); IsServiceAccount(u) && InScope(s.cluster, u) {
		return pass("a service account of the logical cluster")
	}
	return c.access(s)
}

// access evaluates RBAC for the verb `access` on "/".
func (c content) access(s *subject) verdict {
	entry := *s
	entry.attributes = authorizer.AttributesRecord{User: s.attributes.GetUser(), Verb: "access", Path: "/"}
	var v verdict
	var failed error
	for _, ask := range []func(*subject) verdict{allowedBy("bootstrap policy", c.rules.bootstrap), allowedBy("local policy", c.rules.local)} {
		if v = ask(&entry); v.settles {
			return pass("access permitted by %s", v.reason)
		}
		failed = errors.Join(failed, v.err)
	}
	return verdict{settles: true, decision: authorizer.DecisionNoOpinion, reason: "access not permitted by " + v.reason, err: failed}
}

// enterable are the phases in which RBAC decides about access to a logical cluster.
var enterable = map[string]bool{
	phaseInitializing: true,
	phaseReady:        true,
	phaseInactive:     true,
	phaseTerminating:  true,
	phaseDeleting:     true,
}

// lifecycleGroup returns the group of the request's initializer or terminator, if the logical cluster still waits for
// it.
func (s *subject) lifecycleGroup() (string, bool) {
	prefix, waitsFor := "", []string(nil)
	switch s.state.phase {
	case phaseInitializing:
		prefix, waitsFor = InitializerGroupPrefix, s.state.initializers
	case phaseTerminating:
		prefix, waitsFor = TerminatorGroupPrefix, s.state.terminators
	}
	// The groups of the original user count, too: a service account of another workspace is an anonymous user here, but
	// the virtual workspace, which alone adds such a group, added it for this logical cluster.
	own := s.attributes.GetUser().GetGroups()
	for _, name := range waitsFor {
		if group := prefix + name; s.groups[group] || slices.Contains(own, group) {
			return group, true
		}
	}
	return "", false
}

// reserved denies requests for resources that only the server itself writes.
func reserved(s *subject) verdict {
	if v := systemResources(s); v.settles {
		return v
	}
	return tenancyPolicy(s)
}

// Reserved reports whether a request writes what only the server itself maintains: no role of a tenant permits it. It
// is for authorizers of requests to logical clusters that do not run the chain.
func Reserved(attributes authorizer.Attributes) bool {
	return reserved(&subject{attributes: attributes}).settles
}

// systemResources denies clients, regardless of their RBAC, the status of objects that only the server itself
// maintains.
func systemResources(s *subject) verdict {
	a := s.addressed()
	if a.IsResourceRequest() && a.GetAPIGroup() == "apis.kcp.io" && a.GetSubresource() == "status" &&
		(a.GetResource() == "apibindings" || a.GetResource() == "apiexports") {
		return settle(authorizer.DecisionDeny, "%s/status is maintained by the server", a.GetResource())
	}
	return pass("not a resource that only the server maintains")
}

// tenancyPolicy is the maximal permission policy of the tenancy API's export, regardless of RBAC: all but the status of
// workspaces and workspace types, from which the server and the front proxy resolve paths.
func tenancyPolicy(s *subject) verdict {
	a := s.addressed()
	switch {
	case s.deep:
		return pass("a deep access review")
	case !a.IsResourceRequest() || a.GetAPIGroup() != "tenancy.kcp.io" || a.GetSubresource() != "status" || a.IsReadOnly():
		return pass("not the status of a tenancy object")
	case a.GetResource() != "workspaces" && a.GetResource() != "workspacetypes":
		return pass("not the status of a tenancy object")
	case s.groups[GroupAdmin], s.groups[GroupBootstrapper]:
		return pass("an administrator of the installation")
	}
	return settle(authorizer.DecisionNoOpinion, "%s/status is maintained by the server", a.GetResource())
}
