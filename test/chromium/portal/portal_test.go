package portal

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/chromium"
)

// at is the address of a view.
func (e *env) at(segments ...string) string {
	return e.url + "#/w/" + strings.Join(segments, "/")
}

// open opens a view as a user of a token, in a tab of its own.
func (e *env) open(t *testing.T, token string, segments ...string) *chromium.Page {
	t.Helper()
	page := e.browser.NewPage(t)
	page.Open(e.at(segments...))
	page.WaitTitle("Sign in")
	signInWith(page, token)
	return page
}

func signInWith(page *chromium.Page, token string) {
	page.Fill(chromium.Labelled("Token"), token)
	page.Click(chromium.Named("Sign in"))
}

// quiet checks that a page has no errors, and that it has sent requests to its own origin and to the issuer only.
func (e *env) quiet(t *testing.T, page *chromium.Page) {
	t.Helper()
	if problems := page.Problems(); len(problems) > 0 {
		t.Errorf("the browser reports %q", problems)
	}
	own, err := url.Parse(page.String("location.origin"))
	if err != nil {
		t.Fatal(err)
	}
	for _, request := range page.Requests() {
		if to, err := url.Parse(request); err != nil || to.Scheme != "data" && to.Host != own.Host && !strings.HasPrefix(request, e.issuer.URL+"/") {
			t.Errorf("a request to another origin: %s", request)
		}
	}
}

func TestPortal(t *testing.T) {
	e := newEnv(t, readTemplates(t))
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"sign-in with a token", e.testSignIn},
		{"workspaces", e.testWorkspaces},
		{"catalogue", e.testCatalogue},
		{"a form is checked by the server", e.testForm},
		{"create, live status, outputs, connection", e.testCreate},
		{"counts are the same everywhere", e.testCounts},
		{"mistakes in words", e.testMistakes},
		{"delete", e.testDelete},
		{"deleted by others", e.testDeletedByOthers},
		{"text is no markup", e.testMarkup},
		{"text is no command", e.testNoCommand},
		{"edit", e.testEdit},
		{"edit as YAML", e.testEditYAML},
		{"conflict", e.testConflict},
		{"sign in again", e.testSignInAgain},
		{"missing rights", e.testForbidden},
		{"a rule of the platform", e.testPolicy},
		{"outage", e.testOutage},
		{"sign-in with an issuer", e.testOIDC},
		{"colours", e.testColours},
		{"small screens", e.testSmallScreens},
		{"keyboard only", e.testKeyboard},
		{"accessibility", e.testAccessibility},
		{"console: tree and workspace", e.testConsoleTree},
		{"console: shards", e.testConsoleShards},
		{"console: missing rights", e.testConsoleRights},
		{"console: token of a service account", e.testConsoleToken},
		{"console: token that root does not accept", e.testConsoleIssuer},
		{"console: bindings and claims", e.testConsoleBindings},
		{"console: exports", e.testConsoleExports},
		{"console: usage", e.testConsoleUsage},
		{"console: usage of other servers", e.testConsoleUsageOfOthers},
		{"console: audit", e.testConsoleAudit},
		{"console: moves", e.testConsoleMoves},
		{"console: installation without a host cluster", e.testConsoleNoHost},
		{"console: installation", e.testConsoleInstallation},
		{"console: installation, missing rights", e.testConsoleInstallationRights},
		{"console: accessibility", e.testConsoleAccessibility},
		{"console: size", e.testConsoleSize},
	} {
		if !t.Run(step.name, step.run) {
			return
		}
	}
}

