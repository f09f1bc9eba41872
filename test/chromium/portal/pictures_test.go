package portal

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/seed"
	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/chromium"
)

// shipped returns the templates that are shipped, as the backend of the test can serve them: what tenants see is the same.
func shipped(t *testing.T) []*infrastructurev1alpha1.Template {
	t.Helper()
	all, err := seed.Shipped(group)
	if err != nil {
		t.Fatal(err)
	}
	var templates []*infrastructurev1alpha1.Template
	for i := range all {
		template := &all[i]
		name, port := template.Name, map[string]int{"postgres": 5432, "redis": 6379, "application": 80}[template.Name]
		config := map[string]any{
			"manifests": []any{map[string]any{
				"id":       "main",
				"template": map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name + "-${self.metadata.name}"}, "data": map[string]any{"name": "${self.metadata.name}"}},
				// One instance stays at work.
				"readyWhen": []any{"other.main.data.name != 'reports'"},
			}},
			"outputs": map[string]any{"endpoint": fmt.Sprintf("%s-${self.metadata.name}.tenants.example.org:%d", name, port)},
		}
		if name != "application" {
			config["connection"] = map[string]any{"url": name + "://${self.metadata.name}.tenants.example.org"}
		}
		text, err := json.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		template.Spec.Backend, template.Spec.BackendConfig = "manifest", &runtime.RawExtension{Raw: text}
		templates = append(templates, template)
	}
	return templates
}

