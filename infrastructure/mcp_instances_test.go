package infrastructure_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/backend"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

func (e *webEnv) testLifecycle(t *testing.T) {
	alice := e.connect(t, tokenOf("alice"))
	mine := func(more map[string]any) map[string]any {
		arguments := map[string]any{"workspace": "root:tenant", "kind": "Redis", "name": "mine"}
		for name, value := range more {
			arguments[name] = value
		}
		return arguments
	}
	created := alice.must(t, "provision", map[string]any{"workspace": "root:tenant", "template": anyRedis, "name": "mine", "values": map[string]any{"name": "a"}, "waitSeconds": 60})
	if created["phase"] != "Ready" || created["ready"] != true || created["timedOut"] != nil || fmt.Sprint(created["outputs"]) != "map[endpoint:mine.example.org:6380]" {
		t.Fatalf("provisioned: %v", created)
	}
	if got := alice.reported(); len(got) == 0 || !strings.HasPrefix(got[0], "Redis mine is ") {
		t.Errorf("progress %q", got)
	}
	shardtesting.Eventually(t, "the connection to be named", func(context.Context) error {
		got := alice.must(t, "get_instance", mine(nil))
		if fmt.Sprint(got["connectionSecret"]) != "map[name:mine-redis namespace:default]" {
			return fmt.Errorf("got %v", got)
		}
		if got["phase"] != "Ready" || fmt.Sprint(got["values"]) != "map[name:a size:small]" || !strings.Contains(fmt.Sprint(got["conditions"]), "AllResourcesReady") {
			t.Errorf("got %v", got)
		}
		return nil
	})
	alice.refused(t, "provision", map[string]any{"workspace": "root:tenant", "template": anyRedis, "name": "mine", "values": map[string]any{"name": "a"}}, "already exists", "infrastructure__update_instance")
	if got := alice.must(t, "get_instance", mine(map[string]any{"kind": anyRedis})); got["kind"] != "Redis" {
		t.Errorf("by the name of the template: %v", got)
	}
	alice.refused(t, "update_instance", mine(map[string]any{"values": map[string]any{"size": "huge"}}), "- values.size: ")
	alice.refused(t, "update_instance", mine(map[string]any{"values": map[string]any{"name": nil}}), "- values.name: ")
	checked := alice.must(t, "update_instance", mine(map[string]any{"values": map[string]any{"size": "large"}, "dryRun": true}))
	if got := alice.must(t, "get_instance", mine(nil)); checked["dryRun"] != true || fmt.Sprint(got["values"]) != "map[name:a size:small]" {
		t.Errorf("a dry run: %v, afterwards %v", checked, got)
	}
	updated := alice.must(t, "update_instance", mine(map[string]any{"kind": "redis", "values": map[string]any{"size": "large"}, "waitSeconds": 60}))
	if updated["ready"] != true || fmt.Sprint(updated["values"]) != "map[name:a size:large]" {
		t.Errorf("updated: %v", updated)
	}
	e.waitData(t, e.tenant, "redis-mine", "large")
	for _, confirm := range []string{"", "yes", "redis", "Mine"} {
		alice.refused(t, "delete_instance", mine(map[string]any{"confirm": confirm}), `confirm: it has to be the name of the instance, "mine"`)
	}
	if deleted := alice.must(t, "delete_instance", mine(map[string]any{"confirm": "mine", "waitSeconds": 60})); deleted["gone"] != true {
		t.Errorf("deleted: %v", deleted)
	}
	e.waitAbsent(t, e.tenant, "redis-mine")
	alice.refused(t, "get_instance", mine(nil), "not found")
	alice.refused(t, "delete_instance", mine(map[string]any{"confirm": "mine"}), "not found")
}

