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
		"passes where nothing is required":                   {member(), state{exists: true}, delegates},
		"passes who has the group":                           {member("a"), required("a"), delegates},
		"denies who has not":                                 {member("b"), required("a"), authorizer.DecisionDeny},
		"wants all of a conjunction":                         {member("a"), required("a,b"), authorizer.DecisionDeny},
		"passes who has all of a conjunction":                {member("a", "b"), required("a,b"), delegates},
		"passes who has one of several alternatives":         {member("c"), required("a,b;c"), delegates},
		"denies everybody where the annotation is empty":     {member("a"), required(""), authorizer.DecisionDeny},
		"passes kcp's administrators":                        {member(GroupAdmin), required("a"), delegates},
		"passes the bootstrapper":                            {member(GroupBootstrapper), required("a"), delegates},
		"passes administrators of logical clusters":          {member(GroupLogicalClusterAdmin), state{}, delegates},
		"passes external administrators of logical clusters": {member(GroupExternalLogicalClusterAdmin), state{}, delegates},
		"passes service accounts":                            {&user.DefaultInfo{Name: "system:serviceaccount:ns:sa"}, required("a"), delegates},
		"has no opinion without a logical cluster":           {member("a"), state{}, authorizer.DecisionNoOpinion},
		"counts nothing of a user out of scope": {
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
		"denies where there is no logical cluster":                            {groups(), state{}, authorizer.DecisionDeny},
		"passes administrators of logical clusters before it exists":          {groups(GroupLogicalClusterAdmin), state{}, delegates},
		"external administrators need one":                                    {groups(GroupExternalLogicalClusterAdmin), state{}, authorizer.DecisionDeny},
		"has no opinion while it is being scheduled":                          {groups(GroupAdmin), in("Scheduling"), authorizer.DecisionNoOpinion},
		"has no opinion while it is unavailable":                              {groups(GroupAdmin), in("Unavailable"), authorizer.DecisionNoOpinion},
		"has no opinion in a phase it does not know":                          {groups(GroupAdmin), in("Folding"), authorizer.DecisionNoOpinion},
		"passes a service account of the logical cluster":                     {account("c"), in(phaseReady), delegates},
		"allows an initializer that is waited for":                            {groups(InitializerGroupPrefix + "root:a"), in(phaseInitializing), authorizer.DecisionAllow},
		"allows a terminator that is waited for":                              {groups(TerminatorGroupPrefix + "root:z"), in(phaseTerminating), authorizer.DecisionAllow},
		"a service account of the logical cluster still needs the phase":      {account("c"), in("Scheduling"), authorizer.DecisionNoOpinion},
		"administrators of logical clusters pass while it is being scheduled": {groups(GroupLogicalClusterAdmin), in("Scheduling"), delegates},
	} {
		t.Run(name, func(t *testing.T) { expect(t, content{}.check(newAccessRequest(tc.user, tc.in)), tc.want) })
	}
	t.Run("has no opinion about the shard's own logical clusters", func(t *testing.T) {
		s := newAccessRequest(groups(GroupAdmin), in(phaseReady))
		s.cluster = logicalcluster.Admin
		expect(t, content{}.check(s), authorizer.DecisionNoOpinion)
	})
	for name, mark := range map[string]func(*accessRequest){
		"passes paths of the whole shard": func(s *accessRequest) { s.shardLevel = true },
		"passes deep access reviews":      func(s *accessRequest) { s.deepSAR = true },
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
				t.Errorf("%s counts in phase %s", group, tc.phase)
			}
		})
	}
}

