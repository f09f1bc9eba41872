package tenancy_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

const maintain = tenancyv1alpha1.APIBindingLifecycleModeMaintain

// bindingsEnv is a shard with a provider's workspace, which contains types and exports.
type bindingsEnv struct {
	*shardtesting.Shard
	c        client.Client
	provider string // cluster name
	numbered int
}

func newBindingsEnv(t *testing.T) *bindingsEnv {
	f := &bindingsEnv{Shard: shardtesting.Start(t)}
	f.c = f.Client(t, f.Masters(t))
	f.provider = f.NewWorkspace(t, "root", "provider").Spec.Cluster
	return f
}

func (e *bindingsEnv) clusterContext(cluster string) context.Context {
	return shardtesting.In(context.Background(), cluster)
}

// createExport creates an export of its own kind, with claims.
func (e *bindingsEnv) createExport(t *testing.T, name string, claims ...apisv1alpha2.PermissionClaim) {
	t.Helper()
	gr := schema.GroupResource{Group: name + ".example.io", Resource: name}
	e.NewExport(t, e.provider, name, gr, "Kind"+name, func(export *apisv1alpha2.APIExport) { export.Spec.PermissionClaims = claims })
}

func claim(resource string) apisv1alpha2.PermissionClaim {
	return apisv1alpha2.PermissionClaim{GroupResource: apisv1alpha2.GroupResource{Resource: resource}, Verbs: []string{"get"}}
}

