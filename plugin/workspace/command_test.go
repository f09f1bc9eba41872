package workspace_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/atoll-dev/atoll/plugin"
	"github.com/atoll-dev/atoll/plugin/connection"
	"github.com/atoll-dev/atoll/plugin/workspace"
)

// fakeInstallation serves the few requests that the plugins send, with responses of the wire contract. It tests the
// client; the end-to-end tests check that a server really responds so.
type fakeInstallation struct {
	*httptest.Server

	mu       sync.Mutex
	access   map[string]bool                      // workspaces the user may enter
	children map[string]map[string]map[string]any // parent -> name -> Workspace; a parent that is missing here returns 403
	bindings map[string][]map[string]any
	ready    int // a created workspace is ready after so many gets
}

type object = map[string]any

func newFakeInstallation(t *testing.T) *fakeInstallation {
	f := &fakeInstallation{access: map[string]bool{}, children: map[string]map[string]map[string]any{}, bindings: map[string][]map[string]any{}}
	f.Server = httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(f.Close)
	return f
}

// workspace adds a workspace that is ready and that the user may enter.
func (f *fakeInstallation) workspace(parent, name, typ string) object {
	f.access[parent+":"+name] = true
	if f.children[parent] == nil {
		f.children[parent] = map[string]map[string]any{}
	}
	ws := object{
		"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": object{"name": name},
		"spec":   object{"type": object{"name": typ, "path": "root"}, "URL": f.URL + "/clusters/" + parent + ":" + name},
		"status": object{"phase": "Ready"},
	}
	f.children[parent][name] = ws
	return ws
}

func (f *fakeInstallation) serve(w http.ResponseWriter, req *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	cluster, rest, _ := strings.Cut(strings.TrimPrefix(req.URL.Path, "/clusters/"), "/")
	const workspaces = "apis/tenancy.kcp.io/v1alpha1/workspaces"
	switch {
	case rest == "api" && f.access[cluster]:
		writeJSON(w, http.StatusOK, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
	case rest == "apis" && f.access[cluster]:
		writeJSON(w, http.StatusOK, metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}})
	case cluster == "root" && rest == workspaces+"/~":
		writeJSON(w, http.StatusOK, object{
			"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": object{"name": "cluster"},
			"spec": object{"cluster": "abc", "URL": f.URL + "/clusters/user:alice"}, "status": object{"phase": "Ready"},
		})
	case rest == "apis/apis.kcp.io/v1alpha2/apibindings" && f.access[cluster]:
		items := f.bindings[cluster]
		if items == nil {
			writeError(w, http.StatusNotFound)
			return
		}
		writeJSON(w, http.StatusOK, object{"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBindingList", "metadata": object{}, "items": items})
	case rest == "apis/core.kcp.io/v1alpha1/logicalclusters/cluster" && f.access[cluster]:
		writeJSON(w, http.StatusOK, object{
			"apiVersion": "core.kcp.io/v1alpha1", "kind": "LogicalCluster", "metadata": object{"name": "cluster"}, "status": object{"phase": "Ready"},
		})
	case strings.HasPrefix(rest, workspaces) && f.children[cluster] != nil:
		f.serveWorkspaces(w, req, cluster, strings.TrimPrefix(strings.TrimPrefix(rest, workspaces), "/"))
	default:
		writeError(w, http.StatusForbidden)
	}
}

