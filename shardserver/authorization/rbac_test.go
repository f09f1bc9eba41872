package authorization_test

import (
	"context"
	"fmt"
	goruntime "runtime"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	rbacapi "k8s.io/kubernetes/pkg/apis/rbac"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/authorization"
	"github.com/atoll-dev/atoll/shardserver/authorization/shardtest"
)

var (
	clusterA = logicalcluster.MustParseName("a")
	clusterB = logicalcluster.MustParseName("b")

	access         = rbacapi.PolicyRule{Verbs: []string{"access"}, NonResourceURLs: []string{"/"}}
	readConfigMaps = rbacapi.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"configmaps"}}
	writeRBAC      = rbacapi.PolicyRule{Verbs: []string{"create", "update"}, APIGroups: []string{rbacapi.GroupName}, Resources: []string{"*"}}
)

// newUser returns an authenticated user.
func newUser(name string, groups ...string) *user.DefaultInfo {
	return &user.DefaultInfo{Name: name, Groups: append(groups, user.AllAuthenticated)}
}

// getConfigMap returns the request that most tests authorize.
func getConfigMap(u user.Info) authorizer.AttributesRecord {
	return authorizer.AttributesRecord{User: u, Verb: "get", Resource: "configmaps", Namespace: "default", Name: "x", ResourceRequest: true}
}

func isAllowed(t *testing.T, s *shardtest.Shard, ctx context.Context, attributes authorizer.Attributes) bool {
	t.Helper()
	decision, reason, err := s.Authorizer.Authorize(ctx, attributes)
	if err != nil {
		t.Fatal(err)
	}
	if allowed := decision == authorizer.DecisionAllow; reason != map[bool]string{true: "access granted", false: "access denied"}[allowed] {
		t.Errorf("the reason %q discloses more than the decision", reason)
	}
	return decision == authorizer.DecisionAllow
}

// authorizeCase is one request with the expected decision.
type authorizeCase struct {
	name       string
	ctx        context.Context
	attributes authorizer.AttributesRecord
	allowed    bool
}

func runCases(t *testing.T, s *shardtest.Shard, checks []authorizeCase) {
	t.Helper()
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			if got := isAllowed(t, s, c.ctx, c.attributes); got != c.allowed {
				t.Errorf("allowed = %v, want %v", got, c.allowed)
			}
		})
	}
}