// createType creates a type that binds "<path>/<export>", or exports of its own cluster.
func (e *bindingsEnv) createType(t *testing.T, name string, mode tenancyv1alpha1.APIBindingLifecycleMode, exports ...string) *tenancyv1alpha1.WorkspaceType {
	t.Helper()
	of := &tenancyv1alpha1.WorkspaceType{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if mode != "" {
		of.Spec.DefaultAPIBindingLifecycle = ptr.To(mode)
	}
	of.Spec.DefaultAPIBindings = entries(exports...)
	must(t, e.c.Create(e.clusterContext(e.provider), of))
	return of
}

func entries(exports ...string) []tenancyv1alpha1.APIExportReference {
	var all []tenancyv1alpha1.APIExportReference
	for _, export := range exports {
		path, name, ok := strings.Cut(export, "/")
		if !ok {
			path, name = "", export
		}
		all = append(all, tenancyv1alpha1.APIExportReference{Path: path, Export: name})
	}
	return all
}

func (e *bindingsEnv) setExports(t *testing.T, of *tenancyv1alpha1.WorkspaceType, exports ...string) {
	t.Helper()
	e.update(t, e.provider, of, func() { of.Spec.DefaultAPIBindings = entries(exports...) })
}

func (e *bindingsEnv) update(t *testing.T, cluster string, obj client.Object, mutate func()) {
	t.Helper()
	shardtesting.Eventually(t, "a change of "+obj.GetName(), func(context.Context) error {
		if err := e.c.Get(e.clusterContext(cluster), client.ObjectKeyFromObject(obj), obj); err != nil {
			return err
		}
		mutate()
		return e.c.Update(e.clusterContext(cluster), obj)
	})
}

// createWorkspace creates a workspace of a type without waiting, and createReadyWorkspace waits until it is ready and
// returns its cluster.
func (e *bindingsEnv) createWorkspace(t *testing.T, of string) string {
	t.Helper()
	e.numbered++
	name := fmt.Sprintf("consumer-%d", e.numbered)
	must(t, e.c.Create(e.clusterContext("root"), &tenancyv1alpha1.Workspace{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       tenancyv1alpha1.WorkspaceSpec{Type: &tenancyv1alpha1.WorkspaceTypeReference{Path: "root:provider", Name: tenancyv1alpha1.WorkspaceTypeName(of)}},
	}))
	return name
}

func (e *bindingsEnv) createReadyWorkspace(t *testing.T, of string) string {
	t.Helper()
	return e.WaitReady(t, "root", e.createWorkspace(t, of)).Spec.Cluster
}

func (e *bindingsEnv) bindings(t *testing.T, cluster string) []apisv1alpha2.APIBinding {
	t.Helper()
	var list apisv1alpha2.APIBindingList
	must(t, e.c.List(e.clusterContext(cluster), &list))
	return list.Items
}

// boundExports lists "<export>:<phase>" of all bindings.
func (e *bindingsEnv) boundExports(t *testing.T, cluster string) string {
	t.Helper()
	var all []string
	for _, binding := range e.bindings(t, cluster) {
		all = append(all, binding.Spec.Reference.Export.Name+":"+string(binding.Status.Phase))
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func (e *bindingsEnv) waitBound(t *testing.T, cluster, want string) {
	t.Helper()
	shardtesting.Eventually(t, "bindings "+want, func(context.Context) error {
		if got := e.boundExports(t, cluster); got != want {
			return fmt.Errorf("there are %s", got)
		}
		return nil
	})
}

func (e *bindingsEnv) binding(t *testing.T, cluster, export string) *apisv1alpha2.APIBinding {
	t.Helper()
	for _, binding := range e.bindings(t, cluster) {
		if binding.Spec.Reference.Export.Name == export {
			return &binding
		}
	}
	t.Fatalf("no binding of %s", export)
	return nil
}

func (e *bindingsEnv) logicalCluster(t *testing.T, cluster string) *corev1alpha1.LogicalCluster {
	t.Helper()
	lc := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}
	must(t, e.c.Get(e.clusterContext(cluster), client.ObjectKeyFromObject(lc), lc))
	return lc
}

func TestDefaultBindings(t *testing.T) {
	f := newBindingsEnv(t)
	for _, name := range []string{"widgets", "gadgets", "gizmos"} {
		f.createExport(t, name)
	}
	for _, row := range []struct {
		name string
		run  func(*testing.T, *bindingsEnv)
	}{
		{"universal workspace has the default bindings", testUniversal},
		{"new export is bound in existing workspaces of maintained types only", testTypeGainsExport},
		{"deleted maintained binding is recreated", testDeletedBindingIsRecreated},
		{"changed maintained binding is restored", testChangedBindingIsRestored},
		{"new claim is accepted in maintained bindings, and reported in others", testNewClaim},
		{"removed export stays bound", testTypeDropsExport},
		{"missing export delays initialization", testMissingExport},
		{"missing export of a maintained type is bound later, without a condition", testMissingMaintainedExport},
		{"no waiting condition after success", testSuccess},
		{"default selector is accepted, and copied by the initializer only", testDefaultSelector},
		{"duplicate references are bound once", testDuplicateAliases},
		{"two paths of an export are two bindings, of which one is enough", testDuplicateReferences},
		{"bindings of extended types", testExtendedType},
	} {
		t.Run(row.name, func(t *testing.T) { row.run(t, f) })
	}
}

func testUniversal(t *testing.T, f *bindingsEnv) {
	cluster := f.NewWorkspace(t, "root", "plain").Spec.Cluster
	f.waitBound(t, cluster, "tenancy.kcp.io:Bound topology.kcp.io:Bound")
	for _, binding := range f.bindings(t, cluster) {
		if export := binding.Spec.Reference.Export; export.Path != "root" || !strings.HasPrefix(binding.Name, export.Name+"-") || len(binding.Name) != len(export.Name)+6 {
			t.Errorf("%s references %v", binding.Name, export)
		}
	}
	must(t, f.c.Create(f.clusterContext(cluster), &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: "child"}}))
	f.WaitReady(t, cluster, "child")
}

func testTypeGainsExport(t *testing.T, f *bindingsEnv) {
	kept, once := f.createType(t, "gain-kept", maintain, "widgets"), f.createType(t, "gain-once", "", "widgets")
	maintained, initialized := f.createReadyWorkspace(t, "gain-kept"), f.createReadyWorkspace(t, "gain-once")
	f.setExports(t, once, "widgets", "gadgets")
	f.setExports(t, kept, "widgets", "gadgets")
	f.waitBound(t, maintained, "gadgets:Bound widgets:Bound")
	if got := f.boundExports(t, initialized); got != "widgets:Bound" {
		t.Errorf("the workspace of the other type has %s", got)
	}
}

