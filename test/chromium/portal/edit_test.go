package portal

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/atoll-dev/atoll/test/chromium"
)

// spec returns the spec of a cache of the tenant.
func (e *env) spec(t *testing.T, name string) map[string]any {
	t.Helper()
	got, err := e.resource("caches").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	spec, _, _ := unstructured.NestedMap(got.Object, "spec")
	return spec
}

func (e *env) patch(t *testing.T, name, patch string) {
	t.Helper()
	if _, err := e.resource("caches").Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (e *env) testEdit(t *testing.T) {
	page := e.open(t, "ada-token", tenant, "instances", "caches", "mine")
	page.WaitTitle("Cache mine")
	page.Click(chromium.Named("Edit"))
	page.WaitTitle("Edit Cache mine")
	page.Fill(chromium.Labelled("replicas"), "8")
	// What the server says about the field appears with the click, and may not move the button away from it.
	page.Wait("a response of the server", "performance.getEntriesByType('resource').some((e) => e.name.includes('dryRun=All'))")
	page.ClickOnce(chromium.Named("Save"))
	page.WaitText("At most 5.")
	page.Wait("the summary to have the focus", "document.activeElement?.className === 'summary'")
	page.Fill(chromium.Labelled("replicas"), "3")
	// Leaving the view does not discard the input.
	page.Click(chromium.Named("Instances 2"))
	page.WaitTitle("Instances")
	page.Open(e.at(tenant, "instances", "caches", "mine", "edit"))
	page.WaitTitle("Edit Cache mine")
	page.Click(chromium.Named("Remove ports 1"))
	page.Click(chromium.Named("Save"))
	page.WaitTitle("Cache mine")
	if spec := e.spec(t, "mine"); fmt.Sprint(spec["replicas"]) != "3" || spec["size"] != "large" {
		t.Errorf("saved %v", spec)
	}
	e.quiet(t, page)
}

// testEditYAML: fields that only programs need are not in the text that users read and edit, and are preserved.
func (e *env) testEditYAML(t *testing.T) {
	const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"
	e.patch(t, "mine", `{"metadata":{"annotations":{"`+lastApplied+`":"{}","example.org/note":"for people"}}}`)
	page := e.open(t, "ada-token", tenant, "instances", "caches", "mine")
	page.WaitTitle("Cache mine")
	page.Click(chromium.Named("YAML"))
	page.WaitText("example.org/note: for people")
	noise := func(text string) {
		t.Helper()
		if strings.Contains(text, lastApplied) || strings.Contains(text, "managedFields") {
			t.Errorf("shown: %s", text)
		}
	}
	noise(page.String("document.querySelector('#instance-yaml').innerText"))
	page.Click(chromium.Named("Edit"))
	page.WaitTitle("Edit Cache mine")
	defer func() {
		got, err := e.resource("caches").Get(t.Context(), "mine", metav1.GetOptions{})
		if err != nil || got.GetAnnotations()[lastApplied] != "{}" {
			t.Errorf("what kubectl applied last is %q, %v", got.GetAnnotations()[lastApplied], err)
		}
	}()
	page.Click(chromium.Named("YAML"))
	replace := func(from, to string) {
		t.Helper()
		text := page.String(chromium.Labelled("Object as YAML") + ".value.replace(" + from + ", " + to + ")")
		page.Fill(chromium.Labelled("Object as YAML"), text)
	}
	noise(page.String(chromium.Labelled("Object as YAML") + ".value"))
	replace("/owner: .*/", "'owner: [broken'")
	page.Click(chromium.Named("Save"))
	page.WaitText("This is no valid YAML")
	replace("/owner: .*/", "'owner: team-b\\n  wrong: 1'")
	page.Click(chromium.Named("Save"))
	page.WaitText("There is no such field.")
	replace("/\\n *wrong: 1/", "''")
	page.Click(chromium.Named("Form"))
	page.Wait("the text in the form", chromium.Labelled("owner")+"?.value === 'team-b'")
	page.Click(chromium.Named("Save"))
	page.WaitTitle("Cache mine")
	if owner := e.spec(t, "mine")["owner"]; owner != "team-b" {
		t.Errorf("the owner is %v", owner)
	}
	e.quiet(t, page)
}

// testConflict: the page shows the concurrent change of another user, and keeps both changes.
func (e *env) testConflict(t *testing.T) {
	page := e.open(t, "ada-token", tenant, "instances", "caches", "mine", "edit")
	page.WaitTitle("Edit Cache mine")
	e.patch(t, "mine", `{"spec":{"backup":{"keep":9}}}`)
	page.Fill(chromium.Labelled("owner"), "team-c")
	page.Click(chromium.Named("Save"))
	page.WaitText("Somebody else has changed this object")
	page.WaitText("keep: 9")
	page.Click(chromium.Named("Put my changes on top"))
	page.Wait("both changes in the form", chromium.Labelled("keep")+"?.value === '9' && "+chromium.Labelled("owner")+"?.value === 'team-c'")
	page.Click(chromium.Named("Save"))
	page.WaitTitle("Cache mine")
	spec := e.spec(t, "mine")
	if keep, _, _ := unstructured.NestedInt64(spec, "backup", "keep"); keep != 9 || spec["owner"] != "team-c" {
		t.Errorf("saved %v", spec)
	}
	e.quiet(t, page)
}

// testSignInAgain: a form survives the expiration of the user's credentials.
func (e *env) testSignInAgain(t *testing.T) {
	page := e.open(t, "ada-token", tenant, "templates", "queue", "new")
	page.WaitTitle("Create Queue")
	page.Fill(chromium.Labelled("Name of the object"), "kept")
	page.Choose(chromium.Labelled("durable"), "true")
	e.gate.refuse("ada-token")
	t.Cleanup(func() { e.gate.refuse("") })
	page.Click(chromium.Named("Create Queue"))
	page.WaitText("Your credentials have expired")
	signInWith(page, "second-token")
	page.WaitTitle("Queue kept")
	got, err := e.resource("queues").Get(t.Context(), "kept", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if durable, _, _ := unstructured.NestedBool(got.Object, "spec", "durable"); !durable {
		t.Errorf("created %v", got.Object["spec"])
	}
	if err := e.resource("queues").Delete(t.Context(), "kept", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	e.quiet(t, page)
}

// testForbidden: the page explains in plain words to a user with read access only which permission is missing.
func (e *env) testForbidden(t *testing.T) {
	page := e.open(t, "victor-token", tenant, "templates", "queue", "new")
	page.WaitTitle("Create Queue")
	page.Fill(chromium.Labelled("Name of the object"), "refused")
	page.Click(chromium.Named("Create Queue"))
	page.WaitText("You may not create queues in this workspace.")
	testRaw(t, page, `User "victor" cannot create resource "queues"`)
	if _, err := e.resource("queues").Get(t.Context(), "refused", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("an object of a user without rights: %v", err)
	}
	page.Open(e.at(tenant, "instances", "caches", "mine"))
	page.WaitTitle("Cache mine")
	page.Click(chromium.Named("Show content"))
	page.WaitText("You may not read the secret default/mine-cache in this workspace.")
	page.Open(e.at(tenant, "workspaces"))
	page.WaitText("You may not list the workspaces below root:tenant")
	testRaw(t, page, "cannot list resource")
	e.quiet(t, page)
}

// testOutage: the page reports that it is not current, and becomes current again automatically, without missing events. The second time,
// the server has compacted these events, and the page lists again.
func (e *env) testOutage(t *testing.T) {
	page := e.open(t, "ada-token", tenant, "instances")
	page.WaitTitle("Instances")
	for i, name := range []string{"during", "expired"} {
		page.Wait("the page to be current", "document.querySelector('#connectivity').innerText === '' && document.querySelector('#total')?.innerText.trim() === '2'")
		e.gate.expire(i > 0)
		e.gate.set(true)
		page.WaitText("Connection lost, reconnecting.")
		e.createQueue(t, name)
		e.gate.set(false)
		page.Wait("what was created during the outage", "document.querySelector('[data-instance="+name+"]') && document.querySelector('#connectivity').innerText === ''")
		if err := e.resource("queues").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if expired := e.gate.expire(false); expired == 0 {
		t.Error("no watch had to begin anew")
	}
	e.quiet(t, page)
}

func (e *env) testOIDC(t *testing.T) {
	page := e.browser.NewPage(t)
	page.Open(e.at(tenant, "templates", "cache"))
	page.WaitTitle("Sign in")
	page.Click(chromium.Named("Sign in with your organization"))
	page.WaitTitle("Cache")
	page.WaitText("oidc:grace")
	if address := page.String("location.href"); address != e.at(tenant, "templates", "cache") {
		t.Errorf("the address is %s", address)
	}
	// The server refuses the token as if it had expired: the page replaces it without the user.
	page.Eval(`(() => { const s = JSON.parse(sessionStorage['portal.session']); s.expires = 1; sessionStorage['portal.session'] = JSON.stringify(s); return true })()`, new(bool))
	page.Reload()
	page.WaitTitle("Cache")
	page.WaitText("oidc:grace")
	if refreshes := e.signIn.Refreshes(); refreshes != 1 {
		t.Errorf("tokens were refreshed %d times, expected once", refreshes)
	}
	// The page refuses a response that this tab has not requested.
	page.Click(chromium.Named("Sign out"))
	page.WaitTitle("Sign in")
	page.Open(e.url + "?code=stolen&state=forged")
	page.WaitText("belongs to no sign-in of this tab")
	if address := page.String("location.search"); address != "" {
		t.Errorf("the code is left in the address: %s", address)
	}
	e.quiet(t, page)
}
