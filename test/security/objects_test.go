package security_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// testWorkspaceObjects attempts, with every kind of write, to point a workspace of a to another logical cluster or to
// set another owner.
func testWorkspaceObjects(t *testing.T, s *env) {
	s.createReadyWorkspace(t, "honest")
	honest := workspacesPath + "/honest"
	whole := func(metadata, spec, status string) string {
		return `{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"Workspace","metadata":{` + metadata + `},"spec":{` + spec + `},"status":{` + status + `}}`
	}
	universal := `"type":{"name":"universal","path":"root"}`
	refused := []string{`"cluster":"` + s.b + `"`, `"cluster":"root"`, `"cluster":"system:admin"`, `"URL":"https://evil.example/clusters/root:a:x"`, `"mount":{"ref":{"apiVersion":"v1","kind":"X","name":"x"}}`, `"URL":"https://evil.example","mount":{"ref":{"apiVersion":"v1","kind":"X","name":"x"}}`}
	for _, caller := range []*testUser{s.adminA, s.serviceAccount} {
		for i, spec := range refused {
			name := fmt.Sprintf("refused-%d", i)
			for _, r := range []request{
				{method: http.MethodPost, path: workspacesPath, body: whole(`"name":"`+name+`"`, spec+","+universal, "")},
				{method: http.MethodPatch, path: workspacesPath + "/" + name + "?fieldManager=me&force=true", contentType: applyPatchType, body: whole(`"name":"`+name+`"`, spec+","+universal, "")},
				{method: http.MethodPatch, path: honest + "?fieldManager=me&force=true", contentType: applyPatchType, body: whole(`"name":"honest"`, spec, "")},
				{method: http.MethodPatch, path: honest, contentType: mergePatchType, body: `{"spec":{` + spec + `}}`},
			} {
				if got := s.do(t, caller, s.a, r); got.status != http.StatusForbidden && got.status != http.StatusUnprocessableEntity {
					t.Errorf("%s: %s %s %s: %d %.300s", caller.name, r.method, r.path, r.body, got.status, got.body)
				}
			}
		}
		for _, status := range []string{`"phase":"Ready"`, `"phase":"Unavailable"`, `"initializers":["root:universal"]`} {
			for _, r := range []request{
				{method: http.MethodPatch, path: honest + "/status", contentType: mergePatchType, body: `{"status":{` + status + `},"spec":{"cluster":"` + s.b + `"},"metadata":{"annotations":{"internal.tenancy.kcp.io/cluster":"` + s.b + `"}}}`},
				{method: http.MethodPatch, path: honest + "/status?fieldManager=me&force=true", contentType: applyPatchType, body: whole(`"name":"honest"`, "", status)},
				{method: http.MethodPatch, path: typesPath + "/x/status", contentType: mergePatchType, body: `{"status":{}}`},
				{method: http.MethodPut, path: honest + "/status", body: whole(`"name":"honest"`, "", status)},
			} {
				if got := s.do(t, caller, s.a, r); got.status != http.StatusForbidden {
					t.Errorf("%s: %s %s: a tenant writes the status of a workspace: %d %.300s", caller.name, r.method, r.path, got.status, got.body)
				}
			}
		}
	}
	forged := fmt.Sprintf(`"annotations":{"internal.tenancy.kcp.io/cluster":%q,"core.kcp.io/shard":"evil","internal.tenancy.kcp.io/shard":"evil","experimental.tenancy.kcp.io/owner":"{\"username\":\"bob\"}","authorization.kcp.io/required-groups":"forged-group","kcp.io/cluster":%q}`, s.b, s.b)
	for _, r := range []request{
		{method: http.MethodPost, path: workspacesPath, body: whole(`"name":"annotated",`+forged, universal, `"phase":"Ready"`)},
		{method: http.MethodPatch, path: honest, contentType: mergePatchType, body: `{"metadata":{` + forged + `}}`},
		{method: http.MethodPatch, path: workspacesPath + "/applied-annotated?fieldManager=me&force=true", contentType: applyPatchType, body: whole(`"name":"applied-annotated",`+forged, universal, "")},
	} {
		if got := s.do(t, s.adminA, s.a, r); got.status < 300 && (strings.Contains(got.body, "bob") || strings.Contains(got.body, "evil") || strings.Contains(got.body, "forged-group") || strings.Contains(got.body, s.b)) {
			if !strings.Contains(r.path, "honest") { // a refusal is fine, too
				t.Errorf("%s %s keeps forged values: %s", r.method, r.path, withoutManagedFields(got.body))
			}
		}
	}
	for _, name := range []string{"honest", "annotated", "applied-annotated"} {
		s.waitReady(t, s.a, name)
		got := s.do(t, s.adminA, s.a, request{path: workspacesPath + "/" + name})
		if text := withoutManagedFields(got.body); strings.Contains(text, "bob") || strings.Contains(text, "evil") || strings.Contains(text, "forged-group") || strings.Contains(text, s.b) {
			t.Errorf("%s has forged values: %s", name, text)
		}
	}
}