func TestPermissionsAreScopedToLogicalCluster(t *testing.T) {
	s := shardtest.Start(t)
	s.CreateCluster(t, clusterA, nil)
	s.CreateCluster(t, clusterB, nil)
	inA, inB := logicalcluster.With(t.Context(), clusterA), logicalcluster.With(t.Context(), clusterB)
	missing := logicalcluster.With(t.Context(), logicalcluster.MustParseName("missing"))
	all := logicalcluster.With(t.Context(), logicalcluster.Wildcard)

	s.Grant(t, clusterA, "alice", shardtest.UserSubject("alice"), access, readConfigMaps)
	s.Grant(t, clusterA, "outsider", shardtest.UserSubject("outsider"), readConfigMaps)
	s.Grant(t, clusterA, "account", rbacapi.Subject{Kind: rbacapi.ServiceAccountKind, Namespace: "ns", Name: "sa"}, readConfigMaps)
	s.Grant(t, clusterB, "foreign", shardtest.UserSubject("system:kcp:serviceaccount:a:ns:sa"), access, readConfigMaps)
	s.Grant(t, logicalcluster.Admin, "bootstrap", shardtest.GroupSubject(authorization.GroupAdmin), access, readConfigMaps)
	// A binding in A to a role that exists only in system:admin.
	if err := s.Create(inA, shardtest.Masters, shardtest.NewClusterRoleBinding("shared", "bootstrap", shardtest.UserSubject("shared"))); err != nil {
		t.Fatal(err)
	}
	account := func(cluster string) *user.DefaultInfo {
		return &user.DefaultInfo{
			Name: "system:serviceaccount:ns:sa", Groups: []string{user.AllAuthenticated},
			Extra: map[string][]string{authorization.ClusterNameExtraKey: {cluster}},
		}
	}
	scopedToB := &user.DefaultInfo{Name: "alice", Extra: map[string][]string{authorization.ScopesExtraKey: {"cluster:b"}}}
	warranted := &user.DefaultInfo{Name: "other", Extra: map[string][]string{authorization.WarrantExtraKey: {`{"user":"alice"}`}}}

	runCases(t, s, []authorizeCase{
		{"binding grants in its own logical cluster", inA, getConfigMap(newUser("alice")), true},
		{"binding does not grant in another logical cluster", inB, getConfigMap(newUser("alice")), false},
		{"permission without access to the workspace", inA, getConfigMap(newUser("outsider")), false},
		{"binding to a role of system:admin", inA, getConfigMap(newUser("shared")), true},
		{"binding to a role of system:admin does not grant in another logical cluster", inB, getConfigMap(newUser("shared")), false},
		{"binding of system:admin grants in A", inA, getConfigMap(newUser("root", authorization.GroupAdmin)), true},
		{"binding of system:admin grants in B", inB, getConfigMap(newUser("root", authorization.GroupAdmin)), true},
		{"binding of system:admin does not grant in system logical clusters", logicalcluster.With(t.Context(), logicalcluster.Admin), getConfigMap(newUser("root", authorization.GroupAdmin)), false},
		{"binding of system:admin does not grant in a missing logical cluster", missing, getConfigMap(newUser("root", authorization.GroupAdmin)), false},
		{"masters in a missing logical cluster", missing, getConfigMap(shardtest.Masters), true},
		{"masters with the wildcard", all, getConfigMap(shardtest.Masters), true},
		{"administrators with the wildcard", all, getConfigMap(newUser("root", authorization.GroupAdmin)), false},
		{"service account in its own logical cluster", inA, getConfigMap(account("a")), true},
		{"service account of B with the name of one of A", inA, getConfigMap(account("b")), false},
		{"global name of a service account", inB, getConfigMap(account("a")), true},
		{"user scoped to another logical cluster", inA, getConfigMap(scopedToB), false},
		{"warrant", inA, getConfigMap(warranted), true},
		{"request without a logical cluster", t.Context(), getConfigMap(newUser("alice")), false},
		{"path that is always allowed", t.Context(), authorizer.AttributesRecord{User: newUser("alice"), Verb: "get", Path: "/livez"}, true},
		{"verb that is not granted", inA, authorizer.AttributesRecord{User: newUser("alice"), Verb: "delete", Resource: "configmaps", ResourceRequest: true}, false},
	})

	s.SetPhase(t, clusterA, corev1alpha1.LogicalClusterPhaseUnavailable)
	runCases(t, s, []authorizeCase{{"unavailable logical cluster", inA, getConfigMap(newUser("alice")), false}})
	s.SetPhase(t, clusterA, corev1alpha1.LogicalClusterPhaseReady)

	s.Delete(t, clusterA, rbacapi.Resource("clusterrolebindings"), "", "alice")
	runCases(t, s, []authorizeCase{{"deleted binding", inA, getConfigMap(newUser("alice")), false}})
}

func TestRequiredGroupsAnnotation(t *testing.T) {
	s := shardtest.Start(t)
	s.CreateCluster(t, clusterA, map[string]string{corev1alpha1.RequiredGroupsAnnotationKey: "staff"})
	s.Grant(t, clusterA, "alice", shardtest.UserSubject("alice"), access, readConfigMaps)
	inA := logicalcluster.With(t.Context(), clusterA)
	runCases(t, s, []authorizeCase{
		{"permission without the required group", inA, getConfigMap(newUser("alice")), false},
		{"permission with the required group", inA, getConfigMap(newUser("alice", "staff")), true},
		{"deep review skips required groups", authorization.WithDeepSAR(inA), getConfigMap(newUser("alice")), true},
	})
}

func TestMetricsAuthorization(t *testing.T) {
	s := shardtest.Start(t)
	scrape := rbacapi.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics"}}
	s.CreateCluster(t, clusterA, nil)
	s.Grant(t, logicalcluster.Root, "scraper", shardtest.UserSubject("scraper"), scrape)
	s.Grant(t, clusterA, "tenant", shardtest.UserSubject("tenant"), access, scrape)
	metrics := func(u user.Info) authorizer.AttributesRecord {
		return authorizer.AttributesRecord{User: u, Verb: "get", Path: "/metrics"}
	}
	runCases(t, s, []authorizeCase{
		{"binding in root, without access to root", t.Context(), metrics(newUser("scraper")), true},
		{"binding in the logical cluster of a tenant", t.Context(), metrics(newUser("tenant")), false},
		{"usage of a logical cluster, with a binding in it", logicalcluster.With(t.Context(), clusterA), metrics(newUser("tenant")), true},
		{"usage of a logical cluster, with a binding in root", logicalcluster.With(t.Context(), clusterA), metrics(newUser("scraper")), false},
		{"other path", t.Context(), authorizer.AttributesRecord{User: newUser("scraper"), Verb: "get", Path: "/metrics/slis"}, false},
	})
}