func TestSystemResources(t *testing.T) {
	for name, tc := range map[string]struct {
		attributes authorizer.AttributesRecord
		want       authorizer.Decision
	}{
		"denies writing the status of a binding":   {authorizer.AttributesRecord{Verb: "update", APIGroup: "apis.kcp.io", Resource: "apibindings", Subresource: "status", ResourceRequest: true}, authorizer.DecisionDeny},
		"denies reading the status of an export":   {authorizer.AttributesRecord{Verb: "get", APIGroup: "apis.kcp.io", Resource: "apiexports", Subresource: "status", ResourceRequest: true}, authorizer.DecisionDeny},
		"passes the binding itself":                {authorizer.AttributesRecord{Verb: "update", APIGroup: "apis.kcp.io", Resource: "apibindings", ResourceRequest: true}, delegates},
		"passes the content of an export":          {authorizer.AttributesRecord{Verb: "get", APIGroup: "apis.kcp.io", Resource: "apiexports", Subresource: "content", ResourceRequest: true}, delegates},
		"passes a resource of that name elsewhere": {authorizer.AttributesRecord{Verb: "get", APIGroup: "example.com", Resource: "apiexports", Subresource: "status", ResourceRequest: true}, delegates},
		"passes paths": {authorizer.AttributesRecord{Verb: "get", Path: "/apis"}, delegates},
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
		"no tenant patches a workspace's":      {accessRequest{attributes: status("patch", "workspaces")}, authorizer.DecisionNoOpinion},
		"no tenant updates a type's":           {accessRequest{attributes: status("update", "workspacetypes")}, authorizer.DecisionNoOpinion},
		"tenants read it":                      {accessRequest{attributes: status("get", "workspaces")}, delegates},
		"tenants write the workspace itself":   {accessRequest{attributes: authorizer.AttributesRecord{Verb: "update", APIGroup: "tenancy.kcp.io", Resource: "workspaces", ResourceRequest: true}}, delegates},
		"kcp's administrators write it":        {accessRequest{attributes: status("update", "workspaces"), groups: map[string]bool{GroupAdmin: true}}, delegates},
		"the bootstrapper writes it":           {accessRequest{attributes: status("update", "workspaces"), groups: map[string]bool{GroupBootstrapper: true}}, delegates},
		"the status of something else is free": {accessRequest{attributes: authorizer.AttributesRecord{Verb: "update", APIGroup: "core.kcp.io", Resource: "logicalclusters", Subresource: "status", ResourceRequest: true}}, delegates},
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
		"the authenticated, by the unauthenticated": {newAttributes(member(), "impersonate", "groups", "", "system:authenticated"), true},
		"the authenticated, by one of them":         {newAttributes(member("system:authenticated"), "impersonate", "groups", "", "system:authenticated"), false},
		"an initializer":                            {newAttributes(member(), "impersonate", "groups", "", InitializerGroupPrefix+"root:a"), true},
		"a guarded group inside a warrant":          {newAttributes(member(), "impersonate", "userextras", WarrantExtraKey, `{"user":"x","groups":["system:kcp:admin"]}`), true},
		"a warrant without one":                     {newAttributes(member(), "impersonate", "userextras", WarrantExtraKey, `{"user":"x","groups":["system:authenticated","g"]}`), false},
		"an origin elsewhere":                       {newAttributes(member(), "impersonate", "userextras", ClusterNameExtraKey, "b"), true},
		"an origin elsewhere inside a warrant":      {newAttributes(member(), "impersonate", "userextras", WarrantExtraKey, `{"user":"x","extra":{"`+ClusterNameExtraKey+`":["b"]}}`), true},
		"an origin deep inside a warrant":           {newAttributes(member(), "impersonate", "userextras", WarrantExtraKey, `{"user":"x","extra":{"`+WarrantExtraKey+`":["{\"user\":\"y\",\"extra\":{\"`+ClusterNameExtraKey+`\":[\"b\"]}}"]}}`), true},
		"one's own origin":                          {newAttributes(&user.DefaultInfo{Name: "alice", Extra: map[string][]string{ClusterNameExtraKey: {"b"}}}, "impersonate", "userextras", ClusterNameExtraKey, "b"), false},
		"constrained impersonation":                 {newAttributes(member(), "impersonate:user-info", "users", "", "bob"), true},
		"constrained impersonation on a request":    {newAttributes(member(), "impersonate-on:user-info:get", "configmaps", "", "x"), true},
		"another verb":                              {newAttributes(member(), "get", "groups", "", "system:masters"), false},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := logicalcluster.With(context.Background(), logicalcluster.MustParseName("c"))
			if reason, denied := deniesImpersonation(ctx, tc.attributes); denied != tc.denied {
				t.Errorf("refused = %v (%s), want %v", denied, reason, tc.denied)
			}
		})
	}
}
