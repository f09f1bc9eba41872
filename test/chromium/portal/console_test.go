package portal

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/chromium"
)

// consoleAt is the address of a page of the console.
func (e *env) consoleAt(page string) string { return e.console + "#/console/" + page }

// openConsole opens a page of the console as the user of a token, in a tab of its own.
func (e *env) openConsole(t *testing.T, token, at string) *chromium.Page {
	t.Helper()
	page := e.browser.NewPage(t)
	page.Open(e.consoleAt(at))
	page.WaitTitle("Sign in")
	signInWith(page, token)
	return page
}

// item is an expression for the line of a workspace in the tree.
func item(path string) string {
	return fmt.Sprintf("document.querySelector('[data-path=%q]')", path)
}

// focusedItem is an expression for the path of the line of the tree that has the focus.
const focusedItem = "document.activeElement?.dataset.path"

// testConsoleTree: an administrator opens the tree with keys, sees what others create, and opens a workspace.
func (e *env) testConsoleTree(t *testing.T) {
	page := e.openConsole(t, "operator-token", "workspaces")
	page.WaitTitle("Workspaces")
	for _, path := range []string{provider, tenant} {
		page.Wait(path, item(path))
	}
	if exists := page.String("String(Boolean(" + item(unbound) + "))"); exists != "false" {
		t.Error("the tree lists what is below a workspace that is closed")
	}
	page.Eval("(document.querySelector('[role=treeitem]').focus(), true)", new(bool))
	page.Press("t")
	page.Wait("the workspace with this letter", focusedItem+" === '"+tenant+"'")
	page.Press(kb.ArrowRight)
	page.Wait("what is below", item(unbound))
	page.Press(kb.ArrowDown)
	page.Wait("the line below", focusedItem+" === '"+unbound+"'")
	page.Press(kb.ArrowLeft)
	page.Wait("the workspace above", focusedItem+" === '"+tenant+"'")
	page.Wait("one stop of the tab key", "document.querySelectorAll('.tree [tabindex=\"0\"]').length === 1")

	workspace := e.shard.NewWorkspace(t, e.cluster, "live")
	page.Wait("a workspace that somebody else creates", item(tenant+":live"))
	page.Press("\r")
	page.WaitTitle(tenant)
	page.Click(item(tenant + ":live"))
	page.WaitTitle(tenant + ":live")
	for _, text := range []string{workspace.Spec.Cluster, "root:universal", workspace.Annotations[corev1alpha1.ShardAnnotationKey], "WorkspaceInitialized", "Phase inside"} {
		page.WaitText(text)
	}
	limit := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+corev1alpha1.MaxChildWorkspacesAnnotationKey+`":"5"}}}`))
	inside := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: corev1alpha1.LogicalClusterName}}
	if err := e.shard.Client(t, e.shard.Masters(t)).Patch(shardtesting.In(t.Context(), workspace.Spec.Cluster), inside, limit); err != nil {
		t.Fatal(err)
	}
	page.WaitText("0 of 5 workspaces in it")
	page.Click(chromium.Named("How to connect"))
	page.WaitText("kubectl ws :" + tenant + ":live")
	page.Reload()
	page.WaitText("kubectl ws :" + tenant + ":live")
	page.Wait("the way to it in the tree", item(tenant+":live"))

	page.Fill(chromium.Labelled("Search by path"), "Not A Path")
	page.Click(chromium.Named("Open"))
	page.WaitText("A path is made of names")
	page.Wait("the hint and the error at the input", "(i => i.getAttribute('aria-describedby').split(' ').every(id => document.getElementById(id)))("+chromium.Labelled("Search by path")+")")
	page.Fill(chromium.Labelled("Search by path"), "root:tena")
	page.WaitText("1 found below root.")
	page.Click(chromium.Named(tenant))
	page.WaitTitle(tenant)
	page.Click(chromium.Named("API bindings"))
	page.Wait("the binding of the provider's export", "document.querySelector('[data-binding]') && document.body.innerText.includes('"+provider+":"+export+"')")
	if err := e.shard.Client(t, e.shard.Admin(t)).Delete(shardtesting.In(t.Context(), e.cluster), workspace); err != nil {
		t.Fatal(err)
	}
	page.Wait("a workspace that is deleted to go", "!"+item(tenant+":live"))
	page.Open(e.consoleAt("workspaces/" + tenant + ":live"))
	page.WaitText("There is no workspace live below " + tenant)
	e.quiet(t, page)
}