func testDeletedBindingIsRecreated(t *testing.T, f *bindingsEnv) {
	f.createType(t, "deleted", maintain, "widgets")
	cluster := f.createReadyWorkspace(t, "deleted")
	before := f.binding(t, cluster, "widgets")
	must(t, f.c.Delete(f.clusterContext(cluster), before))
	shardtesting.Eventually(t, "the recreated binding", func(context.Context) error {
		now := &apisv1alpha2.APIBinding{}
		if err := f.c.Get(f.clusterContext(cluster), client.ObjectKeyFromObject(before), now); err != nil {
			return err
		}
		if now.UID == before.UID || now.Status.Phase != apisv1alpha2.APIBindingPhaseBound {
			return fmt.Errorf("it has UID %s and phase %q", now.UID, now.Status.Phase)
		}
		return nil
	})
}

func testChangedBindingIsRestored(t *testing.T, f *bindingsEnv) {
	f.createExport(t, "claiming", claim("configmaps"))
	f.createType(t, "changed", maintain, "claiming")
	cluster := f.createReadyWorkspace(t, "changed")
	binding := f.binding(t, cluster, "claiming")
	if claims := binding.Spec.PermissionClaims; len(claims) != 1 || claims[0].State != apisv1alpha2.ClaimAccepted || !claims[0].Selector.MatchAll {
		t.Fatalf("it accepts %+v", claims)
	}
	f.update(t, cluster, binding, func() { binding.Spec.PermissionClaims[0].State = apisv1alpha2.ClaimRejected })
	generation := binding.Generation
	shardtesting.Eventually(t, "the claim to be accepted again", func(context.Context) error {
		if now := f.binding(t, cluster, "claiming"); now.Generation == generation || now.Spec.PermissionClaims[0].State != apisv1alpha2.ClaimAccepted {
			return fmt.Errorf("it is %+v", now.Spec)
		}
		return nil
	})
}

func testNewClaim(t *testing.T, f *bindingsEnv) {
	f.createExport(t, "asking", claim("configmaps"))
	f.createType(t, "asked-kept", maintain, "asking")
	f.createType(t, "asked-once", tenancyv1alpha1.APIBindingLifecycleModeInitializeOnly, "asking")
	maintained, initialized := f.createReadyWorkspace(t, "asked-kept"), f.createReadyWorkspace(t, "asked-once")
	export := &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: "asking"}}
	f.update(t, f.provider, export, func() { export.Spec.PermissionClaims = append(export.Spec.PermissionClaims, claim("secrets")) })
	shardtesting.Eventually(t, "the claim in both", func(context.Context) error {
		if accepted := len(f.binding(t, maintained, "asking").Spec.PermissionClaims); accepted != 2 {
			return fmt.Errorf("the maintained binding accepts %d claims", accepted)
		}
		if reported := len(f.binding(t, initialized, "asking").Status.ExportPermissionClaims); reported != 2 {
			return fmt.Errorf("the other binding reports %d claims", reported)
		}
		return nil
	})
	if accepted := len(f.binding(t, initialized, "asking").Spec.PermissionClaims); accepted != 1 {
		t.Errorf("the other binding accepts %d claims", accepted)
	}
}

func testTypeDropsExport(t *testing.T, f *bindingsEnv) {
	kept := f.createType(t, "drop", maintain, "widgets", "gadgets")
	cluster := f.createReadyWorkspace(t, "drop")
	f.setExports(t, kept, "widgets", "gizmos")
	f.waitBound(t, cluster, "gadgets:Bound gizmos:Bound widgets:Bound")
}

