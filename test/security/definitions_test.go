package security_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

const definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// definitionJSON returns a CustomResourceDefinition whose schema preserves all fields, with more versions if given.
func definitionJSON(group, plural, kind, scope, version, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"%[2]s.%[1]s","annotations":{"api-approved.kubernetes.io":"unapproved, a test"}},
		"spec":{"group":%[1]q,"scope":%[4]q,"names":{"plural":%[2]q,"singular":"one%[2]s","kind":%[3]q,"listKind":"%[3]sList"},
		"versions":[{"name":%[5]q,"served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}},"subresources":{"status":{}}}]%[6]s}}`, group, plural, kind, scope, version, spec)
}

// createDefinition creates a definition in workspace a and waits until it is established.
func (e *env) createDefinition(t *testing.T, body, name string) {
	t.Helper()
	e.createObject(t, definitionsPath, body)
	shardtesting.Eventually(t, name+" is established", func(context.Context) error {
		if got := e.do(t, e.adminA, e.a, request{path: definitionsPath + "/" + name}); !strings.Contains(got.body, `"status":"True","lastTransitionTime"`) && !strings.Contains(got.body, `"type":"Established"`) {
			return fmt.Errorf("%d %s", got.status, got.body)
		}
		return nil
	})
}

// testBuiltinDefinitions creates definitions in workspace a with the names of built-in resources, and deletes them. The
// built-in resources must neither change nor disappear.
func testBuiltinDefinitions(t *testing.T, s *env) {
	for _, d := range []struct{ group, plural, kind, scope, version, object string }{
		{"core.kcp.io", "logicalclusters", "LogicalCluster", "Cluster", "v1alpha1", ownClusterPath},
		{"core.kcp.io", "shards", "Shard", "Cluster", "v1alpha1", ownClusterPath},
		{"tenancy.kcp.io", "workspaces", "Workspace", "Cluster", "v1alpha1", workspacesPath},
		{"tenancy.kcp.io", "workspacetypes", "WorkspaceType", "Cluster", "v1alpha1", typesPath},
		{"rbac.authorization.k8s.io", "clusterrolebindings", "ClusterRoleBinding", "Cluster", "v1", clusterBindings + "/administrator"},
		{"authentication.k8s.io", "tokenreviews", "TokenReview", "Cluster", "v1", ownClusterPath},
		{"coordination.k8s.io", "leases", "Lease", "Namespaced", "v1", "/apis/coordination.k8s.io/v1/namespaces/default/leases"},
	} {
		name := d.plural + "." + d.group
		t.Run(name, func(t *testing.T) {
			read := func() httpResponse {
				got := s.do(t, s.masters, s.a, request{path: d.object})
				got.body = string(withoutServerState([]byte(got.body)))
				return got
			}
			before := read()
			got := s.do(t, s.adminA, s.a, request{method: http.MethodPost, path: definitionsPath, body: definitionJSON(d.group, d.plural, d.kind, d.scope, d.version, "")})
			if got.status != http.StatusCreated {
				return // a refusal is fine, too
			}
			shardtesting.Eventually(t, name+" is reconciled", func(context.Context) error {
				if got := s.do(t, s.adminA, s.a, request{path: definitionsPath + "/" + name}); !strings.Contains(got.body, `"type":"Established"`) {
					return fmt.Errorf("%d %s", got.status, got.body)
				}
				return nil
			})
			if got := read(); got.body != before.body && !strings.Contains(got.body, `"items"`) && d.plural != "shards" {
				t.Errorf("with a definition: %s\nbefore: %s", got.body, before.body)
			}
			s.do(t, s.adminA, s.a, request{method: http.MethodDelete, path: definitionsPath + "/" + name})
			s.waitForStatus(t, s.masters, s.a, definitionsPath+"/"+name, http.StatusNotFound)
			after := read()
			if after.status != before.status || strings.Contains(after.body, "deletionTimestamp") || !strings.Contains(after.body, `"items"`) && after.body != before.body {
				t.Errorf("with the definition deleted: %s\nbefore: %s", after.body, before.body)
			}
		})
	}
}

// createObject creates an object in workspace a as its administrator.
func (e *env) createObject(t *testing.T, path, body string) {
	t.Helper()
	if got := e.do(t, e.adminA, e.a, request{method: http.MethodPost, path: path, body: body}); got.status != http.StatusCreated {
		t.Fatalf("creating in %s: %d %s", path, got.status, got.body)
	}
}