func (e *env) testSignIn(t *testing.T) {
	page := e.browser.NewPage(t)
	page.Open(e.at(tenant))
	page.WaitTitle("Sign in")
	page.Wait("a logo and a name", "document.querySelector('main .logo')?.parentElement.innerText.trim() === 'Atoll Infrastructure'")
	for _, text := range []string{"The catalogue of your platform", tenant} {
		page.WaitText(text)
	}
	page.Click(disclosure("Where do I find a token?"))
	page.WaitText("kubectl create token")
	signInWith(page, "wrong")
	page.WaitText("The server does not accept this token")
	signInWith(page, "two words")
	page.WaitText("This is no token")
	signInWith(page, "ada-token")
	page.WaitTitle("Catalogue")
	page.WaitText("ada")
	page.Reload()
	page.WaitTitle("Catalogue")
	var kept struct{ Local, Cookies string }
	page.Eval("({Local: JSON.stringify(localStorage), Cookies: document.cookie})", &kept)
	if strings.Contains(kept.Local, "ada-token") || kept.Cookies != "" {
		t.Errorf("the token is kept beyond the tab: %+v", kept)
	}
	page.Click(chromium.Named("Sign out"))
	page.WaitTitle("Sign in")
	if left := page.String("JSON.stringify(sessionStorage)"); left != "{}" {
		t.Errorf("left after signing out: %s", left)
	}
	e.quiet(t, page)
}

func (e *env) testWorkspaces(t *testing.T) {
	page := e.open(t, "ada-token", tenant, "workspaces")
	page.WaitTitle("Choose a workspace")
	page.Click(chromium.Named("unbound"))
	page.WaitTitle("This workspace has no catalogue")
	page.WaitText("kubectl kcp bind apiexport root:provider:" + export)
	page.Click(chromium.Named("choose another workspace"))
	page.WaitTitle("Choose a workspace")
	page.Fill(chromium.Labelled("Path of the workspace"), "Not A Path")
	page.Click(chromium.Named("Open"))
	page.WaitText("A path is made of names")
	page.Fill(chromium.Labelled("Path of the workspace"), tenant)
	page.Click(chromium.Named("Open"))
	page.WaitTitle("Catalogue")
	if got := page.String("location.hash"); got != "#/w/"+tenant {
		t.Errorf("the address is %s", got)
	}
	e.quiet(t, page)

	outsider := e.open(t, "nobody-token", tenant)
	outsider.WaitTitle("You have no access to this workspace")
	testRaw(t, outsider, "cannot get path")
	e.quiet(t, outsider)
}

func (e *env) testCatalogue(t *testing.T) {
	page := e.open(t, "ada-token", tenant)
	page.WaitText("3 templates")
	shown := func() (names []string) {
		page.Eval("[...document.querySelectorAll('[data-template]')].map((e) => e.dataset.template)", &names)
		return names
	}
	if got := shown(); !slices.Equal(got, []string{"markup", "cache", "queue"}) {
		t.Errorf("cards: %v", got)
	}
	page.Fill(chromium.Labelled("Search the catalogue"), "memory read")
	page.WaitText("1 of 3 templates")
	if got := shown(); !slices.Equal(got, []string{"cache"}) {
		t.Errorf("found: %v", got)
	}
	page.Fill(chromium.Labelled("Search the catalogue"), "")
	page.Click(chromium.Named("Other"))
	page.WaitText("1 of 3 templates")
	if got, hash := shown(), page.String("location.hash"); !slices.Equal(got, []string{"markup"}) || hash != "#/w/"+tenant+"?category=Other" {
		t.Errorf("in Other: %v at %s", got, hash)
	}
	page.Click(chromium.Named("All"))
	page.Click(chromium.Named("Cache"))
	page.WaitTitle("Cache")
	for _, text := range []string{"One per application.", "ports[].port", `"small", "medium", "large"`} {
		page.WaitText(text)
	}
	e.quiet(t, page)
}