func testMissingExport(t *testing.T, f *bindingsEnv) {
	f.createType(t, "missing", "", "late", "widgets")
	name := f.createWorkspace(t, "missing")
	var cluster string
	shardtesting.Eventually(t, "the condition of the workspace", func(context.Context) error {
		workspace := &tenancyv1alpha1.Workspace{}
		if err := f.c.Get(f.clusterContext("root"), client.ObjectKey{Name: name}, workspace); err != nil {
			return err
		}
		cluster = workspace.Spec.Cluster
		if cluster == "" || workspace.Status.Phase != corev1alpha1.LogicalClusterPhaseInitializing {
			return fmt.Errorf("it is %s", workspace.Status.Phase)
		}
		condition := conditionsv1alpha1.Get(f.logicalCluster(t, cluster), corev1alpha1.APIBindingsInitialized)
		if condition == nil || condition.Reason != corev1alpha1.ReasonAPIBindingErrors || condition.Severity != conditionsv1alpha1.SeverityError || !strings.Contains(condition.Message, `:late"`) {
			return fmt.Errorf("the condition is %+v", condition)
		}
		return nil
	})
	f.waitBound(t, cluster, "widgets:Bound")
	f.createExport(t, "late")
	f.WaitReady(t, "root", name)
	f.waitBound(t, cluster, "late:Bound widgets:Bound")
}

func testMissingMaintainedExport(t *testing.T, f *bindingsEnv) {
	kept := f.createType(t, "missing-kept", maintain, "widgets")
	cluster := f.createReadyWorkspace(t, "missing-kept")
	f.waitReconciled(t, cluster, true)
	f.setExports(t, kept, "widgets", "later", "gadgets")
	f.waitBound(t, cluster, "gadgets:Bound widgets:Bound")
	if !conditionsv1alpha1.IsTrue(f.logicalCluster(t, cluster), corev1alpha1.APIBindingsReconciled) {
		t.Errorf("the conditions are %+v", f.logicalCluster(t, cluster).Status.Conditions)
	}
	f.createExport(t, "later")
	f.waitBound(t, cluster, "gadgets:Bound later:Bound widgets:Bound")
}

func testSuccess(t *testing.T, f *bindingsEnv) {
	f.createType(t, "success-kept", maintain, "widgets")
	f.createType(t, "success-once", "", "widgets")
	for of, reconciled := range map[string]bool{"success-kept": true, "success-once": false} {
		cluster := f.createReadyWorkspace(t, of)
		lc := f.logicalCluster(t, cluster)
		if conditionsv1alpha1.Get(lc, corev1alpha1.APIBindingsInitialized) != nil || len(lc.Status.Initializers) != 0 {
			t.Errorf("%s: %+v", of, lc.Status)
		}
		f.waitReconciled(t, cluster, reconciled)
	}
}

// waitReconciled waits for the condition of maintained bindings. The cache that maintenance reads may not have new bindings yet: then the
// condition is False until it has.
func (e *bindingsEnv) waitReconciled(t *testing.T, cluster string, want bool) {
	t.Helper()
	shardtesting.Eventually(t, fmt.Sprintf("APIBindingsReconciled of %s to be %t", cluster, want), func(context.Context) error {
		if lc := e.logicalCluster(t, cluster); conditionsv1alpha1.IsTrue(lc, corev1alpha1.APIBindingsReconciled) != want {
			return fmt.Errorf("the conditions are %+v", lc.Status.Conditions)
		}
		return nil
	})
}

func testDefaultSelector(t *testing.T, f *bindingsEnv) {
	selecting := claim("configmaps")
	selecting.DefaultSelector = &apisv1alpha2.PermissionClaimSelector{LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{"for": "provider"}}}
	f.createExport(t, "selecting", selecting)
	f.createType(t, "selector-kept", maintain, "selecting")
	f.createType(t, "selector-once", "", "selecting")
	for of, repeated := range map[string]bool{"selector-kept": false, "selector-once": true} {
		cluster := f.createReadyWorkspace(t, of)
		shardtesting.Eventually(t, "the claim of "+of, func(context.Context) error {
			accepted := f.binding(t, cluster, "selecting").Spec.PermissionClaims[0]
			if accepted.Selector.MatchAll || accepted.Selector.MatchLabels["for"] != "provider" || (accepted.DefaultSelector != nil) != repeated {
				return fmt.Errorf("it is %+v", accepted)
			}
			return nil
		})
	}
}