func TestEscalationCheck(t *testing.T) {
	s := shardtest.Start(t)
	s.CreateCluster(t, clusterA, nil)
	s.CreateCluster(t, clusterB, nil)
	s.Grant(t, logicalcluster.Admin, "cluster-admin", shardtest.GroupSubject(authorization.GroupAdmin),
		rbacapi.PolicyRule{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}},
		rbacapi.PolicyRule{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}})
	s.Grant(t, clusterA, "alice", shardtest.UserSubject("alice"), access, writeRBAC)
	s.Grant(t, clusterB, "alice", shardtest.UserSubject("alice"), access, writeRBAC, readConfigMaps)
	inA, inB := logicalcluster.With(t.Context(), clusterA), logicalcluster.With(t.Context(), clusterB)

	for i, tc := range []struct {
		name    string
		ctx     context.Context
		user    *user.DefaultInfo
		obj     any
		refused bool
	}{
		{"grant without having the permission", inA, newUser("alice"), readConfigMaps, true},
		{"grant of a permission in another logical cluster", inB, newUser("alice"), readConfigMaps, false},
		{"grant of an own permission", inA, newUser("alice"), access, false},
		{"binding to a role of system:admin without having it", inA, newUser("alice"), "cluster-admin", true},
		{"binding to a role of system:admin by a user with it", inA, newUser("root", authorization.GroupAdmin), "cluster-admin", false},
		{"grant by a cluster-admin of system:admin", inA, newUser("root", authorization.GroupAdmin), readConfigMaps, false},
		{"grant out of scope", inB, &user.DefaultInfo{Name: "alice", Extra: map[string][]string{authorization.ScopesExtraKey: {"cluster:a"}}}, readConfigMaps, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			name := fmt.Sprintf("escalation-%d", i)
			var err error
			switch obj := tc.obj.(type) {
			case string:
				err = s.Create(tc.ctx, tc.user, shardtest.NewClusterRoleBinding(name, obj, shardtest.UserSubject("mallory")))
			case rbacapi.PolicyRule:
				err = s.Create(tc.ctx, tc.user, &rbacapi.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacapi.PolicyRule{obj}})
			}
			if tc.refused != apierrors.IsForbidden(err) || (!tc.refused && err != nil) {
				t.Errorf("got %v, refused should be %v", err, tc.refused)
			}
		})
	}
}

func TestRulesReviewMergesLocalAndBootstrap(t *testing.T) {
	s := shardtest.Start(t)
	s.CreateCluster(t, clusterA, nil)
	s.Grant(t, clusterA, "local", shardtest.UserSubject("alice"), readConfigMaps)
	s.Grant(t, logicalcluster.Admin, "bootstrap", shardtest.GroupSubject(user.AllAuthenticated), access)
	resources, urls, _, err := s.Authorizer.RulesFor(logicalcluster.With(t.Context(), clusterA), newUser("alice"), "default")
	if err != nil || len(resources) != 1 || len(urls) != 1 || resources[0].GetResources()[0] != "configmaps" || urls[0].GetNonResourceURLs()[0] != "/" {
		t.Errorf("got %v, %v, %v", resources, urls, err)
	}
	s.Grant(t, clusterA, "again", shardtest.UserSubject("system:serviceaccount:ns:sa"), readConfigMaps, access)
	account := newUser("system:serviceaccount:ns:sa")
	account.Extra = map[string][]string{authorization.ClusterNameExtraKey: {clusterA.String()}}
	resources, urls, _, err = s.Authorizer.RulesFor(logicalcluster.With(t.Context(), clusterA), account, "default")
	if err != nil || len(resources) != 1 || len(urls) != 1 {
		t.Errorf("rules of a service account, which has two names: %v, %v, %v", resources, urls, err)
	}
	if _, _, _, err := s.Authorizer.RulesFor(t.Context(), newUser("alice"), ""); err == nil || !strings.Contains(err.Error(), "no single logical cluster") {
		t.Errorf("without a logical cluster there are no rules, got %v", err)
	}
}