// testIdentities shows that a call has the permissions of its token, and learns nothing about other workspaces.
func (e *webEnv) testIdentities(t *testing.T) {
	bob := e.connect(t, tokenOf("bob"))
	bob.must(t, "provision", map[string]any{"workspace": "root:second", "template": anyRedis, "name": "of-bob", "values": map[string]any{"name": "secret-of-bob"}})
	calls := func(workspace string) map[string]map[string]any {
		return map[string]map[string]any{
			"list_templates":    {"workspace": workspace},
			"describe_template": {"workspace": workspace, "template": anyRedis},
			"provision":         {"workspace": workspace, "template": anyRedis, "name": "a", "values": map[string]any{"name": "a"}},
			"list_instances":    {"workspace": workspace},
			"get_instance":      {"workspace": workspace, "kind": "Redis", "name": "of-bob"},
			"update_instance":   {"workspace": workspace, "kind": "Redis", "name": "of-bob", "values": map[string]any{"size": "large"}},
			"delete_instance":   {"workspace": workspace, "kind": "Redis", "name": "of-bob", "confirm": "of-bob"},
		}
	}
	alice, nobody := e.connect(t, tokenOf("alice"), "X-Remote-User", "bob", "Impersonate-User", "bob", "X-Tenant", "second", "Cookie", "user=bob"), e.connect(t, tokenOf("nobody"))
	for _, client := range []*mcpClient{alice, nobody} {
		for name, arguments := range calls("root:second") {
			there := client.refused(t, name, arguments, "not permitted", "or the workspace does not exist")
			absent := client.refused(t, name, calls("root:absent")[name], "not permitted", "or the workspace does not exist")
			if strings.ReplaceAll(there, "second", "absent") != absent || strings.Contains(there, "secret-of-bob") {
				t.Errorf("%s: a workspace that exists can be told from one that does not:\n%s\n%s", name, there, absent)
			}
		}
	}
	invalid := e.connect(t, "of-nobody-at-all")
	for name, arguments := range calls("root:second") {
		invalid.refused(t, name, arguments, "token is not valid")
	}
	reader := e.connect(t, tokenOf("reader"))
	reader.refused(t, "provision", map[string]any{"workspace": "root:tenant", "template": anyRedis, "name": "a", "values": map[string]any{"name": "a"}}, "not permitted", "has to grant")
	if found, err := e.of(e.second).inTenant(t, "redis").Get(t.Context(), "of-bob", metav1.GetOptions{}); err != nil || found.GetDeletionTimestamp() != nil || found.GetGeneration() != 1 {
		t.Errorf("the instance of another tenant: %v, %v", found, err)
	}
}

func (e *webEnv) testHostileArguments(t *testing.T) {
	alice := e.connect(t, tokenOf("alice"))
	for _, workspace := range []string{
		"", "*", "..", "../..", "root/../second", "root:tenant/../second", "root:tenant/api/v1/namespaces/default/secrets?", "root%3Asecond", "%2e%2e", "root:tenant#", "root:tenant?a=b",
		"system:admin", "system:masters", "Root", "root:", ":root", "root::tenant", "root tenant", "root:tenant\n", "root:tenant\x00", "http://evil.example.org", "@evil.example.org",
		strings.Repeat("a", 5000), "root:" + strings.Repeat("ä", 100),
	} {
		text := alice.refusedOrInvalid(t, "list_templates", map[string]any{"workspace": workspace}, "workspace")
		if len(text) > 1000 {
			t.Errorf("workspace %.20q: the error has %d characters", workspace, len(text))
		}
	}
	for _, name := range []string{"", "..", "../redis/other", "a/b", "a%2fb", "A", "a b", "a?b", "*", ".", "a\x00", strings.Repeat("a", 300)} {
		of := map[string]any{"workspace": "root:tenant", "kind": "Redis", "name": name, "confirm": name, "values": map[string]any{}}
		for tool, needed := range map[string][]string{"get_instance": nil, "update_instance": {"values"}, "delete_instance": {"confirm"}} {
			alice.refusedOrInvalid(t, tool, pick(of, append(needed, "workspace", "kind", "name")...), "name")
		}
		alice.refusedOrInvalid(t, "describe_template", map[string]any{"workspace": "root:tenant", "template": name}, "template")
		alice.refusedOrInvalid(t, "provision", map[string]any{"workspace": "root:tenant", "template": name, "name": "a", "values": map[string]any{}}, "template")
		alice.refusedOrInvalid(t, "provision", map[string]any{"workspace": "root:tenant", "template": anyRedis, "name": name, "values": map[string]any{}}, "name")
	}
	for _, kind := range []string{"templates", "Template", "redis/status", "../secrets", "secrets", "*", "Redis.v1"} {
		alice.refused(t, "get_instance", map[string]any{"workspace": "root:tenant", "kind": kind, "name": "a"}, "the workspace has no kind", "Redis")
	}
	for name, arguments := range map[string]map[string]any{
		"a limit":            {"limit": 1000},
		"a negative limit":   {"limit": -1},
		"a continue":         {"continue": "nonsense!"},
		"an unknown one":     {"tenant": "second"},
		"a type":             {"limit": "many"},
		"a huge continue":    {"continue": strings.Repeat("a", 100000)},
		"a continue of JSON": {"continue": "W10"},
	} {
		arguments["workspace"] = "root:tenant"
		text, result, failed := alice.tool(t, "list_instances", arguments)
		if !failed {
			t.Errorf("%s: got %v", name, result)
		}
		if len(text) > 1000 {
			t.Errorf("%s: the error has %d characters", name, len(text))
		}
	}
	text, _, failed := alice.tool(t, "provision", map[string]any{"workspace": "root:tenant", "template": anyRedis, "name": "a", "values": map[string]any{"name": "a"}, "waitSeconds": 100000})
	if !failed || !strings.Contains(text, "waitSeconds") {
		t.Errorf("a long wait: %s", text)
	}
}