func (f *fakeInstallation) serveWorkspaces(w http.ResponseWriter, req *http.Request, parent, name string) {
	known := f.children[parent]
	switch {
	case req.Method == http.MethodPost:
		var ws object
		if err := json.NewDecoder(req.Body).Decode(&ws); err != nil {
			panic(err)
		}
		name = ws["metadata"].(object)["name"].(string)
		if known[name] != nil {
			writeError(w, http.StatusConflict)
			return
		}
		spec := ws["spec"].(object)
		if spec["type"] == nil {
			spec["type"] = object{"name": "universal"}
		}
		spec["type"].(object)["path"] = "root"
		ws["status"] = object{"phase": "Scheduling"}
		known[name] = ws
		writeJSON(w, http.StatusCreated, ws)
	case name == "":
		var items []any
		for _, ws := range known {
			items = append(items, ws)
		}
		writeJSON(w, http.StatusOK, object{"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceList", "metadata": object{}, "items": items})
	case known[name] == nil:
		writeError(w, http.StatusNotFound)
	default:
		ws := known[name]
		if ws["status"].(object)["phase"] != "Ready" {
			if f.ready--; f.ready < 0 {
				ws["status"] = object{"phase": "Ready"}
				ws["spec"].(object)["URL"] = f.URL + "/clusters/" + parent + ":" + name
				f.access[parent+":"+name] = true
			}
		}
		writeJSON(w, http.StatusOK, ws)
	}
}

func writeJSON(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		panic(err)
	}
}

func writeError(w http.ResponseWriter, code int) {
	reason := map[int]metav1.StatusReason{
		http.StatusForbidden: metav1.StatusReasonForbidden, http.StatusNotFound: metav1.StatusReasonNotFound, http.StatusConflict: metav1.StatusReasonAlreadyExists,
	}[code]
	writeJSON(w, code, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: "refused",
	})
}

// user is a user with a kubeconfig.
type user struct {
	t          *testing.T
	kubeconfig string
	server     string
}