// BenchmarkAuthorize authorizes a request of a workspace's user with a policy of system:admin of the usual size.
func BenchmarkAuthorize(b *testing.B) {
	s := shardtest.Start(b)
	s.CreateCluster(b, clusterA, nil)
	for i := range 30 {
		s.Grant(b, logicalcluster.Admin, fmt.Sprintf("bootstrap-%d", i), shardtest.GroupSubject(fmt.Sprintf("group-%d", i)), readConfigMaps, access)
	}
	s.Grant(b, logicalcluster.Admin, "discovery", shardtest.GroupSubject(user.AllAuthenticated),
		rbacapi.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{"/api", "/apis", "/openapi"}})
	s.Grant(b, clusterA, "alice", shardtest.UserSubject("alice"), access, readConfigMaps)
	ctx := logicalcluster.With(b.Context(), clusterA)
	attributes := getConfigMap(newUser("alice"))
	measure := func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if decision, _, err := s.Authorizer.Authorize(ctx, attributes); decision != authorizer.DecisionAllow {
				b.Fatal(decision, err)
			}
		}
	}
	b.Run("without watch", measure)
	go s.Authorizer.Run(b.Context())
	shardtest.Eventually(b, s.Authorizer.HasSynced)
	b.Run("with watch", measure)
}

func TestBootstrapPolicyIsWatched(t *testing.T) {
	s := shardtest.Start(t)
	s.CreateCluster(t, clusterA, nil)
	inA := logicalcluster.With(t.Context(), clusterA)
	allowed := func(u *user.DefaultInfo) func() bool {
		return func() bool { return isAllowed(t, s, inA, getConfigMap(u)) }
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { s.Authorizer.Run(ctx) })
	shardtest.Eventually(t, s.Authorizer.HasSynced)

	u := newUser("root", authorization.GroupAdmin)
	if allowed(u)() {
		t.Fatal("the request was allowed before the binding")
	}
	s.Grant(t, logicalcluster.Admin, "bootstrap", shardtest.GroupSubject(authorization.GroupAdmin), access, readConfigMaps)
	shardtest.Eventually(t, allowed(u))
	s.Delete(t, logicalcluster.Admin, rbacapi.Resource("clusterrolebindings"), "", "bootstrap")
	shardtest.Eventually(t, func() bool { return !allowed(u)() })

	cancel()
	running.Wait()
	if s.Authorizer.HasSynced() {
		t.Error("the snapshot was kept without a watch")
	}
	// Storages of the test server may start goroutines at any time; none of those of the watches may be left.
	shardtest.Eventually(t, func() bool {
		stacks := make([]byte, 16<<20)
		return !strings.Contains(string(stacks[:goruntime.Stack(stacks, true)]), "shardserver/authorization.(")
	})
}

func TestRoleRefResolution(t *testing.T) {
	s := shardtest.Start(t)
	s.CreateCluster(t, clusterA, nil)
	inA := logicalcluster.With(t.Context(), clusterA)
	inAdmin := logicalcluster.With(t.Context(), logicalcluster.Admin)
	create := func(ctx context.Context, obj runtime.Object) {
		t.Helper()
		if err := s.Create(ctx, shardtest.Masters, obj); err != nil {
			t.Fatal(err)
		}
	}
	role := func(name string, rules ...rbacapi.PolicyRule) *rbacapi.Role {
		return &rbacapi.Role{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Rules: rules}
	}
	bind := func(name, kind, to string) *rbacapi.RoleBinding {
		return &rbacapi.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
			RoleRef: rbacapi.RoleRef{APIGroup: rbacapi.GroupName, Kind: kind, Name: to}, Subjects: []rbacapi.Subject{shardtest.UserSubject(name)}}
	}
	clusterRole := func(name string, rules ...rbacapi.PolicyRule) *rbacapi.ClusterRole {
		return &rbacapi.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
	}
	s.Grant(t, clusterA, "enter", shardtest.GroupSubject(user.AllAuthenticated), access)
	create(inAdmin, clusterRole("both", readConfigMaps))
	create(inAdmin, clusterRole("theirs", readConfigMaps))
	create(inAdmin, role("shared", readConfigMaps))
	create(inAdmin, role("shadowed", readConfigMaps))
	create(inA, clusterRole("both", access))
	create(inA, role("shadowed"))
	for _, binding := range []*rbacapi.RoleBinding{
		bind("ada", "ClusterRole", "both"), bind("bob", "ClusterRole", "theirs"), bind("cy", "Role", "shared"), bind("dan", "Role", "shadowed"),
	} {
		create(inA, binding)
	}
	runCases(t, s, []authorizeCase{
		{"ClusterRole in both", inA, getConfigMap(newUser("ada")), false},
		{"ClusterRole only in system:admin", inA, getConfigMap(newUser("bob")), true},
		{"Role only in system:admin", inA, getConfigMap(newUser("cy")), true},
		{"Role in both", inA, getConfigMap(newUser("dan")), false},
	})
}