// refusedOrInvalid calls a tool with an argument that the tool refuses, or that its schema does not allow.
func (c *mcpClient) refusedOrInvalid(t *testing.T, name string, arguments map[string]any, argument string) string {
	t.Helper()
	text, result, failed := c.tool(t, name, arguments)
	if !failed || !strings.Contains(text, argument+": ") && !strings.Contains(text, "/properties/"+argument) {
		t.Errorf("%s of %q: failed %v, %s%v", name, arguments, failed, text, result)
	}
	return text
}

func pick(from map[string]any, names ...string) map[string]any {
	out := map[string]any{}
	for _, name := range names {
		out[name] = from[name]
	}
	return out
}

// testLists shows that entries do not depend on the client, the name of the workspace, the page size, or the catalogue.
func (e *webEnv) testLists(t *testing.T) {
	e.create(t, newTemplate("other", "Other"))
	e.ready(t, "other")
	alice := e.connect(t, tokenOf("alice"))
	shardtesting.Eventually(t, "two templates", func(context.Context) error {
		if got := alice.must(t, "list_templates", map[string]any{"workspace": "root:tenant"}); len(got["templates"].([]any)) != 2 {
			return fmt.Errorf("got %v", got)
		}
		return nil
	})
	for name, template := range map[string]string{"a": "redis", "b": "redis", "c": "redis", "d": "other", "e": "other"} {
		shardtesting.Eventually(t, "the kinds to be served", func(context.Context) error {
			if text, _, failed := alice.tool(t, "provision", map[string]any{"workspace": "root:tenant", "template": template, "name": name, "values": map[string]any{"name": name}}); failed {
				return errors.New(text)
			}
			return nil
		})
	}
	pages := func(c *mcpClient, tool, field string, arguments map[string]any) (names []string) {
		t.Helper()
		for {
			got := c.must(t, tool, arguments)
			for _, item := range got[field].([]any) {
				names = append(names, item.(map[string]any)["name"].(string))
			}
			if limit, ok := arguments["limit"].(int); ok && len(got[field].([]any)) > limit {
				t.Errorf("%s: a page has %d entries", tool, len(got[field].([]any)))
			}
			if got["continue"] == nil {
				slices.Sort(names)
				return names
			}
			arguments["continue"] = got["continue"]
		}
	}
	if got := pages(alice, "list_templates", "templates", map[string]any{"workspace": "root:tenant", "limit": 1}); !slices.Equal(got, []string{"other", "redis"}) {
		t.Errorf("templates, one by one: %v", got)
	}
	want := []string{"a", "b", "c", "d", "e"}
	// The provider removes one kind from the catalogue. Its instances still exist.
	e.backend.Answer(backend.Status{Message: "is being repaired"}, nil)
	e.change(t, "other", func(template *infrastructurev1alpha1.Template) { template.Spec.Version = "0.2.0" })
	e.waitFor(t, "other", infrastructurev1alpha1.ConditionReady, metav1.ConditionFalse, infrastructurev1alpha1.ReasonBackendNotReady)
	for name, client := range map[string]*mcpClient{"alice": alice, "again": e.connect(t, tokenOf("alice")), "a page elsewhere": e.connect(t, tokenOf("alice"), "X-Tenant", e.second, "X-Workspace", "root:second", "Referer", "https://portal.example.org/ui/?workspace=second", "Mcp-Session-Id", "1")} {
		for _, workspace := range []string{"root:tenant", e.tenant} {
			for _, limit := range []int{1, 2, 3, 5, 100} {
				if got := pages(client, "list_instances", "instances", map[string]any{"workspace": workspace, "limit": limit}); !slices.Equal(got, want) {
					t.Errorf("%s, %s, pages of %d: got %v", name, workspace, limit, got)
				}
			}
			if got := pages(client, "list_instances", "instances", map[string]any{"workspace": workspace, "kind": "Other"}); !slices.Equal(got, want[3:]) {
				t.Errorf("%s, %s, one kind: got %v", name, workspace, got)
			}
			if got := pages(client, "list_templates", "templates", map[string]any{"workspace": workspace, "limit": 1}); !slices.Contains(got, "redis") {
				t.Errorf("%s, %s, templates: got %v", name, workspace, got)
			}
		}
	}
}

