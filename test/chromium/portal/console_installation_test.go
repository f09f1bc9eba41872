package portal

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/chromium"
)

// hostNamespace is the namespace of the installation in the host cluster.
const hostNamespace = "kcp"

//go:embed testdata/installation.yaml
var installation string

// hostClient returns a client for the host cluster, in which the test acts as the operator.
func (e *env) hostClient(t *testing.T) client.Client {
	t.Helper()
	c, err := client.New(e.host, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// createInHost creates the objects of a manifest, with their status, once their kinds are served.
func (e *env) createInHost(t *testing.T, manifest string) {
	t.Helper()
	c := e.hostClient(t)
	for document := range strings.SplitSeq(manifest, "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			t.Fatal(err)
		}
		status, hasStatus := object.Object["status"]
		shardtesting.Eventually(t, object.GetKind()+" "+object.GetName()+" to be created", func(ctx context.Context) error {
			if err := c.Create(ctx, object); err != nil && !apierrors.IsAlreadyExists(err) {
				return err
			}
			return nil
		})
		if hasStatus {
			object.Object["status"] = status
			if err := c.Status().Update(t.Context(), object); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// report writes a part of the status of an object of the installation, as the operator does.
func (e *env) report(t *testing.T, resource, name, status string) {
	t.Helper()
	e.patchInHost(t, resource, name, `{"status":`+status+`}`, "status")
}

// patchInHost changes an object of the installation.
func (e *env) patchInHost(t *testing.T, resource, name, patch string, subresources ...string) {
	t.Helper()
	host, err := dynamic.NewForConfig(e.host)
	if err != nil {
		t.Fatal(err)
	}
	kind := host.Resource(schema.GroupVersionResource{Group: "operator.kcp.io", Version: "v1alpha1", Resource: resource}).Namespace(hostNamespace)
	if _, err := kind.Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...); err != nil {
		t.Fatal(err)
	}
}

// conditions is a list of conditions for report, of which each has type, status, reason and message.
func conditions(all ...[4]string) string {
	var texts []string
	for _, c := range all {
		texts = append(texts, fmt.Sprintf(`{"type":%q,"status":%q,"reason":%q,"message":%q,"lastTransitionTime":"2026-02-01T00:00:00Z"}`, c[0], c[1], c[2], c[3]))
	}
	return `"conditions":[` + strings.Join(texts, ",") + `]`
}

// testConsoleNoHost: a console without a host cluster says how to have one, and one whose host cluster has no operator says that.
func (e *env) testConsoleNoHost(t *testing.T) {
	url, _ := e.serve(t, true, nil)
	page := e.browser.NewPage(t)
	page.Open(url + "#/console/installation")
	page.WaitTitle("Sign in")
	signInWith(page, "operator-token")
	page.WaitTitle("Installation")
	page.WaitText("--web-console-namespace=kcp --web-console-kubeconfig=host.kubeconfig")
	page.CheckAccessibility("an installation that is not configured")
	e.quiet(t, page)

	page = e.openConsole(t, "operator-token", "installation")
	page.WaitTitle("Installation")
	page.WaitText("The cluster of the operator does not have RootShard, Shard,")
	e.quiet(t, page)
}

// installDefinitions makes the host cluster one with an operator, and waits until it serves the kinds.
func (e *env) installDefinitions(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob("../../../config/crd/bases/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no definitions: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		e.createInHost(t, strings.TrimPrefix(string(text), "---\n"))
	}
	e.createInHost(t, "{apiVersion: v1, kind: Namespace, metadata: {name: "+hostNamespace+"}}")
	host := e.hostClient(t)
	shardtesting.Eventually(t, "the kinds to be served", func(ctx context.Context) error {
		for _, kind := range []string{"RootShard", "Shard", "FrontProxy", "CacheServer", "VirtualWorkspace", "BackupStore", "Backup", "BackupSchedule", "Restore", "RestoreDrill"} {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(schema.GroupVersionKind{Group: "operator.kcp.io", Version: "v1alpha1", Kind: kind + "List"})
			if err := host.List(ctx, list); err != nil {
				return err
			}
		}
		return nil
	})
}

// testConsoleInstallation: the page has what the operator reports, live: whether all is well, where it is not, and what to do.
func (e *env) testConsoleInstallation(t *testing.T) {
	e.installDefinitions(t)
	page := e.openConsole(t, "operator-token", "installation")
	page.WaitTitle("Installation")
	page.WaitText("There is no object of the operator in the namespace that this server reads.")

	root, others, _ := strings.Cut(installation, "\n---\n")
	e.createInHost(t, others)
	verdict := func(text string) {
		t.Helper()
		page.Wait("the verdict to be "+text, fmt.Sprintf("document.querySelector('#verdict')?.innerText.includes(%q)", text))
	}
	card := func(title, text string) {
		t.Helper()
		page.Wait(title+" to be "+text, fmt.Sprintf("document.querySelector('[data-card=%q]')?.innerText.includes(%q)", title, text))
	}
	verdict("There is no RootShard")
	e.createInHost(t, root)
	verdict("Healthy, as the operator last reported: 8 objects are as the spec says")
	page.WaitText("kubectl kcp doctor says whether it runs")
	card("Shards", "2 of 2 healthy")
	card("Front proxies", "1 of 1 healthy")
	card("Caches", "1 of 1 healthy")
	card("etcd", "2 of 2 healthy")
	card("Certificates", "The first authority ends on 2099-01-01.")
	card("Rollout", "version v1.0.0")
	card("Last backup", "ago")
	card("Last restore drill", "recovery in 2m10s, data loss 2h0m5s")

	// A spec that the operator has not acted on is no health.
	e.patchInHost(t, "shards", "alpha", `{"spec":{"replicas":3}}`)
	verdict("In progress: 1 finding that the operator works on")
	e.report(t, "shards", "alpha", `{"observedGeneration":2}`)
	verdict("Healthy")

	e.testWorking(t, page, verdict)

	// What the operator has not reported on is no health either.
	ready := [4]string{"Ready", "True", "Ready", ""}
	e.report(t, "shards", "alpha", "{"+conditions(ready)+"}")
	card("etcd", "1 of 2 healthy")
	card("etcd", "Not reported: alpha")
	card("Certificates", "Not reported: alpha")
	card("Rollout", "Not reported: alpha")

	// A finding arrives while the page is open, and its object is reached by keys.
	e.report(t, "shards", "alpha", "{"+conditions(ready, [4]string{"EtcdHealthy", "False", "MemberMissing", "Member etcd-1 is missing"})+"}")
	verdict("1 finding that needs you")
	card("etcd", "1 of 2 healthy")
	card("etcd", "see alpha")
	finding := "document.querySelector('[data-finding=\"alpha/EtcdHealthy\"]')"
	page.Wait("what to do", finding+"?.innerText.includes('Member etcd-1 is missing') && "+finding+".innerText.includes('what is left to you')")
	page.Eval("("+finding+".querySelector('a').focus(), true)", new(bool))
	page.Press("\r")
	page.WaitTitle("alpha")
	page.WaitText("kubectl --namespace kcp describe shards.operator.kcp.io alpha")
	page.WaitText("MemberMissing")
	page.Click(chromium.Named("Installation"))
	page.WaitTitle("Installation")
	e.testRollouts(t, page)
	e.testCertificates(t, page, ready)
	e.testBackups(t, page, ready)
	e.testMany(t, page, verdict)
	page.Open(e.consoleAt("installation/shards/gone"))
	page.WaitText("There is no Shard gone (any more).")
	page.Open(e.consoleAt("installation/secrets/s3"))
	page.WaitText("secrets is no kind of the operator that the console shows.")
	e.quiet(t, page)
}

// testMany: of more objects than are read, the page says which ones it has read.
func (e *env) testMany(t *testing.T, page *chromium.Page, verdict func(string)) {
	host, labels := e.hostClient(t), map[string]string{"test": "many"}
	store := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(`
apiVersion: operator.kcp.io/v1alpha1
kind: BackupStore
spec:
  endpointURL: https://s3.example.org
  bucket: many
  s3Credentials: {accessKeyId: {name: s3, key: id}, secretAccessKey: {name: s3, key: key}}
  encryption: {recipients: [age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p]}
`), &store.Object); err != nil {
		t.Fatal(err)
	}
	store.SetNamespace(hostNamespace)
	store.SetLabels(labels)
	for i := range 501 {
		one := store.DeepCopy()
		one.SetName(fmt.Sprintf("many-%03d", i))
		if err := host.Create(t.Context(), one); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := host.DeleteAllOf(context.Background(), store, client.InNamespace(hostNamespace), client.MatchingLabels(labels)); err != nil {
			t.Error(err)
		}
	})
	page.Open(e.consoleAt("installation?tab=backups"))
	page.Reload()
	verdict("within the first 500 by name of BackupStore; there are more")
}

// testWorking: while the operator works on one part, what needs a person in others is not hidden.
func (e *env) testWorking(t *testing.T, page *chromium.Page, verdict func(string)) {
	finding := func(condition, class, text string) {
		t.Helper()
		found := fmt.Sprintf("document.querySelector('[data-finding=\"alpha/%s\"]')", condition)
		page.Wait(condition+" to be "+class, fmt.Sprintf("%s?.className === %q && %s.innerText.includes(%q)", found, class, found, text))
	}
	works := func(reason string, others ...[4]string) string {
		all := append([][4]string{{"Ready", "False", reason, ""}, {"Reconciling", "True", reason, ""}, {"CertificatesReady", "False", reason, "certificates of alpha"}}, others...)
		return "{" + conditions(all...) + "}"
	}
	e.report(t, "shards", "alpha", works("Issuing", [4]string{"EtcdAvailable", "False", "WaitingForCertificates", "etcd starts later"},
		[4]string{"EtcdHealthy", "False", "NoSpace", "etcd rejects writes"}, [4]string{"RolledOut", "False", "RolloutPaused", "its rollout is paused"}))
	verdict("2 findings that need you")
	finding("CertificatesReady", "progress", "The operator works on it. If that does not end: See what cert-manager says")
	finding("EtcdAvailable", "progress", "etcd starts later")
	finding("EtcdHealthy", "bad", "etcd rejects writes")
	finding("RolledOut", "bad", "Remove the annotation operator.kcp.io/pause-rollout")
	e.report(t, "shards", "alpha", works("SourceNotFound"))
	verdict("1 finding that needs you")
	finding("CertificatesReady", "bad", "See what cert-manager says")
}

// testRollouts: servers are in the order in which they roll out, and a rollout that has stopped has its reason.
func (e *env) testRollouts(t *testing.T, page *chromium.Page) {
	page.Click(chromium.Named("Rollouts"))
	page.Wait("the order", "[...document.querySelectorAll('[data-rollout]')].map((row) => row.dataset.rollout).join() === 'cache,root,alpha,edge'")
	turn := "waiting for RootShard root, which rolls out first"
	stopped := "the rollout has stopped at RootShard root, whose new pods did not become healthy"
	e.report(t, "rootshards", "root", "{"+conditions([4]string{"Ready", "False", "RolloutStopped", stopped}, [4]string{"Stalled", "True", "RolloutStopped", stopped}, [4]string{"RolledOut", "False", "RolloutStopped", stopped})+"}")
	e.report(t, "frontproxies", "edge", "{"+conditions([4]string{"Ready", "False", "WaitingForTurn", turn}, [4]string{"Reconciling", "True", "WaitingForTurn", turn}, [4]string{"RolledOut", "False", "WaitingForTurn", turn})+"}")
	row := func(name, text string) {
		t.Helper()
		page.Wait(name+" to be "+text, fmt.Sprintf("document.querySelector('[data-rollout=%q]')?.innerText.includes(%q)", name, text))
	}
	row("root", "Stopped")
	row("root", stopped)
	row("edge", "Waits for its turn")
	page.WaitText("A rollout that has stopped goes on when its new pods become healthy")
	page.WaitText("annotate rootshards.operator.kcp.io root operator.kcp.io/pause-rollout=true")
	page.Reload()
	row("root", "Stopped")
	page.WaitText("2 findings that need you")
}

// testCertificates: a re-keying has its phase and what blocks it, and an authority that expires soon is a finding.
func (e *env) testCertificates(t *testing.T, page *chromium.Page, ready [4]string) {
	e.report(t, "rootshards", "root", `{`+conditions(ready)+`,"certificates":{"cas":[
		{"name":"client-ca","phase":"Issue","generation":1,"nextGeneration":2,"notAfter":"2100-01-01T00:00:00Z","blockedBy":["Certificate of-my-own is of the previous CA: renew it"]},
		{"name":"service-account","phase":"Stable","generation":1},
		{"name":"requestheader-client-ca","phase":"Stable","generation":1,"notAfter":"2026-01-01T00:00:00Z"}]}}`)
	page.Click(chromium.Named("Certificates"))
	row := func(name, text string) {
		t.Helper()
		page.Wait(name+" to be "+text, fmt.Sprintf("document.querySelector('[data-ca=%q]')?.innerText.includes(%q)", name, text))
	}
	row("client-ca", "step 2 of 3")
	row("client-ca", "1 to 2")
	row("client-ca", "Certificate of-my-own is of the previous CA: renew it")
	row("service-account", "never")
	row("requestheader-client-ca", "2026-01-01")
	page.Click(chromium.Named("At a glance"))
	page.WaitText("The certificate of requestheader-client-ca has expired on 1 January 2026.")
}

// testBackups: the newest backup, the schedule that is late, and the figures of drills.
func (e *env) testBackups(t *testing.T, page *chromium.Page, ready [4]string) {
	page.Open(e.consoleAt("installation?tab=backups"))
	page.WaitText("The last one was complete")
	for selector, text := range map[string]string{
		"[data-backup=nightly-1]": "1200 logical clusters on 2 shards", "[data-schedule=nightly]": "0 3 * * *", "[data-run=nightly-1]": "1200 of 1200 logical clusters",
		"[data-drill=weekly]": "Measured recovery time\n2m10s", "#stores ~ .scroll": "https://s3.example.org/kcp-backups",
	} {
		page.Wait(selector+" to be "+text, fmt.Sprintf("document.querySelector(%q)?.innerText.includes(%q)", selector, text))
	}
	failed := "the store answers 403: give the credentials s3:PutObject"
	e.createInHost(t, `
apiVersion: operator.kcp.io/v1alpha1
kind: Backup
metadata: {name: nightly-2, namespace: kcp}
spec: {rootShardRef: {name: root}, storeRef: {name: offsite}}
status: {observedGeneration: 1, phase: Failed, `+"conditions: "+strings.TrimPrefix(conditions([4]string{"Ready", "False", "AttemptsFailed", failed}, [4]string{"Stalled", "True", "AttemptsFailed", failed}), `"conditions":`)+"}")
	page.Wait("the newest to be first", "document.querySelector('[data-backup]')?.dataset.backup === 'nightly-2' && document.querySelector('[data-backup]').innerText.includes('"+failed+"')")
	page.WaitText("2 backups")
	e.createInHost(t, `
apiVersion: operator.kcp.io/v1alpha1
kind: Restore
metadata: {name: again, namespace: kcp}
spec: {rootShardRef: {name: root}, storeRef: {name: offsite}, backupId: b1, identity: {name: age, key: key.txt}}
status: {observedGeneration: 1, phase: Completed, backupTakenAt: "2026-01-02T03:00:00Z", duration: 2m, `+"conditions: "+strings.TrimPrefix(conditions(ready, [4]string{"Completed", "True", "Restored", ""}, [4]string{"Released", "False", "Held", "the shards delete nothing"}, [4]string{"Consistent", "False", "Differs", "a Workspace lacks its logical cluster"}), `"conditions":`)+"}")
	e.createInHost(t, `
apiVersion: operator.kcp.io/v1alpha1
kind: Restore
metadata: {name: later, namespace: kcp}
spec: {rootShardRef: {name: root}, storeRef: {name: offsite}, backupId: b1, identity: {name: age, key: key.txt}}
status: {observedGeneration: 1, phase: Completed, `+"conditions: "+strings.TrimPrefix(conditions(ready, [4]string{"Completed", "True", "Restored", ""}, [4]string{"Released", "True", "Released", ""}, [4]string{"Consistent", "False", "Differs", "this was repaired"}), `"conditions":`)+"}")
	page.Wait("the later restore", "document.querySelector('[data-restore=later]')?.innerText.includes('Completed')")
	page.Wait("the restore to be held", "document.querySelector('[data-restore=again]')?.innerText.includes('To be released') && document.querySelector('[data-restore=again]').innerText.includes('the shards delete nothing')")
	e.report(t, "restoredrills", "weekly", `{"active":{"backup":"nightly-1","backupId":"b1","namespace":"restore-drill","startedAt":"2026-02-01T05:00:00Z","message":"waiting for Shard alpha"}}`)
	page.Wait("the drill that runs to be first", "document.querySelector('[data-run]')?.innerText.includes('Running') && document.querySelector('[data-run]').innerText.includes('waiting for Shard alpha')")
	e.report(t, "backupschedules", "nightly", "{"+conditions(ready, [4]string{"Current", "False", "Overdue", "two Backups in a row have not been completed"})+"}")
	page.Wait("the schedule to be late", "document.querySelector('[data-schedule=nightly]').innerText.includes('two Backups in a row')")
	page.Click(chromium.Named("At a glance"))
	page.Wait("what is held, though a later restore is released", "document.querySelector('[data-finding=\"again/Released\"]') && document.querySelector('[data-finding=\"again/Consistent\"]')?.innerText.includes('before you release')")
	if text := page.Text(); strings.Contains(text, "this was repaired") {
		t.Errorf("the comparison of a restore that is released is a finding: %s", text)
	}
	page.Wait("the card to be late", "document.querySelector('[data-card=\"Last backup\"]')?.innerText.includes('Overdue')")
}

// testConsoleInstallationRights: who may not read the installation, in root or by the rights of the server, learns which right is missing.
func (e *env) testConsoleInstallationRights(t *testing.T) {
	page := e.openConsole(t, "victor-token", "installation")
	page.WaitTitle("Installation")
	page.WaitText("You may not list RootShard, Shard,")
	page.WaitText("The workspace root decides that")
	page.WaitText("name: installation-viewer")
	if text := page.Text(); strings.Contains(text, "alpha") || strings.Contains(text, "Healthy") {
		t.Errorf("a user without rights sees %s", text)
	}
	e.quiet(t, page)

	stranger := rest.AnonymousClientConfig(e.host)
	stranger.BearerToken = "victor-token"
	url, _ := e.serve(t, true, stranger)
	page = e.browser.NewPage(t)
	page.Open(url + "#/console/installation")
	page.WaitTitle("Sign in")
	signInWith(page, "operator-token")
	page.WaitTitle("Installation")
	page.WaitText("The cluster of the operator does not let this server read RootShard, Shard,")
	page.WaitText("console.subjects")
	e.quiet(t, page)

	away := rest.CopyConfig(e.host)
	away.Host = "https://127.0.0.1:1"
	url, _ = e.serve(t, true, away)
	page = e.browser.NewPage(t)
	page.Open(url + "#/console/installation")
	page.WaitTitle("Sign in")
	signInWith(page, "operator-token")
	page.WaitTitle("Installation")
	page.WaitText("cannot be read now: the host cluster does not answer. The console tries again by itself.")
	page.Wait("the verdict to be old", "document.querySelector('#verdict')?.innerText.includes('Not current: RootShard')")
	e.quiet(t, page)
}