// testWorkspaceType has the administrator of a workspace below a claim that it is of the private type of b, which would
// make the server bind in it what that type binds.
func testWorkspaceType(t *testing.T, s *env) {
	s.createWorkspace(t, s.a, "typed")
	s.waitReady(t, s.a, "typed")
	typed := s.workspaceCluster(t, s.a, "typed")
	before := s.do(t, s.adminA, typed, request{path: bindingsPath}).object(t)["items"].([]any)
	for _, kind := range []string{"root:b:private", s.b + ":private"} {
		annotation := `{"metadata":{"annotations":{"internal.tenancy.kcp.io/type":"` + kind + `"}}}`
		for _, path := range []string{ownClusterPath, ownClusterPath + "/status"} {
			s.do(t, s.adminA, typed, request{method: http.MethodPatch, path: path, body: annotation, contentType: mergePatchType})
			s.do(t, s.adminA, typed, request{method: http.MethodPatch, path: path + "?fieldManager=x&force=true", contentType: applyPatchType, body: `{"apiVersion":"core.kcp.io/v1alpha1","kind":"LogicalCluster","metadata":{"name":"cluster","annotations":{"internal.tenancy.kcp.io/type":"` + kind + `"}}}`})
		}
		for range 10 { // lets the controller reconcile
			time.Sleep(100 * time.Millisecond)
			if got := s.do(t, s.adminA, typed, request{path: bindingsPath}); strings.Contains(got.body, `"inner"`) || len(got.object(t)["items"].([]any)) != len(before) {
				t.Fatalf("with the type %s: %s", kind, got.body)
			}
		}
		if got := s.do(t, s.adminA, typed, request{path: ownClusterPath}); !strings.Contains(got.body, `"internal.tenancy.kcp.io/type":"root:universal"`) {
			t.Errorf("with the type %s: %s", kind, withoutManagedFields(got.body))
		}
	}
}

// testRemotePlacement creates workspaces on another shard, with all internal annotations and labels and
// those that claim a parent, and checks the resulting logical clusters.
func testRemotePlacement(t *testing.T, s *env) {
	annotations, labels := s.internalMetadata(t)
	metadata, err := json.Marshal(map[string]any{"name": "remote", "annotations": annotations, "labels": labels, "finalizers": []string{"example.com/x"}, "ownerReferences": []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "confidential", "uid": "x"}}})
	must(t, err)
	body := `{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"Workspace","metadata":` + string(metadata) + `,"spec":{` + s.remoteLocation() + `,"type":{"name":"universal","path":"root"}},"status":{"phase":"Ready","initializers":["root:universal"]}}`
	s.createObject(t, workspacesPath, body)
	s.waitReady(t, s.a, "remote")
	cluster := s.workspaceCluster(t, s.a, "remote")
	object := s.do(t, s.masters, cluster, request{path: ownClusterPath}).object(t)
	made := object["metadata"].(map[string]any)
	got, _ := made["annotations"].(map[string]any)
	for key, want := range map[string]any{"core.kcp.io/shard": s.placement.b, "internal.core.kcp.io/owner-shard": s.placement.a, "kcp.io/path": "root:a:remote", "kcp.io/cluster": cluster, "internal.tenancy.kcp.io/type": "root:universal"} {
		if got[key] != want {
			t.Errorf("annotation %s is %v, want %v", key, got[key], want)
		}
	}
	for key, value := range annotations {
		if got[key] == value && value != "" && key != "internal.core.kcp.io/owner-shard" {
			t.Errorf("the logical cluster has annotation %s: %s", key, value)
		}
	}
	if text := fmt.Sprint(made["labels"], made["ownerReferences"], made["finalizers"], object["spec"]); strings.Contains(text, "example.com") || strings.Contains(text, "name:"+s.placement.a) || strings.Contains(text, "bob") || strings.Contains(text, "claimed") {
		t.Errorf("the logical cluster has %s", text)
	}
	s.do(t, s.adminA, s.a, request{method: http.MethodPatch, path: workspacesPath + "/remote", body: `{"metadata":{"finalizers":null}}`, contentType: mergePatchType})
}