// testConsoleShards: an administrator sees that a shard is cordoned, and how that is done.
func (e *env) testConsoleShards(t *testing.T) {
	page := e.openConsole(t, "operator-token", "shards")
	page.WaitTitle("Shards")
	page.WaitText("1 shard")
	page.WaitText("logical clusters")
	name := page.String("document.querySelector('[data-shard]').dataset.shard")
	page.Click(chromium.Named("Cordon " + name))
	page.WaitText("kubectl kcp cordon " + name)
	page.Click(chromium.Named("Close"))
	cordon := func(value string) {
		t.Helper()
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+corev1alpha1.UnschedulableAnnotationKey+`":`+value+`}}}`))
		shard := &corev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := e.shard.Client(t, e.shard.Masters(t)).Patch(shardtesting.In(t.Context(), "root"), shard, patch); err != nil {
			t.Fatal(err)
		}
	}
	cordon(`"true"`)
	page.WaitText("Cordoned")
	page.Click(chromium.Named("Uncordon " + name))
	page.WaitText("kubectl kcp uncordon " + name)
	page.Click(chromium.Named("Close"))
	cordon("null")
	page.Wait("the shard to be open", chromium.Named("Cordon "+name)+" && document.body.innerText.includes('Accepted')")
	e.quiet(t, page)
}

// testConsoleRights: the console says what a user may not see, and shows the rest.
func (e *env) testConsoleRights(t *testing.T) {
	page := e.openConsole(t, "victor-token", "workspaces")
	page.WaitTitle("Workspaces")
	page.Click(item(provider) + "?.querySelector('.twist')")
	page.WaitText("You may not list the workspaces below " + provider)
	page.Fill(chromium.Labelled("Search by path"), provider+":a")
	page.WaitText("You can still open one by its whole path.")
	page.Fill(chromium.Labelled("Search by path"), unbound)
	page.Click(chromium.Named("Open"))
	page.WaitTitle(unbound)
	page.WaitText("You may not read the workspace unbound in " + tenant)
	page.Wait("the way to it in the tree", item(unbound))
	page.Open(e.consoleAt("workspaces/" + provider))
	page.WaitTitle(provider)
	page.WaitText("Logical cluster")
	page.WaitText("You may not read the logical cluster of " + provider)
	page.Open(e.consoleAt("shards"))
	page.WaitTitle("Shards")
	page.WaitText("You may not list shards")
	if text := page.Text(); strings.Contains(text, "Reconnecting") || strings.Contains(text, "Connection lost") {
		t.Errorf("missing rights look like an outage: %s", text)
	}
	page.Open(e.consoleAt("workspaces/root" + strings.Repeat(":deep", 30)))
	page.WaitTitle("There is no such page")
	e.quiet(t, page)

	// Without the flag, there is no console.
	plain := e.open(t, "operator-token", tenant)
	plain.WaitTitle("Catalogue")
	if exists := plain.String("String(Boolean(" + chromium.Named("Console") + "))"); exists != "false" {
		t.Error("the portal has a link to a console that is off")
	}
	plain.Open(e.url + "#/console/workspaces")
	plain.WaitTitle("There is no such page")
	e.quiet(t, plain)
}

// testConsoleIssuer: a token that only some workspaces accept signs in at one of these, and the others say that they do not accept it.
func (e *env) testConsoleIssuer(t *testing.T) {
	e.door.refuseIn("ada-token", "/clusters/root/")
	t.Cleanup(func() { e.door.refuse("") })
	page := e.openConsole(t, "ada-token", "workspaces/"+tenant)
	page.WaitTitle(tenant)
	page.WaitText("This workspace does not accept your credentials: you may not list the workspaces below root")
	page.WaitText("Phase inside")
	// A server that is busy when it is asked about the token does not end the session.
	e.door.answerLike("/clusters/"+tenant+"/apis/authentication.k8s.io/v1/selfsubjectreviews", http.StatusTooManyRequests, "busy")
	page.Open(e.consoleAt("workspaces/root"))
	page.WaitTitle("root")
	page.WaitText("This workspace does not accept your credentials: you may not read the logical cluster of root")
	e.door.answerLike("", 0, "")
	page.Open(e.consoleAt("workspaces/" + tenant))
	page.WaitTitle(tenant)
	page.Click(item(tenant))
	page.Click(item(unbound))
	page.WaitTitle(unbound)
	page.WaitText("WorkspaceInitialized")
	page.Open(e.consoleAt("workspaces/" + tenant))
	page.WaitTitle(tenant)
	page.Click(chromium.Named("Infrastructure"))
	page.WaitTitle("Catalogue")
	e.quiet(t, page)
}

