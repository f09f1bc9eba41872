package authorization

import (
	"context"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// newAccessRequest returns a request of a user to logical cluster "c" in the given state.
func newAccessRequest(u *user.DefaultInfo, s state) *accessRequest {
	cluster := logicalcluster.MustParseName("c")
	users := EffectiveUsers(cluster, u)
	return &accessRequest{
		ctx: logicalcluster.With(context.Background(), cluster), cluster: cluster, users: users, groups: EffectiveGroups(users), state: s,
		attributes: authorizer.AttributesRecord{User: u, Verb: "get", Resource: "configmaps", ResourceRequest: true},
	}
}

func TestRequiredGroups(t *testing.T) {
	required := func(groups string) state {
		return state{exists: true, phase: phaseReady, annotations: map[string]string{corev1alpha1.RequiredGroupsAnnotationKey: groups}}
	}
	member := func(groups ...string) *user.DefaultInfo { return &user.DefaultInfo{Name: "alice", Groups: groups} }
	for name, tc := range map[string]struct {
		user *user.DefaultInfo
		in   state
		want authorizer.Decision
	}{
		"delegates without required groups":                         {member(), state{exists: true}, delegates},
		"delegates for members":                                     {member("a"), required("a"), delegates},
		"denies other users":                                        {member("b"), required("a"), authorizer.DecisionDeny},
		"denies members of a part of a conjunction":                 {member("a"), required("a,b"), authorizer.DecisionDeny},
		"delegates for members of a whole conjunction":              {member("a", "b"), required("a,b"), delegates},
		"delegates for members of one alternative":                  {member("c"), required("a,b;c"), delegates},
		"denies all users if the annotation is empty":               {member("a"), required(""), authorizer.DecisionDeny},
		"delegates for kcp's administrators":                        {member(GroupAdmin), required("a"), delegates},
		"delegates for the bootstrapper":                            {member(GroupBootstrapper), required("a"), delegates},
		"delegates for administrators of logical clusters":          {member(GroupLogicalClusterAdmin), state{}, delegates},
		"delegates for external administrators of logical clusters": {member(GroupExternalLogicalClusterAdmin), state{}, delegates},
		"delegates for service accounts":                            {&user.DefaultInfo{Name: "system:serviceaccount:ns:sa"}, required("a"), delegates},
		"has no opinion without a logical cluster":                  {member("a"), state{}, authorizer.DecisionNoOpinion},
		"ignores the groups of a user out of scope": {
			&user.DefaultInfo{Name: "alice", Groups: []string{"a"}, Extra: map[string][]string{ScopesExtraKey: {"cluster:b"}}},
			required("a"), authorizer.DecisionDeny,
		},
	} {
		t.Run(name, func(t *testing.T) { expect(t, checkRequiredGroups(newAccessRequest(tc.user, tc.in)), tc.want) })
	}
}

// delegates is the expectation that a step leaves the decision to the next one.
const delegates = authorizer.Decision(-1)

func expect(t *testing.T, v stepResult, want authorizer.Decision) {
	t.Helper()
	if v.final != (want != delegates) || (v.final && v.decision != want) {
		t.Errorf("got %+v, want %v", v, want)
	}
}

func TestWorkspaceContent(t *testing.T) {
	in := func(phase string) state {
		return state{exists: true, phase: phase, initializers: []string{"root:a"}, terminators: []string{"root:z"}}
	}
	groups := func(groups ...string) *user.DefaultInfo { return &user.DefaultInfo{Name: "alice", Groups: groups} }
	account := func(cluster string) *user.DefaultInfo {
		return &user.DefaultInfo{Name: "system:serviceaccount:ns:sa", Extra: map[string][]string{ClusterNameExtraKey: {cluster}}}
	}
	for name, tc := range map[string]struct {
		user *user.DefaultInfo
		in   state
		want authorizer.Decision
	}{
		"denies without a logical cluster":                                             {groups(), state{}, authorizer.DecisionDeny},
		"delegates for administrators of logical clusters without a logical cluster":   {groups(GroupLogicalClusterAdmin), state{}, delegates},
		"denies external administrators without a logical cluster":                     {groups(GroupExternalLogicalClusterAdmin), state{}, authorizer.DecisionDeny},
		"has no opinion while it is being scheduled":                                   {groups(GroupAdmin), in("Scheduling"), authorizer.DecisionNoOpinion},
		"has no opinion while it is unavailable":                                       {groups(GroupAdmin), in("Unavailable"), authorizer.DecisionNoOpinion},
		"has no opinion in an unknown phase":                                           {groups(GroupAdmin), in("Unknown"), authorizer.DecisionNoOpinion},
		"delegates for a service account of the logical cluster":                       {account("c"), in(phaseReady), delegates},
		"allows a pending initializer":                                                 {groups(InitializerGroupPrefix + "root:a"), in(phaseInitializing), authorizer.DecisionAllow},
		"allows a pending terminator":                                                  {groups(TerminatorGroupPrefix + "root:z"), in(phaseTerminating), authorizer.DecisionAllow},
		"has no opinion on a service account while it is being scheduled":              {account("c"), in("Scheduling"), authorizer.DecisionNoOpinion},
		"delegates for administrators of logical clusters while it is being scheduled": {groups(GroupLogicalClusterAdmin), in("Scheduling"), delegates},
	} {
		t.Run(name, func(t *testing.T) { expect(t, content{}.check(newAccessRequest(tc.user, tc.in)), tc.want) })
	}
	t.Run("has no opinion about the shard's own logical clusters", func(t *testing.T) {
		s := newAccessRequest(groups(GroupAdmin), in(phaseReady))
		s.cluster = logicalcluster.Admin
		expect(t, content{}.check(s), authorizer.DecisionNoOpinion)
	})
	for name, mark := range map[string]func(*accessRequest){
		"delegates for paths of the whole shard": func(s *accessRequest) { s.shardLevel = true },
		"delegates for deep access reviews":      func(s *accessRequest) { s.deepSAR = true },
	} {
		t.Run(name, func(t *testing.T) {
			s := newAccessRequest(groups(), state{})
			mark(s)
			expect(t, content{}.check(s), delegates)
			expect(t, checkRequiredGroups(s), delegates)
		})
	}
}

func TestLifecycleGroup(t *testing.T) {
	for name, tc := range map[string]struct{ group, phase string }{
		"an initializer of another type":         {InitializerGroupPrefix + "root:b", phaseInitializing},
		"an initializer once it is ready":        {InitializerGroupPrefix + "root:a", phaseReady},
		"a terminator before termination":        {TerminatorGroupPrefix + "root:z", phaseReady},
		"an initializer during termination":      {InitializerGroupPrefix + "root:a", phaseTerminating},
		"a terminator while it is being deleted": {TerminatorGroupPrefix + "root:z", phaseDeleting},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAccessRequest(&user.DefaultInfo{Name: "x", Groups: []string{tc.group}},
				state{exists: true, phase: tc.phase, initializers: []string{"root:a"}, terminators: []string{"root:z"}})
			if group, ok := s.lifecycleGroup(); ok {
				t.Errorf("group %s is effective in phase %s", group, tc.phase)
			}
		})
	}
}