// TestPictures makes the pictures of docs/ in the directory PORTAL_PICTURES, of the catalogue that is shipped; see "make portal-pictures".
func TestPictures(t *testing.T) {
	directory := os.Getenv("PORTAL_PICTURES")
	if directory == "" {
		t.Skip("PORTAL_PICTURES is not set")
	}
	e := newEnv(t, shipped(t))
	for _, instance := range []struct{ resource, kind, name string }{
		{"postgres", "Postgres", "orders"}, {"postgres", "Postgres", "reports"}, {"redis", "Redis", "sessions"}, {"applications", "Application", "shop"},
	} {
		e.order(t, instance.resource, instance.kind, instance.name)
	}
	page := e.browser.NewPage(t)
	for _, scheme := range []string{"light", "dark"} {
		page.Emulate("prefers-color-scheme: " + scheme)
		page.Size(960, 600)
		picture := func(name string) {
			t.Helper()
			page.Eval("document.activeElement.blur() ?? true", new(bool))
			if err := os.WriteFile(filepath.Join(directory, "portal-"+name+"-"+scheme+".png"), page.Screenshot(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		page.Open(e.at(tenant))
		page.WaitTitle("Sign in")
		picture("sign-in")
		page.Fill(chromium.Labelled("Token"), "ada-token")
		page.Press("\r")
		page.WaitText("3 templates")
		page.WaitText("2 instances")
		var cards []string
		page.Eval("[...document.querySelectorAll('.card h2')].map((e) => e.innerText)", &cards)
		if !slices.Equal(cards, []string{"Application", "PostgreSQL", "Redis"}) {
			t.Fatalf("the pictures would have the cards %q", cards)
		}
		picture("catalogue")
		page.Open(e.at(tenant, "templates", "postgres", "new"))
		page.WaitTitle("Create Postgres")
		page.Fill(chromium.Labelled("Name of the object"), "invoices")
		page.Fill(chromium.Labelled("database"), "pg_invoices")
		page.Press("\t")
		page.Wait("a message at the field", chromium.Labelled("database")+".ariaInvalid === 'true'")
		page.WaitText("this name is reserved by PostgreSQL")
		page.Eval("(document.querySelector('h1').scrollIntoView(), true)", new(bool))
		picture("form")
		page.Click(chromium.Named("Cancel"))
		page.Open(e.at(tenant, "instances", "postgres", "orders"))
		page.WaitText("postgres-orders.tenants.example.org")
		picture("instance")
		page.Size(390, 844)
		page.Open(e.at(tenant, "instances"))
		page.WaitTitle("Instances")
		page.WaitText("reports")
		picture("phone")
		page.Click(chromium.Named("Sign out"))
	}
	e.quiet(t, page)
	e.consolePictures(t, directory)
}

// consolePictures makes the pictures of the console, with a tree of workspaces.
func (e *env) consolePictures(t *testing.T, directory string) {
	moving := ""
	for parent, names := range map[string][]string{"payments": {"production", "staging", "test"}, "search": {"production"}} {
		cluster := e.shard.NewWorkspace(t, "root", parent).Spec.Cluster
		for _, name := range names {
			moving = e.shard.NewWorkspace(t, cluster, name).Spec.Cluster
		}
	}
	e.move(t, "production-x7k2p", moving, "beta", nil) // which is not there yet
	below := map[string]string{migrationv1alpha1.IncludeChildrenAnnotationKey: "true"}
	e.move(t, "test-q9d4m", e.shard.NewWorkspace(t, "root", "test").Spec.Cluster, options.DefaultShardName, below)
	e.installDefinitions(t)
	e.createInHost(t, installation)
	at := func(ago time.Duration) string { return time.Now().Add(-ago).UTC().Format(time.RFC3339) }
	e.report(t, "backupschedules", "nightly", `{"lastSuccessfulTime":"`+at(9*time.Hour)+`"}`)
	e.report(t, "restoredrills", "weekly", `{"lastSuccessfulTime":"`+at(7*time.Hour)+`"}`)
	e.report(t, "shards", "alpha", "{"+conditions([4]string{"Ready", "True", "Ready", ""}, [4]string{"CertificatesReady", "True", "Issued", ""}, [4]string{"EtcdAvailable", "True", "Quorum", ""}, [4]string{"RolledOut", "True", "Current", ""},
		[4]string{"EtcdHealthy", "False", "MemberMissing", "1 of 3 members is missing: the operator replaces alpha-etcd-2"})+"}")
	page := e.openConsole(t, "operator-token", "workspaces")
	page.WaitTitle("Workspaces") // loading the page again would end the sign-in
	for _, scheme := range []string{"light", "dark"} {
		page.Emulate("prefers-color-scheme: " + scheme)
		page.Size(1280, 800)
		picture := func(name string) {
			t.Helper()
			page.Eval("document.activeElement.blur() ?? true", new(bool))
			if err := os.WriteFile(filepath.Join(directory, "console-"+name+"-"+scheme+".png"), page.Screenshot(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		page.Open(e.consoleAt("workspaces"))
		page.Reload()
		page.WaitTitle("Workspaces")
		page.Click(item("root:payments") + "?.querySelector('.twist')")
		page.Wait("the workspaces below", item("root:payments:test"))
		picture("workspaces")
		page.Open(e.consoleAt("workspaces/root:payments:production"))
		page.WaitText("Phase inside")
		page.WaitText("WorkspaceInitialized")
		picture("workspace")
		page.Open(e.consoleAt("workspaces/" + tenant + "?tab=bindings"))
		page.WaitTitle(tenant)
		page.Wait("the claims", "document.querySelector('[data-claim]')")
		picture("bindings")
		page.Open(e.consoleAt("workspaces/" + provider + "?tab=exports"))
		page.WaitTitle(provider)
		page.WaitText("get apibindings")
		picture("exports")
		page.Open(e.consoleAt("workspaces/" + tenant + "?tab=usage"))
		page.WaitTitle(tenant)
		page.WaitText("Requests by class")
		picture("usage")
		page.Open(e.consoleAt("shards"))
		page.WaitTitle("Shards")
		page.WaitText("logical clusters")
		page.WaitText("The workspace is on root.")
		page.WaitText("there is no shard")
		picture("shards")
		page.Open(e.consoleAt("installation"))
		page.WaitTitle("Installation")
		page.WaitText("1 finding that needs you")
		picture("installation")
		page.Size(390, 844)
		page.Open(e.consoleAt("workspaces/root:payments:production"))
		page.WaitText("Phase inside")
		page.Eval("(document.querySelector('.details').scrollIntoView(), true)", new(bool))
		picture("phone")
	}
	e.quiet(t, page)
}

// order creates an instance and waits until the provider has seen it.
func (e *env) order(t *testing.T, resource, kind, name string) {
	t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": group + "/v1alpha1", "kind": kind, "metadata": map[string]any{"name": name}, "spec": map[string]any{}}}
	if kind == "Application" {
		object.Object["spec"] = map[string]any{"image": "registry.example.org/shop:1.4.2"}
	}
	if _, err := e.resource(resource).Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	want := infrastructurev1alpha1.PhaseReady
	if name == "reports" {
		want = infrastructurev1alpha1.PhaseProvisioning
	}
	shardtesting.Eventually(t, name+" to be "+string(want), func(ctx context.Context) error {
		got, err := e.resource(resource).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if phase, _, _ := unstructured.NestedString(got.Object, "status", "phase"); phase != string(want) {
			return fmt.Errorf("the status is %v", got.Object["status"])
		}
		return nil
	})
}