// testWaiting shows that a client that disconnects releases the slot of a waiting call. Instances of the kind Other never become Ready.
func (e *webEnv) testWaiting(t *testing.T) {
	update := `"name":"infrastructure__update_instance","arguments":{"workspace":"root:tenant","kind":"Other","name":"d","values":{"size":"large"},"waitSeconds":300}`
	ctx, cancel := context.WithCancel(t.Context())
	waiting := e.raw(ctx, t, http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":"p"},`+update+`}}`, "Authorization", "Bearer "+tokenOf("alice"))
	for lines := bufio.NewScanner(waiting.Body); ; {
		if !lines.Scan() {
			t.Fatalf("no progress: %v", lines.Err())
		}
		if strings.Contains(lines.Text(), "notifications/progress") {
			break
		}
	}
	wait := func() *mcpClient {
		c := e.connect(t, tokenOf("alice"))
		got := c.must(t, "update_instance", map[string]any{"workspace": "root:tenant", "kind": "Other", "name": "e", "values": map[string]any{"size": "large"}, "waitSeconds": 1})
		if got["timedOut"] != true {
			t.Errorf("got %v", got)
		}
		return c
	}
	if got := wait().reported(); len(got) > 0 {
		t.Errorf("a second call waits: %q", got)
	}
	cancel()
	shardtesting.Eventually(t, "the place to be free", func(context.Context) error {
		if len(wait().reported()) == 0 {
			return errors.New("the call does not wait")
		}
		return nil
	})
}

// testPassThrough shows that the API of workspaces handles requests with the identity of the caller, regardless of other headers.
func (e *webEnv) testPassThrough(t *testing.T) {
	send := func(method, path, body string, header map[string]string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, e.url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range header {
			req.Header.Set(name, value)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(text)
	}
	review := `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
	code, text := send(http.MethodPost, "/clusters/root:tenant/apis/authentication.k8s.io/v1/selfsubjectreviews", review, map[string]string{
		"Authorization": "Bearer " + tokenOf("alice"), "Content-Type": "application/json",
		"Impersonate-User": "bob", "Impersonate-Group": "system:masters", "X-Remote-User": "bob", "X-Remote-Group": "system:masters",
	})
	var got struct {
		Status struct {
			UserInfo struct {
				Username string
				Groups   []string
			}
		}
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil || code != http.StatusCreated || got.Status.UserInfo.Username != "alice" || !slices.Equal(got.Status.UserInfo.Groups, []string{"system:authenticated"}) {
		t.Errorf("got %d %s", code, text)
	}
	list := "/clusters/root:second/apis/" + group + "/v1alpha1/redis"
	for user, want := range map[string]int{"alice": http.StatusForbidden, "bob": http.StatusOK, "of-nobody": http.StatusUnauthorized} {
		if code, text := send(http.MethodGet, list, "", map[string]string{"Authorization": "Bearer " + tokenOf(user), "Impersonate-User": "bob"}); code != want {
			t.Errorf("%s: got %d %s", user, code, text)
		}
	}
}
