package security_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// testPrivilegedClaims gives p every claim that a consumer can accept, and has p write fields of the server and objects
// that the consumer cannot grant.
func (s *sharingEnv) testPrivilegedClaims(t *testing.T) {
	tenancy := s.exportIdentity(t, "tenancy.kcp.io")
	claims := []apisv1alpha2.PermissionClaim{allVerbsClaim("serviceaccounts"), allVerbsClaim("namespaces"), allVerbsClaim("configmaps")}
	for _, one := range []apisv1alpha2.PermissionClaim{
		{GroupResource: apisv1alpha2.GroupResource{Group: "apis.kcp.io", Resource: "apiexports"}},
		{GroupResource: apisv1alpha2.GroupResource{Group: "apis.kcp.io", Resource: "apibindings"}},
		{GroupResource: apisv1alpha2.GroupResource{Group: "core.kcp.io", Resource: "logicalclusters"}},
		{GroupResource: apisv1alpha2.GroupResource{Group: "tenancy.kcp.io", Resource: "workspaces"}, IdentityHash: tenancy},
		{GroupResource: apisv1alpha2.GroupResource{Group: "tenancy.kcp.io", Resource: "workspacetypes"}, IdentityHash: tenancy},
		{GroupResource: apisv1alpha2.GroupResource{Group: "rbac.authorization.k8s.io", Resource: "clusterrolebindings"}},
		{GroupResource: apisv1alpha2.GroupResource{Group: "example.com", Resource: "widgets"}, IdentityHash: s.identity},
	} {
		one.Verbs = []string{"*"}
		claims = append(claims, one)
	}
	var listed []string
	for _, one := range claims {
		listed = append(listed, fmt.Sprintf(`{"group":%q,"resource":%q,"identityHash":%q,"verbs":["*"]}`, one.Group, one.Resource, one.IdentityHash))
	}
	if got := s.do(t, s.paula, s.p, request{method: http.MethodPost, path: exportsPath, body: exportJSON("claims", `"permissionClaims":[`+strings.Join(listed, ",")+`]`)}); got.status != http.StatusCreated {
		t.Fatalf("%d %s", got.status, got.body)
	}
	s.allowBinding(t, "claims")
	s.createObject(t, exportsPath, exportJSON("claimed", ""))
	s.createObject(t, workspacesPath, `{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"Workspace","metadata":{"name":"claimed"},"spec":{}}`)
	s.createObject(t, typesPath, `{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"WorkspaceType","metadata":{"name":"claimed"},"spec":{}}`)
	s.waitReady(t, s.a, "claimed")
	s.Bind(t, s.a, s.p, "claims", func(binding *apisv1alpha2.APIBinding) {
		for _, one := range claims {
			binding.Spec.PermissionClaims = append(binding.Spec.PermissionClaims, apisv1alpha2.AcceptablePermissionClaim{PermissionClaim: one, Selector: apisv1alpha2.PermissionClaimSelector{MatchAll: true}, State: apisv1alpha2.ClaimAccepted})
		}
	})
	in := s.virtualWorkspace("claims", s.a)
	shardtesting.Eventually(t, "the claimed objects are served", func(context.Context) error {
		for _, path := range []string{confidentialPath, exportsPath + "/claimed", workspacesPath + "/claimed", typesPath + "/claimed", widgets + "/confidential"} {
			if got := s.sendToShard(t, s.paula, request{path: in + path}); got.status != http.StatusOK {
				return fmt.Errorf("%s: %d %s", path, got.status, got.body)
			}
		}
		return nil
	})
	patch := func(path, body string) request {
		return request{method: http.MethodPatch, path: in + path, body: body, contentType: mergePatchType}
	}
	s.expectRefused(t, s.paula,
		patch(exportsPath+"/claimed/status", `{"status":{"identityHash":"`+s.identity+`"}}`),
		patch(strings.Replace(exportsPath, "v1alpha2", "v1alpha1", 1)+"/claimed/status", `{"status":{"identityHash":"`+s.identity+`"}}`),
		patch(bindingsPath+"/claims/status", `{"status":{"phase":"Binding"}}`),
		patch(ownClusterPath+"/status", `{"status":{"initializers":["root:universal"]}}`),
		patch(ownClusterPath+"/status", `{"status":{"phase":"Scheduling"}}`),
		patch(ownClusterPath, `{"spec":{"owner":null}}`),
		request{method: http.MethodDelete, path: in + ownClusterPath},
		patch(workspacesPath+"/claimed/status", `{"status":{"phase":"Unavailable"}}`),
		patch(workspacesPath+"/claimed", `{"spec":{"cluster":"`+s.b+`"}}`),
		patch(workspacesPath+"/claimed", `{"spec":{"URL":"https://evil.example/clusters/x"}}`),
		patch(typesPath+"/claimed/status", `{"status":{"virtualWorkspaces":[{"url":"https://evil.example","type":"initializing"}]}}`),
		request{method: http.MethodPost, path: in + "/api/v1/namespaces/default/serviceaccounts/builder/token", body: `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest"}`},
		request{method: http.MethodPut, path: in + "/api/v1/namespaces/default/finalize", body: `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"default"}}`},
		request{method: http.MethodPost, path: in + bindingsPath, body: bindingJSON("stolen", s.b, "nothing")},
		request{method: http.MethodPost, path: in + bindingsPath, body: bindingJSON("stolen", "root", "shards.core.kcp.io")},
		request{method: http.MethodPost, path: in + workspacesPath, body: `{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"Workspace","metadata":{"name":"stolen"},"spec":{"type":{"name":"private","path":"root:b"}}}`},
		request{method: http.MethodPost, path: in + workspacesPath, body: `{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"Workspace","metadata":{"name":"stolen"},"spec":{"cluster":"` + s.b + `"}}`},
	)
	// An object created through the virtual workspace belongs to the consumer, whatever its metadata claims.
	forged := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"forged","labels":{"claimed.internal.apis.kcp.io/forged":"x","internal.apis.kcp.io/export":"x"},"annotations":{"kcp.io/cluster":"` + s.b + `","kcp.io/path":"root:b"}}}`
	got := s.sendToShard(t, s.paula, request{method: http.MethodPost, path: in + configMapsPath, body: forged})
	if got.status == http.StatusCreated && (strings.Contains(got.body, `/forged":"x"`) || strings.Contains(got.body, s.b) || strings.Contains(got.body, `"root:b"`)) {
		t.Errorf("%s", got.body)
	}
	if status := s.do(t, s.masters, s.a, request{path: workspacesPath + "/claimed"}).object(t)["status"].(map[string]any); status["phase"] != "Ready" {
		t.Errorf("%v", status)
	}
	// The accepted claims end with the binding, for open watches too.
	watched := make(chan httpResponse, 1)
	go func() {
		watched <- s.sendToShard(t, s.paula, request{path: in + "/api/v1/configmaps?watch=1&timeoutSeconds=8"})
	}()
	s.waitForStatus(t, s.adminA, s.a, bindingsPath+"/claims", http.StatusOK)
	s.do(t, s.adminA, s.a, request{method: http.MethodDelete, path: bindingsPath + "/claims"})
	s.waitForStatus(t, s.adminA, s.a, bindingsPath+"/claims", http.StatusNotFound)
	s.createObject(t, configMapsPath, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"after"},"data":{"content":"after-the-end"}}`)
	if got := <-watched; strings.Contains(got.body, "after-the-end") {
		t.Errorf("a watch continues after the deletion of the binding: %.600s", got.body)
	}
	s.expectRefused(t, s.paula, request{path: in + confidentialPath}, request{path: in + "/api/v1/configmaps"}, request{path: in + widgets + "/confidential"})
	shardtesting.Eventually(t, "the wildcard list has no objects of a", func(context.Context) error {
		if got := s.send(t, s.paula, s.shardURL, request{path: s.virtualWorkspace("claims", "*") + "/api/v1/configmaps"}); got.status != http.StatusOK || strings.Contains(got.body, s.a) {
			return fmt.Errorf("%d %.600s", got.status, got.body)
		}
		return nil
	})
}
