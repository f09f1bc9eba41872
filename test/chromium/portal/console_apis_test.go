package portal

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/chromium"
)

// The workspaces of the tests of exports and bindings.
const (
	publisher = "root:publisher"
	consumer  = "root:consumer"
)

// testConsoleBindings: an administrator accepts and rejects a permission claim, and the server does what the page says.
func (e *env) testConsoleBindings(t *testing.T) {
	admin := e.shard.Client(t, e.shard.Admin(t))
	publishing, consuming := e.shard.NewWorkspace(t, "root", "publisher").Spec.Cluster, e.shard.NewWorkspace(t, "root", "consumer").Spec.Cluster
	claim := apisv1alpha2.PermissionClaim{GroupResource: apisv1alpha2.GroupResource{Resource: "configmaps"}, Verbs: []string{"get", "list"}}
	exported := &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Spec: apisv1alpha2.APIExportSpec{PermissionClaims: []apisv1alpha2.PermissionClaim{claim}}}
	if err := admin.Create(shardtesting.In(t.Context(), publishing), exported); err != nil {
		t.Fatal(err)
	}
	slice := &apisv1alpha1.APIExportEndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "endpoints"}, Spec: apisv1alpha1.APIExportEndpointSliceSpec{APIExport: apisv1alpha1.ExportBindingReference{Path: publisher, Name: "settings"}}}
	if err := admin.Create(shardtesting.In(t.Context(), publishing), slice); err != nil {
		t.Fatal(err)
	}
	e.shard.Bind(t, consuming, publisher, "settings")

	page := e.openConsole(t, "operator-token", "workspaces/"+consumer+"?tab=bindings")
	page.WaitTitle(consumer)
	answer := func(text string) {
		t.Helper()
		page.Wait("the answer "+text, fmt.Sprintf("document.querySelector('[data-claim=\"settings/configmaps\"] .phase')?.innerText === %q", text))
	}
	applied := func(want bool) {
		t.Helper()
		shardtesting.Eventually(t, fmt.Sprintf("the claim to be applied: %v", want), func(ctx context.Context) error {
			binding := &apisv1alpha2.APIBinding{}
			if err := admin.Get(shardtesting.In(ctx, consuming), client.ObjectKey{Name: "settings"}, binding); err != nil {
				return err
			}
			got := slices.ContainsFunc(binding.Status.AppliedPermissionClaims, func(scoped apisv1alpha2.ScopedPermissionClaim) bool { return scoped.EqualGRI(claim) })
			if got != want {
				return fmt.Errorf("claims %+v, status %+v", binding.Spec.PermissionClaims, binding.Status)
			}
			return nil
		})
	}
	answer("Not answered")
	page.Click(chromium.Named("Accept the claim to configmaps of settings"))
	page.WaitText("may then get, list with configmaps in " + consumer)
	page.CheckAccessibility("the question before a claim is accepted")
	page.Click(chromium.Named("Accept"))
	answer("Accepted")
	applied(true)
	page.Click(chromium.Named("Reject the claim to configmaps of settings"))
	page.Click(chromium.Named("Reject"))
	answer("Rejected")
	applied(false)

	page.Click(chromium.Named(publisher + ":settings"))
	page.WaitTitle(publisher)
	page.WaitText("configmaps: get, list")
	e.quiet(t, page)
	e.refuseClaim(t, consuming)
}

// refuseClaim: who may only look at bindings is told so, and nothing is written.
func (e *env) refuseClaim(t *testing.T, cluster string) {
	admin, ctx := e.shard.Client(t, e.shard.Admin(t)), shardtesting.In(t.Context(), cluster)
	rules := []rbacv1.PolicyRule{{APIGroups: []string{apisv1alpha2.GroupName}, Resources: []string{"apibindings"}, Verbs: []string{"get", "list", "watch"}}}
	if err := admin.Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "bindings"}, Rules: rules}); err != nil {
		t.Fatal(err)
	}
	e.grant(t, cluster, "victor", "bindings")
	page := e.openConsole(t, "victor-token", "workspaces/"+consumer+"?tab=bindings")
	page.WaitTitle(consumer)
	page.Click(chromium.Named("Accept the claim to configmaps of settings"))
	page.Click(chromium.Named("Accept"))
	page.WaitText("You may not update the API binding settings in " + consumer)
	page.WaitText("It takes the right to get and patch apibindings.apis.kcp.io")
	page.Click(chromium.Named("Cancel"))
	page.Click(chromium.Named("API exports"))
	page.WaitText("You may not list the API exports of " + consumer)
	e.quiet(t, page)
}

// testConsoleExports: an administrator sees identity and endpoints of an export, and the URL lists who binds it, as the page says.
func (e *env) testConsoleExports(t *testing.T) {
	page := e.openConsole(t, "operator-token", "workspaces/"+publisher+"?tab=exports")
	page.WaitTitle(publisher)
	exported := &apisv1alpha2.APIExport{}
	admin := e.shard.Client(t, e.shard.Admin(t))
	cluster := e.clusterOf(t, publisher)
	if err := admin.Get(shardtesting.In(t.Context(), cluster), client.ObjectKey{Name: "settings"}, exported); err != nil {
		t.Fatal(err)
	}
	page.WaitText(exported.Status.IdentityHash)
	page.WaitText("get apibindings.v1alpha2.apis.kcp.io")
	config := e.shard.Masters(t)
	config.Host = page.String("document.querySelector('[data-slice] li code').innerText") + "/clusters/*"
	consumers, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the virtual workspace to list the binding", func(ctx context.Context) error {
		found, err := consumers.Resource(apisv1alpha2.SchemeGroupVersion.WithResource("apibindings")).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(found.Items) != 1 || found.Items[0].GetAnnotations()["kcp.io/cluster"] != e.clusterOf(t, consumer) {
			return fmt.Errorf("bindings %v", found.Items)
		}
		return nil
	})
	page.Open(e.consoleAt("workspaces/" + consumer + "?tab=exports"))
	page.WaitTitle(consumer)
	page.WaitText("No API is exported here.")
	e.quiet(t, page)

	// Who may not read the Shards does not learn which servers are of the installation: tenants can write the URLs.
	rules := []rbacv1.PolicyRule{{APIGroups: []string{apisv1alpha2.GroupName}, Resources: []string{"apiexports", "apiexportendpointslices"}, Verbs: []string{"get", "list", "watch"}}}
	if err := admin.Create(shardtesting.In(t.Context(), cluster), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "exports"}, Rules: rules}); err != nil {
		t.Fatal(err)
	}
	e.grant(t, cluster, "victor", "exports")
	page = e.openConsole(t, "victor-token", "workspaces/"+publisher+"?tab=exports")
	page.WaitTitle(publisher)
	page.WaitText("is on a server that this page does not know: do not send credentials to it.")
	if text := page.Text(); strings.Contains(text, "kubectl --server") {
		t.Errorf("a command for a server that is not known: %s", text)
	}
	e.quiet(t, page)
}

// clusterOf is the name of the logical cluster of a workspace below root.
func (e *env) clusterOf(t *testing.T, path string) string {
	t.Helper()
	workspace := &tenancyv1alpha1.Workspace{}
	if err := e.shard.Client(t, e.shard.Admin(t)).Get(shardtesting.In(t.Context(), "root"), client.ObjectKey{Name: strings.TrimPrefix(path, "root:")}, workspace); err != nil {
		t.Fatal(err)
	}
	return workspace.Spec.Cluster
}