func testDuplicateAliases(t *testing.T, f *bindingsEnv) {
	f.createType(t, "alike-base", "", "root:provider/widgets")
	leaf := &tenancyv1alpha1.WorkspaceType{ObjectMeta: metav1.ObjectMeta{Name: "alike"}}
	leaf.Spec.Extend.With = []tenancyv1alpha1.WorkspaceTypeReference{{Path: "root:provider", Name: "alike-base"}}
	leaf.Spec.DefaultAPIBindings = entries("root:provider/widgets")
	must(t, f.c.Create(f.clusterContext(f.provider), leaf))
	if got := f.boundExports(t, f.createReadyWorkspace(t, "alike")); got != "widgets:Bound" {
		t.Errorf("the workspace has %s", got)
	}
}

func testDuplicateReferences(t *testing.T, f *bindingsEnv) {
	f.createType(t, "spellings", "", "root:provider/widgets", f.provider+"/widgets")
	cluster := f.createReadyWorkspace(t, "spellings")
	var complete, refused int
	for _, binding := range f.bindings(t, cluster) {
		switch {
		case conditionsv1alpha1.IsTrue(&binding, apisv1alpha2.InitialBindingCompleted):
			complete++
		case conditionsv1alpha1.GetReason(&binding, apisv1alpha2.InitialBindingCompleted) == apisv1alpha2.NamingConflictsReason:
			refused++
		}
	}
	if complete != 1 || refused != 1 {
		t.Errorf("the workspace has %s", f.boundExports(t, cluster))
	}
}

func testExtendedType(t *testing.T, f *bindingsEnv) {
	must(t, f.c.Create(f.clusterContext("root"), &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: "org"}, Spec: tenancyv1alpha1.WorkspaceSpec{
		Type: &tenancyv1alpha1.WorkspaceTypeReference{Path: "root", Name: "organization"},
	}}))
	f.waitBound(t, f.WaitReady(t, "root", "org").Spec.Cluster, "tenancy.kcp.io:Bound topology.kcp.io:Bound")
}

// TestPlainUsers creates bindings for a user who is administrator of one workspace, and otherwise has only the
// permissions of all users.
func TestPlainUsers(t *testing.T) {
	s := shardtesting.Start(t)
	config := s.Masters(t)
	config.Impersonate.UserName, config.Impersonate.Groups = "alice", []string{"system:authenticated"}
	alice := s.Client(t, config)
	root := shardtesting.In(t.Context(), "root")
	if err := alice.Create(root, &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: "refused"}}); !apierrors.IsForbidden(err) {
		t.Errorf("a workspace in root: %v", err)
	}

	masters := s.Client(t, s.Masters(t))
	own := s.NewWorkspace(t, "root", "own").Spec.Cluster
	must(t, masters.Create(shardtesting.In(t.Context(), own), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "alice"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "alice"}},
	}))
	in := shardtesting.In(t.Context(), own)
	shardtesting.Eventually(t, "the authorizer to observe the binding", func(context.Context) error {
		return alice.List(in, &rbacv1.ClusterRoleBindingList{})
	})
	for export, allowed := range map[string]bool{
		"tenancy.kcp.io": true, "topology.kcp.io": true,
		"shards.core.kcp.io": false, "cache.kcp.io": false, "migration.kcp.io": false, "nothing": false,
	} {
		t.Run(export, func(t *testing.T) {
			binding := &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: "mine." + export}}
			binding.Spec.Reference.Export = &apisv1alpha2.ExportBindingReference{Path: "root", Name: export}
			err := alice.Create(in, binding)
			if (err == nil) != allowed || (err != nil && !apierrors.IsForbidden(err)) {
				t.Errorf("got %v", err)
			}
		})
	}
}