func (e *env) testForm(t *testing.T) {
	page := e.open(t, "ada-token", tenant, "templates", "cache", "new")
	page.WaitTitle("Create Cache")
	page.Fill(chromium.Labelled("Name of the object"), "Bad Name")
	page.Fill(chromium.Labelled("owner"), "x")
	page.Fill(chromium.Labelled("replicas"), "9")
	for _, field := range []string{"Name of the object", "owner"} {
		page.Wait("a message at "+field, chromium.Labelled(field)+"?.getAttribute('aria-invalid') === 'true'")
	}
	page.Fill(chromium.Labelled("replicas"), "many")
	page.WaitText("many is no whole number.")
	page.Click(chromium.Named("Create Cache"))
	page.Wait("the summary to have the focus", "document.activeElement?.className === 'summary'")
	page.Fill(chromium.Labelled("replicas"), "2")
	page.Fill(chromium.Labelled("Name of the object"), "checked")
	page.Fill(chromium.Labelled("owner"), "team-a")
	page.Click(chromium.Labelled("persistent"))
	page.Click(chromium.Named("Create Cache"))
	page.WaitText("only large caches are persistent")
	if _, err := e.resource("caches").Get(t.Context(), "checked", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("an object that is not valid: %v", err)
	}
	page.Click(chromium.Named("Cancel"))
	e.quiet(t, page)
}

func (e *env) testCreate(t *testing.T) {
	page := e.open(t, "ada-token", tenant, "templates", "cache", "new")
	page.WaitTitle("Create Cache")
	page.Fill(chromium.Labelled("Name of the object"), "mine")
	page.Fill(chromium.Labelled("owner"), "team-a")
	page.Choose(chromium.Labelled("size"), "large")
	page.Click(chromium.Labelled("persistent"))
	page.Choose(chromium.Labelled("public"), "true")
	page.Fill(chromium.Labelled("New key of labels"), "tier")
	page.Click(chromium.Named("Add to labels"))
	page.Wait("the entry of the map to have the focus", "document.activeElement === "+chromium.Labelled("tier"))
	page.Press("gold")
	page.Click(chromium.Named("Add to ports"))
	page.Wait("the entry of the list to have the focus", "document.activeElement?.id === 'field-spec.ports%5B0%5D'")
	page.Fill(chromium.Labelled("port"), "6379")
	page.Fill(chromium.Labelled("schedule"), "daily")
	page.Fill(chromium.Labelled("target"), "80")
	page.Fill(chromium.Labelled("extra (YAML)"), "deep: {list: [1, 2]}")
	page.Click(chromium.Named("Create Cache"))
	page.WaitTitle("Cache mine")
	e.waitProvisioned(t, "mine")
	page.Wait("the phase Ready", "document.querySelector('.phase')?.innerText === 'Ready'")
	page.WaitText("mine.caches.example.org:6379")
	page.Wait("an announcement", "document.querySelector('#announcements').textContent.includes('Cache mine: Ready')")
	page.Click(chromium.Named("Dismiss the message"))
	page.Wait("the message to go", "!document.querySelector('#announcements').textContent.includes('was created')")
	e.testCreated(t)
	e.testConnection(t, page)
	e.quiet(t, page)
}

// waitProvisioned waits for the provider, which may have to retry shortly after a kind was bound for the first time.
func (e *env) waitProvisioned(t *testing.T, name string) {
	t.Helper()
	phase := ""
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 3*time.Minute, true, func(ctx context.Context) (bool, error) {
		got, err := e.resource("caches").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		phase, _, _ = unstructured.NestedString(got.Object, "status", "phase")
		return phase == "Ready", nil
	})
	if err != nil {
		t.Fatalf("%s has the phase %q: %v", name, phase, err)
	}
}

// testCreated compares the created object with the input: defaults are the server's, and fields that were left empty are not set.
func (e *env) testCreated(t *testing.T) {
	created, err := e.resource("caches").Get(t.Context(), "mine", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"owner": "team-a", "size": "large", "replicas": int64(1), "persistent": true, "public": true, "labels": map[string]any{"tier": "gold"},
		"ports": []any{map[string]any{"port": int64(6379)}}, "backup": map[string]any{"schedule": "daily", "keep": int64(7)}, "target": int64(80),
		"extra": map[string]any{"deep": map[string]any{"list": []any{int64(1), int64(2)}}},
	}
	if got := created.Object["spec"]; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("created %v, want %v", got, want)
	}
}