// testCreatorPermissions has a service account of a create a workspace: that account must be its administrator, and not
// an account of the new workspace with the same name.
func testCreatorPermissions(t *testing.T, s *env) {
	if got := s.do(t, s.serviceAccount, s.a, request{method: http.MethodPost, path: workspacesPath, body: `{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"Workspace","metadata":{"name":"created"},"spec":{` + s.remoteLocation() + `,"type":{"name":"universal","path":"root"}}}`}); got.status != http.StatusCreated {
		t.Fatalf("%d %s", got.status, got.body)
	}
	s.waitReady(t, s.a, "created")
	child := s.workspaceCluster(t, s.a, "created")
	review := func(user string) httpResponse {
		return s.do(t, s.masters, child, request{method: http.MethodPost, path: "/apis/authorization.k8s.io/v1/subjectaccessreviews",
			body: fmt.Sprintf(`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":%q,"groups":["system:serviceaccounts","system:authenticated"],"extra":{"authentication.kcp.io/cluster-name":[%q]},"resourceAttributes":{"resource":"secrets","verb":"list"}}}`, user, child)})
	}
	if got := review("system:serviceaccount:default:builder"); strings.Contains(got.body, `"allowed":true`) {
		t.Errorf("the service account of the same name in the new workspace is its administrator: %s", got.body)
	}
	if got := s.do(t, s.serviceAccount, child, request{path: "/api/v1/secrets"}); got.status != http.StatusOK {
		t.Errorf("the service account that created the workspace is not its administrator: %d %s", got.status, got.body)
	}
}

// testLogicalClusterObject edits the LogicalCluster of a, which its administrator may do.
func testLogicalClusterObject(t *testing.T, s *env) {
	for name, patch := range map[string]string{
		"createdBy":      `{"spec":{"createdBy":{"username":"bob"}}}`,
		"initializers":   `{"spec":{"initializers":["root:evil"]}}`,
		"owner name":     `{"spec":{"owner":{"name":"b"}}}`,
		"owner UID":      `{"spec":{"owner":{"uid":"0"}}}`,
		"owner cluster":  `{"spec":{"owner":{"cluster":"` + s.b + `"}}}`,
		"owner resource": `{"spec":{"owner":{"resource":"x"}}}`,
		"no owner":       `{"spec":{"owner":null}}`,
	} {
		if got := s.do(t, s.adminA, s.a, request{method: http.MethodPatch, path: ownClusterPath, body: patch, contentType: mergePatchType}); got.status != http.StatusForbidden {
			t.Errorf("%s can be changed: %d %.300s", name, got.status, got.body)
		}
	}
	for name, patch := range map[string]string{
		"phase Scheduling": `{"status":{"phase":"Scheduling"}}`, "phase Unavailable": `{"status":{"phase":"Unavailable"}}`, "initializers": `{"status":{"initializers":["root:universal"]}}`,
	} {
		if got := s.do(t, s.adminA, s.a, request{method: http.MethodPatch, path: ownClusterPath + "/status", body: patch, contentType: mergePatchType}); got.status != http.StatusForbidden {
			t.Errorf("%s: %d %.300s", name, got.status, got.body)
		}
	}
	for _, r := range []request{
		{method: http.MethodDelete, path: ownClusterPath},
		{method: http.MethodDelete, path: strings.TrimSuffix(ownClusterPath, "/cluster")},
		{method: http.MethodPost, path: strings.TrimSuffix(ownClusterPath, "/cluster"), body: `{"apiVersion":"core.kcp.io/v1alpha1","kind":"LogicalCluster","metadata":{"name":"cluster"},"spec":{}}`},
	} {
		if got := s.do(t, s.adminA, s.a, r); got.status != http.StatusForbidden && got.status != http.StatusConflict {
			t.Errorf("%s %s: %d %.300s", r.method, r.path, got.status, got.body)
		}
	}
	for i := range 20 { // the server copies this to the workspace, which is in root
		s.annotate(t, fmt.Sprintf(`"core.kcp.io/shard":"evil-%d"`, i))
		if got := s.do(t, s.masters, "root", request{path: workspacesPath + "/a"}); strings.Contains(withoutManagedFields(got.body), "evil") {
			t.Errorf("the Workspace of a in root has a value of the tenant: %s", withoutManagedFields(got.body))
			break
		}
	}
	s.do(t, s.adminA, s.a, request{method: http.MethodPatch, path: ownClusterPath, body: `{"metadata":{"finalizers":null}}`, contentType: mergePatchType})
	if got := s.do(t, s.adminA, s.a, request{path: ownClusterPath}); !strings.Contains(got.body, `"core.kcp.io/logicalcluster-deletion"`) {
		t.Errorf("the finalizer was removed: %s", got.body)
	}
}