func TestSystemResources(t *testing.T) {
	for name, tc := range map[string]struct {
		attributes authorizer.AttributesRecord
		want       authorizer.Decision
	}{
		"denies writing the status of a binding":                 {authorizer.AttributesRecord{Verb: "update", APIGroup: "apis.kcp.io", Resource: "apibindings", Subresource: "status", ResourceRequest: true}, authorizer.DecisionDeny},
		"denies reading the status of an export":                 {authorizer.AttributesRecord{Verb: "get", APIGroup: "apis.kcp.io", Resource: "apiexports", Subresource: "status", ResourceRequest: true}, authorizer.DecisionDeny},
		"delegates for the binding itself":                       {authorizer.AttributesRecord{Verb: "update", APIGroup: "apis.kcp.io", Resource: "apibindings", ResourceRequest: true}, delegates},
		"delegates for the content of an export":                 {authorizer.AttributesRecord{Verb: "get", APIGroup: "apis.kcp.io", Resource: "apiexports", Subresource: "content", ResourceRequest: true}, delegates},
		"delegates for a resource of that name in another group": {authorizer.AttributesRecord{Verb: "get", APIGroup: "example.com", Resource: "apiexports", Subresource: "status", ResourceRequest: true}, delegates},
		"delegates for paths":                                    {authorizer.AttributesRecord{Verb: "get", Path: "/apis"}, delegates},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, checkSystemResources(&accessRequest{attributes: tc.attributes}), tc.want)
		})
	}
}

func TestTenancyPolicy(t *testing.T) {
	status := func(verb, resource string) authorizer.AttributesRecord {
		return authorizer.AttributesRecord{Verb: verb, APIGroup: "tenancy.kcp.io", Resource: resource, Subresource: "status", ResourceRequest: true}
	}
	for name, tc := range map[string]struct {
		subject accessRequest
		want    authorizer.Decision
	}{
		"patch of a workspace by a tenant":           {accessRequest{attributes: status("patch", "workspaces")}, authorizer.DecisionNoOpinion},
		"update of a type by a tenant":               {accessRequest{attributes: status("update", "workspacetypes")}, authorizer.DecisionNoOpinion},
		"read by a tenant":                           {accessRequest{attributes: status("get", "workspaces")}, delegates},
		"update of the workspace itself by a tenant": {accessRequest{attributes: authorizer.AttributesRecord{Verb: "update", APIGroup: "tenancy.kcp.io", Resource: "workspaces", ResourceRequest: true}}, delegates},
		"update by kcp's administrators":             {accessRequest{attributes: status("update", "workspaces"), groups: map[string]bool{GroupAdmin: true}}, delegates},
		"update by the bootstrapper":                 {accessRequest{attributes: status("update", "workspaces"), groups: map[string]bool{GroupBootstrapper: true}}, delegates},
		"status of another resource":                 {accessRequest{attributes: authorizer.AttributesRecord{Verb: "update", APIGroup: "core.kcp.io", Resource: "logicalclusters", Subresource: "status", ResourceRequest: true}}, delegates},
	} {
		t.Run(name, func(t *testing.T) { expect(t, checkTenancyPolicy(&tc.subject), tc.want) })
	}
}

