package portal

import (
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/chromium"
)

// testConsoleAudit: the page has who has changed what in a workspace, and who was refused.
func (e *env) testConsoleAudit(t *testing.T) {
	cluster := e.shard.NewWorkspace(t, "root", "audited").Spec.Cluster
	admin := e.shard.Client(t, e.shard.Admin(t))
	page := e.openConsole(t, "operator-token", "workspaces/root:audited?tab=audit")
	page.WaitTitle("root:audited")
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "watched"}}
	if err := admin.Create(shardtesting.In(t.Context(), cluster), object); err != nil {
		t.Fatal(err)
	}
	page.Click(chromium.Named("Refresh"))
	page.Wait("the creation", "[...document.querySelectorAll('[data-audit=create]')].some((row) => row.innerText.includes('default/watched') && row.innerText.includes('configmaps') && row.innerText.includes('201'))")
	page.WaitText("kubectl kcp audit :root:audited --since 1h")
	e.quiet(t, page)

	// Access to a workspace is not the right to read its events. The refusal is one.
	page = e.openConsole(t, "victor-token", "workspaces/"+tenant+"?tab=audit")
	page.WaitTitle(tenant)
	page.WaitText("You may not read the audit events of " + tenant)
	page.WaitText("the right to get the path /audit in it")
	e.quiet(t, page)
	page = e.openConsole(t, "operator-token", "workspaces/"+tenant+"?tab=audit")
	page.WaitTitle(tenant)
	page.Wait("the refusal", "[...document.querySelectorAll('[data-audit=get]')].some((row) => row.innerText.includes('/audit') && row.innerText.includes('403'))")

	// Servers that are no shards may answer anything, and events have what clients choose.
	t.Cleanup(func() { e.door.answerLike("", 0, "") })
	const path = "/clusters/" + tenant + "/audit"
	for _, text := range []string{"", "<!doctype html><title>Welcome</title>", `{"kind":"List","items":[]}`} {
		e.door.answerLike(path, http.StatusOK, text)
		page.Click(chromium.Named("Refresh"))
		page.WaitText("The server of " + tenant + " keeps no audit events")
	}
	e.door.answerLike(path, http.StatusOK, `{"kind":"EventList","items":[null,{},{"auditID":"a","stage":"ResponseComplete","stageTimestamp":"2026-11-30T12:00:00Z","verb":"create","requestURI":"/x","user":{"username":"<b>bold</b>"}}]}`)
	page.Click(chromium.Named("Refresh"))
	page.WaitText("<b>bold</b>")
}