// testConsoleToken: a service account with the rights of docs/console.md sees workspaces and shards.
func (e *env) testConsoleToken(t *testing.T) {
	admin, ctx := e.shard.Client(t, e.shard.Masters(t)), shardtesting.In(t.Context(), "root")
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "console", Namespace: "default"}}
	verbs := []string{"get", "list", "watch"}
	for _, object := range []client.Object{
		account,
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "console"}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"core.kcp.io"}, Resources: []string{"shards"}, Verbs: verbs},
			{APIGroups: []string{"tenancy.kcp.io"}, Resources: []string{"workspaces"}, Verbs: verbs},
		}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "console"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "console"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "console"}}},
	} {
		if err := admin.Create(ctx, object); err != nil {
			t.Fatal(err)
		}
	}
	request := &authenticationv1.TokenRequest{}
	if err := admin.SubResource("token").Create(ctx, account, request); err != nil {
		t.Fatal(err)
	}
	page := e.openConsole(t, request.Status.Token, "shards")
	page.WaitText("1 shard")
	page.Click(chromium.Named("Workspaces"))
	page.Wait("the workspaces in root", item(tenant))
	page.Click(item(tenant) + "?.querySelector('.twist')")
	page.WaitText("You may not list the workspaces below " + tenant)
	e.quiet(t, page)
}

// testConsoleAccessibility checks the pages in light colours on a phone, and in dark ones on a large screen.
func (e *env) testConsoleAccessibility(t *testing.T) {
	e.door.answerLike("/clusters/"+consumer+"/metrics", http.StatusNotImplemented, "not here")
	t.Cleanup(func() { e.door.answerLike("", 0, "") })
	workspace := e.shard.NewWorkspace(t, "root", "accessible").Spec.Cluster
	e.move(t, "accessible-waits", workspace, "nowhere", nil)
	page := e.openConsole(t, "operator-token", "workspaces")
	page.WaitTitle("Workspaces")
	for width, scheme := range map[int64]string{390: "light", 1280: "dark"} {
		page.Emulate("prefers-color-scheme: " + scheme)
		page.Size(width, 844)
		for _, view := range []struct{ at, title, text string }{
			{"workspaces", "Workspaces", "provider"},
			{"workspaces/" + tenant, tenant, "Phase inside"},
			{"workspaces/" + tenant + "?tab=bindings", tenant, "Permission claims"},
			{"workspaces/" + consumer + "?tab=bindings", consumer, "Rejected"},
			{"workspaces/" + publisher + "?tab=exports", publisher, "get apibindings"},
			{"workspaces/" + consumer + "?tab=exports", consumer, "No API is exported here."},
			{"workspaces/" + tenant + "?tab=connect", tenant, "kubectl ws"},
			{"workspaces/" + tenant + "?tab=usage", tenant, "Requests by class"},
			{"workspaces/" + consumer + "?tab=usage", consumer, "does not count usage"},
			{"workspaces/" + tenant + "?tab=audit", tenant, "the newest first"},
			{"shards", "Shards", "logical clusters"},
			{"shards", "Shards", "step 2 of 4"},
			{"installation", "Installation", "Member etcd-1 is missing"},
			{"installation?tab=rollouts", "Installation", "Waits for its turn"},
			{"installation?tab=certificates", "Installation", "step 2 of 3"},
			{"installation?tab=backups", "Installation", "Measured recovery time"},
			{"installation/shards/alpha", "alpha", "EtcdHealthy"},
		} {
			page.Open(e.consoleAt(view.at))
			page.Wait("the heading", "document.querySelector('h1')?.innerText === '"+view.title+"'")
			page.WaitText(view.text)
			where := fmt.Sprintf("%s in %s at %d pixels", view.at, scheme, width)
			page.CheckAccessibility(where)
			var wide int64
			page.Eval("document.documentElement.scrollWidth", &wide)
			if wide > width {
				t.Errorf("%s: the page is %d pixels wide", where, wide)
			}
			var broken []string
			page.Eval(brokenWords, &broken)
			if len(broken) > 0 {
				t.Errorf("%s: broken words: %q", where, broken)
			}
		}
	}
	e.quiet(t, page)
}

// testConsoleSize: what the console loads is within the budget of the page.
func (e *env) testConsoleSize(t *testing.T) {
	page := e.openConsole(t, "operator-token", "shards")
	page.WaitTitle("Shards")
	var script int
	page.Eval("performance.getEntriesByType('resource').filter((e) => e.initiatorType === 'script').reduce((sum, e) => sum + e.transferSize, 0)", &script)
	if script == 0 || script > 300<<10 {
		t.Errorf("the browser has loaded %d bytes of script, at most 300 KiB are allowed", script)
	}
	t.Logf("%d bytes of script over the wire", script)
}