func TestDeniesImpersonation(t *testing.T) {
	member := func(groups ...string) *user.DefaultInfo { return &user.DefaultInfo{Name: "alice", Groups: groups} }
	newAttributes := func(u *user.DefaultInfo, verb, resource, subresource, name string) authorizer.AttributesRecord {
		return authorizer.AttributesRecord{User: u, Verb: verb, Resource: resource, Subresource: subresource, Name: name, ResourceRequest: true}
	}
	for name, tc := range map[string]struct {
		attributes authorizer.AttributesRecord
		denied     bool
	}{
		"any user":                          {newAttributes(member(), "impersonate", "users", "", "bob"), false},
		"an ordinary group":                 {newAttributes(member(), "impersonate", "groups", "", "team"), false},
		"masters":                           {newAttributes(member(), "impersonate", "groups", "", "system:masters"), true},
		"kcp's administrators":              {newAttributes(member(), "impersonate", "groups", "", "system:kcp:admin"), true},
		"kcp's administrators, by a member": {newAttributes(member("system:kcp:admin"), "impersonate", "groups", "", "system:kcp:admin"), false},
		"authenticated group by an unauthenticated user": {newAttributes(member(), "impersonate", "groups", "", "system:authenticated"), true},
		"authenticated group by an authenticated user":   {newAttributes(member("system:authenticated"), "impersonate", "groups", "", "system:authenticated"), false},
		"an initializer":                                  {newAttributes(member(), "impersonate", "groups", "", InitializerGroupPrefix+"root:a"), true},
		"a protected group inside a warrant":              {newAttributes(member(), "impersonate", "userextras", WarrantExtraKey, `{"user":"x","groups":["system:kcp:admin"]}`), true},
		"a warrant without one":                           {newAttributes(member(), "impersonate", "userextras", WarrantExtraKey, `{"user":"x","groups":["system:authenticated","g"]}`), false},
		"origin in another logical cluster":               {newAttributes(member(), "impersonate", "userextras", ClusterNameExtraKey, "b"), false},
		"constrained: any user":                           {newAttributes(member(), "impersonate:user-info", "users", "", "bob"), false},
		"constrained: on a request":                       {newAttributes(member(), "impersonate-on:user-info:get", "configmaps", "", "x"), false},
		"constrained: an ordinary group":                  {newAttributes(member(), "impersonate:user-info", "groups", "", "team"), false},
		"constrained: kcp's administrators":               {newAttributes(member(), "impersonate:user-info", "groups", "", "system:kcp:admin"), true},
		"constrained: by a member":                        {newAttributes(member("system:kcp:admin"), "impersonate:user-info", "groups", "", "system:kcp:admin"), false},
		"constrained: all groups at once":                 {newAttributes(member(), "impersonate:user-info", "groups", "", "*"), true},
		"constrained: all extra values at once":           {newAttributes(member(), "impersonate:user-info", "userextras", "*", "*"), true},
		"constrained: a protected group inside a warrant": {newAttributes(member(), "impersonate:user-info", "userextras", WarrantExtraKey, `{"user":"x","groups":["system:kcp:admin"]}`), true},
		"constrained: a service account":                  {newAttributes(member(), "impersonate:serviceaccount", "serviceaccounts", "", "x"), false},
		"constrained: a node":                             {newAttributes(member(), "impersonate:arbitrary-node", "nodes", "", "x"), false},
		"constrained: an associated node":                 {newAttributes(member(), "impersonate:associated-node", "nodes", "", "*"), true},
		"constrained: on a request of an associated node": {newAttributes(member(), "impersonate-on:associated-node:list", "configmaps", "", ""), true},
		"another verb":                                    {newAttributes(member(), "get", "groups", "", "system:masters"), false},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := logicalcluster.With(context.Background(), logicalcluster.MustParseName("c"))
			if reason, denied := deniesImpersonation(ctx, tc.attributes); denied != tc.denied {
				t.Errorf("denied = %v (%s), want %v", denied, reason, tc.denied)
			}
		})
	}
}