// testDeletion attempts to keep a logical cluster alive while its parent workspace is deleted.
func testDeletion(t *testing.T, s *env) {
	s.createReadyWorkspace(t, "org")
	org := s.workspaceCluster(t, s.a, "org")
	for name, keepAlive := range map[string]func(cluster string) httpResponse{
		"remove the finalizers of the Workspace": func(string) httpResponse {
			return s.do(t, s.adminA, org, request{method: http.MethodPatch, path: workspacesPath + "/child", body: `{"metadata":{"finalizers":null}}`, contentType: mergePatchType})
		},
		"change the owner UID of the LogicalCluster": func(cluster string) httpResponse {
			return s.do(t, s.adminA, cluster, request{method: http.MethodPatch, path: ownClusterPath, body: `{"spec":{"owner":{"uid":"0"}}}`, contentType: mergePatchType})
		},
		"change the owner name of the LogicalCluster": func(cluster string) httpResponse {
			return s.do(t, s.adminA, cluster, request{method: http.MethodPatch, path: ownClusterPath, body: `{"spec":{"owner":{"name":"x"}}}`, contentType: mergePatchType})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s.createWorkspace(t, org, "child")
			s.waitReady(t, org, "child")
			cluster := s.workspaceCluster(t, org, "child")
			s.waitForStatus(t, s.adminA, cluster, ownClusterPath, http.StatusOK)
			keepAlive(cluster)
			s.do(t, s.masters, org, request{method: http.MethodDelete, path: workspacesPath + "/child"})
			shardtesting.Eventually(t, "the workspace is deleted", func(context.Context) error {
				if got := s.do(t, s.masters, org, request{path: workspacesPath + "/child"}); got.status != http.StatusNotFound {
					return errors.New(got.body)
				}
				return nil
			})
			if left := s.keys(t, "/"+cluster+"/"); len(left) > 0 {
				t.Errorf("the workspace is deleted, but its logical cluster %s has %d keys, the first is %s", cluster, len(left), left[0])
			}
		})
	}
}

func (e *env) createWorkspace(t *testing.T, parent, name string) {
	t.Helper()
	got := e.do(t, e.adminA, parent, request{method: http.MethodPost, path: workspacesPath, body: `{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"Workspace","metadata":{"name":"` + name + `"},"spec":{` + e.remoteLocation() + `,"type":{"name":"universal","path":"root"}}}`})
	if got.status != http.StatusCreated {
		t.Fatalf("%d %s", got.status, got.body)
	}
}

// createReadyWorkspace creates a workspace in a as its administrator.
func (e *env) createReadyWorkspace(t *testing.T, name string) {
	t.Helper()
	e.createWorkspace(t, e.a, name)
	e.waitReady(t, e.a, name)
}

func (e *env) waitReady(t *testing.T, parent, name string) {
	t.Helper()
	shardtesting.Eventually(t, name+" becomes Ready", func(context.Context) error {
		got := e.do(t, e.masters, parent, request{path: workspacesPath + "/" + name})
		if !strings.Contains(got.body, `"phase":"Ready"`) {
			return errors.New(got.body)
		}
		return nil
	})
}

func (e *env) workspaceCluster(t *testing.T, parent, name string) string {
	t.Helper()
	workspace := e.do(t, e.masters, parent, request{path: workspacesPath + "/" + name}).object(t)
	return workspace["spec"].(map[string]any)["cluster"].(string)
}

func withoutManagedFields(body string) string {
	before, after, found := strings.Cut(body, `"managedFields":[`)
	if !found {
		return body
	}
	_, after, _ = strings.Cut(after, "}]")
	return before + after
}