// testConnection: the page reads the content of the Secret only on request.
func (e *env) testConnection(t *testing.T, page *chromium.Page) {
	secrets := func() int {
		return len(slices.DeleteFunc(page.Requests(), func(url string) bool { return !strings.Contains(url, "/secrets/") }))
	}
	page.Wait("the connection", chromium.Named("Show content"))
	if secrets() > 0 {
		t.Error("the Secret was read without being asked for")
	}
	page.Click(chromium.Named("Show content"))
	page.WaitText("cache://word@mine")
	page.Click(chromium.Named("Hide content"))
	page.Wait("the content to be hidden", "!document.body.innerText.includes('cache://word@mine')")
}

// testCounts: the number of instances is that of the API, independent of which are visible, searched for, or selected.
func (e *env) testCounts(t *testing.T) {
	for _, name := range []string{"one", "two"} {
		e.createQueue(t, name)
	}
	page := e.open(t, "ada-token", tenant)
	total := func(where string) {
		t.Helper()
		page.Wait("3 instances "+where, "document.querySelector('#total')?.innerText.trim() === '3'")
	}
	card := func(name, count string) {
		t.Helper()
		page.Wait(count+" of "+name, fmt.Sprintf("document.querySelector('[data-template=%q] .count')?.innerText === %q", name, count))
	}
	total("in the catalogue")
	card("queue", "2 instances")
	card("cache", "1 instance")
	page.Fill(chromium.Labelled("Search the catalogue"), "queue")
	page.WaitText("1 of 3 templates")
	card("queue", "2 instances")
	total("during a search")
	page.Choose(chromium.Labelled("Theme"), "Dark")
	total("in dark colours")
	page.Click(chromium.Named("Instances 3"))
	page.WaitText("3 instances")
	page.Choose(chromium.Labelled("Kind"), "Cache (1)")
	page.Wait("1 instance of a kind", "document.querySelector('#instance-count').innerText === '1 instance'")
	total("with one kind chosen")
	page.Reload()
	page.Wait("1 instance of a kind", "document.querySelector('#instance-count')?.innerText === '1 instance'")
	total("after loading again")
	page.Size(400, 800)
	total("on a small screen")
	another := e.open(t, "second-token", tenant, "instances")
	another.Wait("3 instances in another tab", "document.querySelector('#total')?.innerText.trim() === '3' && document.querySelectorAll('[data-instance]').length === 3")
	e.quiet(t, page)
}