// user returns a user in a workspace, with a context of their own.
func (f *fakeInstallation) user(t *testing.T, in string) *user {
	t.Setenv("HOME", "/home/alice")
	u := &user{t: t, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig"), server: f.URL}
	content := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: mine,
contexts: [{name: mine, context: {cluster: kcp, user: alice}}, {name: base, context: {cluster: base, user: alice}}],
clusters: [{name: kcp, cluster: {server: "%[1]s/clusters/%[2]s"}}, {name: base, cluster: {server: "%[1]s"}}],
users: [{name: alice, user: {token: t}}]}`, f.URL, in)
	if err := os.WriteFile(u.kubeconfig, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return u
}

// commandResult is the output and the error of a command. The URL of the server is replaced by SERVER in all of it.
type commandResult struct{ out, errOut, err string }

func (u *user) run(build func(*connection.Flags) *cobra.Command, args ...string) commandResult {
	u.t.Helper()
	var out, errOut bytes.Buffer
	flags := connection.NewFlags(genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut})
	cmd := plugin.NewRootCommand("kubectl test", flags, build)
	cmd.SilenceErrors = true
	cmd.SetOut(&out)
	cmd.SetArgs(append([]string{"--kubeconfig", u.kubeconfig}, args...))
	got := commandResult{}
	if err := cmd.Execute(); err != nil {
		got.err = u.maskServer(err.Error())
	}
	got.out, got.errOut = u.maskServer(out.String()), u.maskServer(errOut.String())
	return got
}

func (u *user) ws(args ...string) commandResult {
	u.t.Helper()
	return u.run(workspace.NewCommand, args...)
}
func (u *user) create(args ...string) commandResult {
	u.t.Helper()
	return u.run(workspace.NewCreateCommand, args...)
}

func (u *user) maskServer(s string) string { return strings.ReplaceAll(s, u.server, "SERVER") }

func (u *user) expect(got, want commandResult) {
	u.t.Helper()
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(commandResult{})); diff != "" {
		u.t.Errorf("(-want +got):\n%s", diff)
	}
}

// currentContext returns the current context and its server.
func (u *user) currentContext() (context, server string) {
	u.t.Helper()
	config, err := clientcmd.LoadFromFile(u.kubeconfig)
	if err != nil {
		u.t.Fatal(err)
	}
	return config.CurrentContext, u.maskServer(config.Clusters[config.Contexts[config.CurrentContext].Cluster].Server)
}

func (u *user) expectContext(wantContext, wantServer string) {
	u.t.Helper()
	if context, server := u.currentContext(); context != wantContext || server != wantServer {
		u.t.Errorf("the kubeconfig is at %s, %s, want %s, %s", context, server, wantContext, wantServer)
	}
}

func TestUse(t *testing.T) {
	f := newFakeInstallation(t)
	f.access["root"], f.access["user:alice"] = true, true
	f.workspace("root", "org", "organization")
	f.workspace("root:org", "team", "team")
	u := f.user(t, "root")

	u.expect(u.ws("."), commandResult{out: "Current workspace is 'root'.\n"})
	u.expect(u.ws("-"), commandResult{err: "no previous workspace found in kubeconfig"})
	u.expect(u.ws("org:team"), commandResult{out: "Current workspace is 'root:org:team' (type root:team).\n"})
	u.expectContext("workspace.kcp.io/current", "SERVER/clusters/root:org:team")
	u.expect(u.ws(".."), commandResult{out: "Current workspace is 'root:org' (type root:organization).\n"})
	u.expect(u.ws("-"), commandResult{out: "Current workspace is 'root:org:team'.\n"})
	u.expectContext("workspace.kcp.io/current", "SERVER/clusters/root:org:team")
	u.expect(u.ws("use", ":"), commandResult{out: "Current workspace is 'root'.\n"})
	u.expect(u.ws(".."), commandResult{err: "cannot go up from root"})
	u.expect(u.ws("cd", "--short", "org"), commandResult{out: "root:org\n"})
	u.expect(u.ws("/root"), commandResult{out: "Current workspace is 'root' (type root).\n"})
	u.expect(u.ws("~"), commandResult{out: "Current workspace is 'user:alice'.\n"})
	u.expect(u.ws(":root:org"), commandResult{out: "Current workspace is 'root:org' (type root:organization).\n"})
	u.expect(u.ws("current", "--short"), commandResult{out: "root:org\n"})
	u.expect(u.ws("a::b"), commandResult{err: "invalid workspace path: a::b"})

	got := u.ws("root:org:team")
	if !strings.HasPrefix(got.errOut, "Note: Using 'root:' to define an absolute path is no longer supported.") {
		t.Errorf("root: gives the note %q", got.errOut)
	}
	u.expectContext("workspace.kcp.io/current", "SERVER/clusters/root:org:team")
	got = u.ws()
	if !strings.HasPrefix(got.errOut, "Note: 'kubectl ws' now matches 'cd' semantics") {
		t.Errorf("no argument gives the note %q", got.errOut)
	}
	u.expectContext("workspace.kcp.io/current", "SERVER/clusters/user:alice")
}

func TestUseChecksAccess(t *testing.T) {
	f := newFakeInstallation(t)
	f.access["root"] = true
	f.workspace("root", "org", "organization")
	f.workspace("root", "secret", "universal")
	f.access["root:secret"] = false
	f.access["root:orphan"] = true      // reachable, but its Workspace is gone
	f.access["root:hidden:team"] = true // reachable, but its parent returns 403
	u := f.user(t, "root")

	for name, tc := range map[string]struct {
		path string
		want commandResult
	}{
		"denied, and the parent has it":           {"secret", commandResult{err: `access to workspace "root:secret" denied`}},
		"denied, and the parent returns 404":      {"nowhere", commandResult{err: `workspace "root:nowhere" not found`}},
		"denied, and the parent is denied too":    {"secret:child", commandResult{err: `access to workspace "root:secret:child" denied`}},
		"denied without a parent":                 {":user:bob", commandResult{err: `access to workspace "user:bob" denied`}},
		"allowed although the parent returns 404": {":root:orphan", commandResult{out: "Current workspace is 'root:orphan'.\n"}},
		"allowed although the parent is denied":   {":root:hidden:team", commandResult{out: "Current workspace is 'root:hidden:team'.\n"}},
		"allowed, and the parent has its type":    {":root:org", commandResult{out: "Current workspace is 'root:org' (type root:organization).\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			context, server := u.currentContext()
			u.expect(u.ws("--context", "mine", tc.path), tc.want)
			if tc.want.err != "" {
				u.expectContext(context, server)
			}
		})
	}
}

func TestNonWorkspaceURL(t *testing.T) {
	f := newFakeInstallation(t)
	u := f.user(t, "root")
	base := func(args ...string) commandResult { return u.ws(append(args, "--context", "base")...) }

	u.expect(base("."), commandResult{out: "Current workspace is the URL \"SERVER\".\n"})
	u.expect(base("current", "--short"), commandResult{})
	u.expect(base("org"), commandResult{err: `current URL "SERVER" does not point to a workspace`})
	u.expect(base("create-context"), commandResult{err: `current URL "SERVER" does not point to a workspace`})
	u.expect(base("tree"), commandResult{out: "current context URL \"SERVER\" does not point directly to a kcp workspace\n"})
	u.expect(u.ws(".", "--context", "gone"), commandResult{err: `current "gone" context not found`})
	u.expectContext("mine", "SERVER/clusters/root")
}

func TestUseWarnsAboutClaims(t *testing.T) {
	f := newFakeInstallation(t)
	f.workspace("root", "org", "organization")
	f.bindings["root:org"] = []map[string]any{{
		"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": object{"name": "b"},
		"spec":   object{"permissionClaims": []any{object{"resource": "secrets", "verbs": []any{"get"}}}},
		"status": object{"exportPermissionClaims": []any{object{"resource": "secrets", "verbs": []any{"get"}}}},
	}}
	u := f.user(t, "root")
	u.expect(u.ws("org"), commandResult{
		out:    "Current workspace is 'root:org' (type root:organization).\n",
		errOut: "Warning: claim for secrets specified on APIBinding b but not accepted or rejected. Accept it: kubectl kcp claims accept b --resource secrets.core\n",
	})
}

func TestCreateContext(t *testing.T) {
	f := newFakeInstallation(t)
	u := f.user(t, "root:org")
	u.expect(u.ws("create-context"), commandResult{out: "Created context \"root:org\" and switched to it.\n"})
	u.expectContext("root:org", "SERVER/clusters/root:org")
	u.expect(u.ws("create-context"), commandResult{err: `context "root:org" already exists in kubeconfig, use --overwrite to update it`})
	u.expect(u.ws("create-context", "--overwrite"), commandResult{out: "Updated context \"root:org\".\n"})
}

func TestTree(t *testing.T) {
	f := newFakeInstallation(t)
	f.access["root"] = true
	f.workspace("root", "b", "universal")
	f.workspace("root", "a", "universal")
	f.children["root:b"] = map[string]map[string]any{}
	f.workspace("root:a", "mounted", "universal")["spec"].(object)["mount"] = object{"ref": object{"kind": "Remote"}}
	f.workspace("root:a", "going", "universal")["metadata"].(object)["deletionTimestamp"] = "2026-01-01T00:00:00Z"
	waiting := f.workspace("root:a", "waiting", "universal")
	waiting["status"], waiting["spec"], f.access["root:a:waiting"] = object{"phase": "Scheduling"}, object{}, false
	u := f.user(t, "root")

	u.expect(u.ws("tree"), commandResult{out: `.
└── root
    ├── a
    │   ├── mounted [m]
    │   └── waiting
    └── b
`})
	u.expect(u.ws("tree", "-w", "a", "--full", "--wide"), commandResult{out: `.
└── root:a                  ws=-             lc=Ready
    ├── root:a:mounted [m]  ws=Ready         lc=Unknown
    └── root:a:waiting      ws=Scheduling    lc=Unknown
`})
	u.expect(u.ws("tree", "-w", "..:.."), commandResult{err: "cannot go above the root workspace"})
	delete(f.children, "root:b")
	u.expect(u.ws("tree", "-w", ":root"), commandResult{
		out: `.
└── root
    ├── a
    │   ├── mounted [m]
    │   └── waiting
    └── b
`,
		errOut: "Warning: listing workspaces in workspace \"root:b\": refused\n",
	})
	u.expect(u.ws("tree", "-i"), commandResult{err: "--interactive needs a terminal"})
}

func TestCreateWorkspace(t *testing.T) {
	f := newFakeInstallation(t)
	f.access["root"] = true
	f.workspace("root", "org", "organization")
	f.children["root:org"] = map[string]map[string]any{}
	f.ready = 1
	u := f.user(t, "root")

	u.expect(u.create("team", "--type", "Team", "-w", "org", "--location-selector", "region in (eu)"), commandResult{
		out: "Workspace \"team\" (type root:team) created. Waiting for it to be ready...\n" +
			"Workspace \"team\" (type root:team) is ready to use.\n",
	})
	wantSpec := object{
		"type": object{"name": "team", "path": "root"}, "URL": f.URL + "/clusters/root:org:team",
		"location": object{"selector": object{"matchExpressions": []any{object{"key": "region", "operator": "In", "values": []any{"eu"}}}}},
	}
	if diff := cmp.Diff(wantSpec, f.children["root:org"]["team"]["spec"]); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	u.expectContext("mine", "SERVER/clusters/root")

	u.expect(u.create("org"), commandResult{err: `creating workspace "org" in "root": refused`})
	u.expect(u.create("org", "--ignore-existing", "--type", "universal"), commandResult{err: "--ignore-existing must not be used with non-absolute type path"})
	u.expect(u.create("org", "--ignore-existing", "--type", "root:universal"), commandResult{
		err: `workspace "org" cannot be created with type root:universal, it already exists with different type root:organization`,
	})
	u.expect(u.create("x", "--location-selector", "a b"), commandResult{
		err: `invalid location selector: couldn't parse the selector string "a b": unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt`,
	})
	u.expect(u.create("org", "--ignore-existing", "--create-context", "mine2"), commandResult{
		out: "Workspace \"org\" (type root:organization) already exists.\nCreated context \"mine2\".\n",
	})
	u.expectContext("mine", "SERVER/clusters/root")
	u.expect(u.create("org", "--ignore-existing", "--create-context", "mine2", "--enter"), commandResult{
		out: "Workspace \"org\" (type root:organization) already exists.\nUpdated context \"mine2\" and switched to it.\n",
	})
	u.expectContext("mine2", "SERVER/clusters/root:org")
	u.expect(u.create("fresh", "--enter"), commandResult{
		out: "Workspace \"fresh\" (type root:universal) created. Waiting for it to be ready...\n" +
			"Workspace \"fresh\" (type root:universal) is ready to use.\n" +
			"Current workspace is 'root:org:fresh' (type root:universal).\n",
	})
	u.expectContext("workspace.kcp.io/current", "SERVER/clusters/root:org:fresh")
}

func TestCreateWithTerminatingWorkspace(t *testing.T) {
	f := newFakeInstallation(t)
	f.workspace("root", "org", "organization")["metadata"].(object)["deletionTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	u := f.user(t, "root")
	u.expect(u.create("org", "--ignore-existing"), commandResult{
		err: `workspace "org" already exists and is being deleted, try again when it is gone`,
	})
}

func TestCompletion(t *testing.T) {
	f := newFakeInstallation(t)
	f.workspace("root", "org", "organization")
	f.workspace("root", "other", "organization")
	f.workspace("root", "team", "team")
	u := f.user(t, "root:team")
	for typed, want := range map[string][]string{
		"..:o":     {"..:org", "..:other"},
		":root:te": {":root:team"},
		"x":        nil,
	} {
		var got []string
		for _, line := range strings.Split(u.ws("__complete", typed).out, "\n") {
			if line != "" && !strings.HasPrefix(line, ":6") {
				got = append(got, line)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", typed, diff)
		}
	}
}