func (e *env) testDelete(t *testing.T) {
	// Another finalizer must be removed before the object is deleted.
	hold := func(finalizers string) {
		t.Helper()
		if _, err := e.resource("queues").Patch(t.Context(), "two", types.JSONPatchType, []byte(finalizers), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	hold(`[{"op": "add", "path": "/metadata/finalizers/-", "value": "example.org/hold"}]`)
	page := e.open(t, "ada-token", tenant, "instances")
	page.Click(chromium.Named("two"))
	page.WaitTitle("Queue two")
	page.Click(chromium.Named("Delete…"))
	page.Fill(chromium.Labelled("Type two to confirm"), "tw")
	page.Click(chromium.Named("Delete"))
	page.WaitText("Type two to confirm.")
	page.Fill(chromium.Labelled("Type two to confirm"), "two")
	page.Click(chromium.Named("Delete"))
	page.WaitTitle("Instances")
	page.WaitText("Queue two is being deleted")
	page.Wait("the phase", "document.querySelector('[data-instance=two] .phase')?.innerText === 'Deleting'")
	shardtesting.Eventually(t, "the provider to let go", func(ctx context.Context) error {
		got, err := e.resource("queues").Get(ctx, "two", metav1.GetOptions{})
		if err == nil && len(got.GetFinalizers()) > 1 {
			err = fmt.Errorf("finalizers %v", got.GetFinalizers())
		}
		return err
	})
	hold(`[{"op": "remove", "path": "/metadata/finalizers"}]`)
	page.WaitText("Queue two was deleted")
	page.Wait("the number of instances", "document.querySelector('#total')?.innerText.trim() === '2'")
	shardtesting.Eventually(t, "the object to be gone", func(ctx context.Context) error {
		if _, err := e.resource("queues").Get(ctx, "two", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
	page.Eval("history.back() ?? true", new(bool))
	page.Wait("the page before that of the object", "location.hash === '#/w/"+tenant+"/instances' && document.querySelector('h1')?.innerText === 'Instances'")
	page.Click(chromium.Named("Catalogue"))
	page.WaitTitle("Catalogue")
	page.Click(chromium.Named("Instances 2"))
	page.WaitTitle("Instances")
	if text := page.Text(); strings.Contains(text, "was deleted") {
		t.Errorf("a deletion is told for ever: %s", text)
	}
	e.quiet(t, page)
}

// testDeletedByOthers: the page informs a user who views an object that it was deleted.
func (e *env) testDeletedByOthers(t *testing.T) {
	e.createQueue(t, "theirs")
	page := e.open(t, "ada-token", tenant, "instances", "queues", "theirs")
	page.WaitTitle("Queue theirs")
	if err := e.resource("queues").Delete(t.Context(), "theirs", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	page.WaitTitle("Queue theirs was deleted")
	page.Reload()
	page.WaitTitle("Not there")
	page.WaitText("There is no Queue theirs in this workspace.")
	e.quiet(t, page)
}

func (e *env) createQueue(t *testing.T, name string) {
	t.Helper()
	if _, err := e.resource("queues").Create(t.Context(), queue(name), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func queue(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": group + "/v1alpha1", "kind": "Queue", "metadata": map[string]any{"name": name}, "spec": map[string]any{}}}
}

// testNoCommand: the page makes no command of a text in the status that would be more than a name in a shell. The instance is being deleted, so that
// the provider keeps what somebody else writes there.
func (e *env) testNoCommand(t *testing.T) {
	object := queue("held")
	object.SetFinalizers([]string{"example.org/hold"})
	queues := e.resource("queues")
	if _, err := queues.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := queues.Delete(t.Context(), "held", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	page := e.open(t, "ada-token", tenant, "instances", "queues", "held")
	for secret, shown := range map[string]string{"plain": "kubectl get secret plain", "x; echo attacked": "names a Secret that cannot exist"} {
		patch := fmt.Sprintf(`{"status":{"connectionSecret":{"namespace":"default","name":%q}}}`, secret)
		if _, err := queues.Patch(t.Context(), "held", types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
		page.WaitText(shown)
		if strings.Contains(page.Text(), "attacked") {
			t.Error("the page shows the text as a command")
		}
	}
	if _, err := queues.Patch(t.Context(), "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	e.quiet(t, page)
}

func (e *env) testMarkup(t *testing.T) {
	page := e.open(t, "ada-token", tenant)
	page.WaitText("<script>document.title = 'attacked'</script><b>bold</b>")
	page.Open(e.at(tenant, "templates", "markup", "new"))
	page.WaitTitle("Create Markup")
	page.Fill(chromium.Labelled("Name of the object"), "text")
	page.Fill(chromium.Labelled("<i>text</i>"), `<img src=x onerror="document.title='attacked'">`)
	page.Click(chromium.Named("Create Markup"))
	page.WaitTitle("Markup text")
	page.WaitText(`echo`)
	page.Wait("the output as text", `[...document.querySelectorAll('dd')].some((e) => e.innerText.includes('<img src=x'))`)
	var found int
	page.Eval("document.querySelectorAll('main img, main script, main b, main i, main svg:not(.glyph), main a[href^=javascript]').length", &found)
	if title := page.String("document.title"); found > 0 || strings.Contains(title, "attacked") {
		t.Errorf("texts became %d elements, the title is %q", found, title)
	}
	if err := e.resource("markups").Delete(t.Context(), "text", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	e.quiet(t, page)
}
