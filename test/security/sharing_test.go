package security_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
)

const (
	widgets    = "/apis/example.com/v1/namespaces/default/widgets"
	allWidgets = "/apis/example.com/v1/widgets"
	secrets    = "/api/v1/namespaces/default/secrets"
)

// sharingEnv is an installation where b and a have bound the export of workspace p of paula. b has accepted the claim
// of the export on secrets with the label share=yes, and rejected that on config maps. c, a workspace of carol, has no
// binding.
type sharingEnv struct {
	*env
	p, c     string
	identity string
	paula    *testUser
	carol    *testUser
}

// TestAPISharing attacks an exported API with the provider on one shard and the consumers on two others, one of which
// is root.
func TestAPISharing(t *testing.T) {
	s := newSharingEnv(t, placement{installation.Alpha, installation.Root}, installation.Beta)
	for _, attack := range []struct {
		name string
		run  func(*sharingEnv, *testing.T)
	}{
		{"workspaces without a binding are not accessible", (*sharingEnv).testUnboundWorkspaces},
		{"unclaimed resources are not accessible", (*sharingEnv).testUnclaimedResources},
		{"claim selectors are enforced", (*sharingEnv).testClaimSelector},
		{"consumers access their own objects only", (*sharingEnv).testConsumerIsolation},
		{"virtual workspaces of other exports are Forbidden", (*sharingEnv).testForeignExports},
		{"the view of a sync agent shows and changes what its publications select", (*sharingEnv).testSyncerView},
		{"export identities cannot be forged", (*sharingEnv).testExportIdentities},
		{"export paths cannot be forged", (*sharingEnv).testExportPaths},
		{"reuse of a path does not inherit bindings", (*sharingEnv).testPathReuse},
		{"maximal permission policy", (*sharingEnv).testMaximalPermissionPolicy},
		{"unpermitted bindings are refused uniformly", (*sharingEnv).testUnpermittedBindings},
		{"definitions of bound resources are immutable", (*sharingEnv).testBoundDefinitions},
		{"concurrent users", (*sharingEnv).testConcurrentUsers},
		{"audit logs of workspaces", (*sharingEnv).testAuditLog},
		{"routes outside of logical clusters", (*sharingEnv).testRoutes},
		{"privileged claims", (*sharingEnv).testPrivilegedClaims},
		{"virtual workspaces serve local consumers only", (*sharingEnv).testVirtualWorkspacesPerShard},
		{"cached resources", (*sharingEnv).testCachedResources},
		{"provider webhooks apply to exported resources only", (*sharingEnv).testProviderWebhooks},
	} {
		t.Run(attack.name, func(t *testing.T) { attack.run(s, t) })
	}
}

// TestAPISharingOnOneShard runs the subset of these attacks that concerns state which one shard shares among its
// workspaces.
func TestAPISharingOnOneShard(t *testing.T) {
	s := newSharingEnv(t, sameShard, sameShard.a)
	for _, attack := range []struct {
		name string
		run  func(*sharingEnv, *testing.T)
	}{
		{"workspaces without a binding are not accessible", (*sharingEnv).testUnboundWorkspaces},
		{"consumers access their own objects only", (*sharingEnv).testConsumerIsolation},
		{"virtual workspaces of other exports are Forbidden", (*sharingEnv).testForeignExports},
		{"reuse of a path does not inherit bindings", (*sharingEnv).testPathReuse},
		{"concurrent users", (*sharingEnv).testConcurrentUsers},
		{"audit logs of workspaces", (*sharingEnv).testAuditLog},
	} {
		t.Run(attack.name, func(t *testing.T) { attack.run(s, t) })
	}
}

func newSharingEnv(t *testing.T, where placement, provider string) *sharingEnv {
	s := &sharingEnv{env: newEnv(t, where)}
	s.p, s.c = s.createTenantWorkspace(t, "p", "paula", provider), s.createTenantWorkspace(t, "c", "carol", provider)
	s.paula, s.carol = s.newCertificateUser(t, "paula"), s.newCertificateUser(t, "carol")
	claims := []apisv1alpha2.PermissionClaim{allVerbsClaim("secrets"), allVerbsClaim("configmaps")}
	s.identity = s.NewExport(t, s.p, "widgets", schema.GroupResource{Group: "example.com", Resource: "widgets"}, "Widget", func(export *apisv1alpha2.APIExport) {
		export.Spec.PermissionClaims = claims
	}).Status.IdentityHash
	s.NewExport(t, s.p, "private", schema.GroupResource{Group: "private.example.com", Resource: "gadgets"}, "Gadget")
	s.allowBinding(t, "widgets")
	for _, cluster := range []string{s.a, s.b} {
		_, err := s.clientset(t, cluster).CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "shared", Labels: map[string]string{"share": "yes"}},
		}, metav1.CreateOptions{})
		must(t, err)
		s.Bind(t, cluster, s.p, "widgets", func(binding *apisv1alpha2.APIBinding) {
			binding.Spec.PermissionClaims = []apisv1alpha2.AcceptablePermissionClaim{
				{PermissionClaim: claims[0], Selector: apisv1alpha2.PermissionClaimSelector{LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{"share": "yes"}}}, State: apisv1alpha2.ClaimAccepted},
				{PermissionClaim: claims[1], Selector: apisv1alpha2.PermissionClaimSelector{MatchAll: true}, State: apisv1alpha2.ClaimRejected},
			}
		})
		content := "plain"
		if cluster == s.b {
			content = confidentialData
		}
		body := `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"confidential","labels":{"of":"` + content + `"}},"spec":{"content":"` + content + `"}}`
		if got := s.do(t, s.masters, cluster, request{method: http.MethodPost, path: widgets, body: body}); got.status != http.StatusCreated {
			t.Fatalf("%d %s", got.status, got.body)
		}
	}
	shardtesting.Eventually(t, "the shared objects are served", func(context.Context) error {
		for _, path := range []string{widgets + "/confidential", secrets + "/shared"} {
			if got := s.sendToShard(t, s.paula, request{path: s.virtualWorkspace("widgets", s.b) + path}); got.status != http.StatusOK {
				return fmt.Errorf("%s: %d %s", path, got.status, got.body)
			}
		}
		return nil
	})
	return s
}

func allVerbsClaim(resource string) apisv1alpha2.PermissionClaim {
	return apisv1alpha2.PermissionClaim{GroupResource: apisv1alpha2.GroupResource{Resource: resource}, Verbs: []string{"*"}}
}

// virtualWorkspace returns the path of the virtual workspace of an export of p.
func (s *sharingEnv) virtualWorkspace(export, cluster string) string {
	return exportVirtualWorkspacePath(s.p, export, cluster)
}

func exportVirtualWorkspacePath(provider, export, cluster string) string {
	return "/services/apiexport/" + provider + "/" + export + "/clusters/" + cluster
}

// allowBinding lets all users bind an export of p.
func (s *sharingEnv) allowBinding(t *testing.T, export string) {
	t.Helper()
	c := s.clientset(t, s.p).RbacV1()
	_, err := c.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "bind-" + export}, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"bind"}, APIGroups: []string{"apis.kcp.io"}, Resources: []string{"apiexports"}, ResourceNames: []string{export}},
	}}, metav1.CreateOptions{})
	must(t, err)
	_, err = c.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "bind-" + export},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "bind-" + export},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:authenticated"}}}, metav1.CreateOptions{})
	must(t, err)
}

// expectRefused sends requests that must be refused without a server error and without data of b.
func (s *sharingEnv) expectRefused(t *testing.T, caller *testUser, requests ...request) {
	t.Helper()
	for _, r := range requests {
		for _, base := range s.workspaceServerURLs() {
			got := s.send(t, caller, base, r)
			if base == s.proxyURL && got.status == http.StatusTemporaryRedirect && strings.Contains(r.path, "/..") {
				continue // redirected to the cleaned path
			}
			if got.status < 400 || got.status >= 500 || strings.Contains(got.body, confidentialData) {
				t.Errorf("%s at the %s: %s %s %.200s: %d %.400s", caller.name, s.serverName(base), r.method, r.path, r.body, got.status, got.body)
			}
		}
	}
}

// writeRequests returns requests of all kinds that change an object at a path.
func writeRequests(collection, name, kind, apiVersion string) []request {
	object := func(name string) string {
		return `{"apiVersion":"` + apiVersion + `","kind":"` + kind + `","metadata":{"name":"` + name + `","namespace":"default","labels":{"share":"yes","claimed.internal.apis.kcp.io/x":"y"},"annotations":{"changed":"true"}}}`
	}
	at := collection + "/" + name
	return []request{
		{method: http.MethodPost, path: collection, body: object("new")},
		{method: http.MethodPost, path: collection + "?dryRun=All", body: object("new")},
		{method: http.MethodPut, path: at, body: object(name)},
		{method: http.MethodPut, path: collection + "/new", body: object("new")},
		{method: http.MethodPatch, path: at, body: object(name), contentType: mergePatchType},
		{method: http.MethodPatch, path: at + "?dryRun=All", body: object(name), contentType: mergePatchType},
		{method: http.MethodPatch, path: at, body: `[{"op":"add","path":"/metadata/labels","value":{"share":"yes"}}]`, contentType: "application/json-patch+json"},
		{method: http.MethodPatch, path: at + "?fieldManager=x&force=true", body: object(name), contentType: applyPatchType},
		{method: http.MethodPatch, path: collection + "/new?fieldManager=x&force=true", body: object("new"), contentType: applyPatchType},
		{method: http.MethodDelete, path: at},
		{method: http.MethodDelete, path: at + "?dryRun=All"},
	}
}

func withPrefix(prefix string, requests []request) []request {
	all := make([]request, 0, len(requests))
	for _, r := range requests {
		r.path = prefix + r.path
		all = append(all, r)
	}
	return all
}

// testUnboundWorkspaces sends requests, at the URL of the export, for workspaces that never bound it.
func (s *sharingEnv) testUnboundWorkspaces(t *testing.T) {
	for _, cluster := range []string{s.c, s.p, "root", "system:admin", "system:shard", "system:bound-crds", "0123456789abcdef"} {
		in := s.virtualWorkspace("widgets", cluster)
		s.expectRefused(t, s.paula, withPrefix(in, writeRequests(widgets, "confidential", "Widget", "example.com/v1"))...)
		s.expectRefused(t, s.paula, withPrefix(in, writeRequests(secrets, "confidential", "Secret", "v1"))...)
		s.expectRefused(t, s.paula, withPrefix(in, []request{
			{path: widgets}, {path: allWidgets}, {path: allWidgets + "?watch=1&timeoutSeconds=1"}, {path: widgets + "/confidential"}, {path: secrets}, {path: secrets + "/confidential"}, {path: "/api/v1/secrets"},
			{path: bindingsPath}, {method: http.MethodDelete, path: widgets}, {method: http.MethodDelete, path: secrets},
		})...)
	}
}

// testUnclaimedResources requests, in the virtual workspace of a consumer that has bound the export, all resources that
// it has not shared.
func (s *sharingEnv) testUnclaimedResources(t *testing.T) {
	in := s.virtualWorkspace("widgets", s.b)
	s.expectRefused(t, s.paula, withPrefix(in, writeRequests(configMapsPath, "confidential", "ConfigMap", "v1"))...)
	s.expectRefused(t, s.paula, withPrefix(in, writeRequests(widgets+":"+s.identity, "confidential", "Widget", "example.com/v1"))...)
	s.expectRefused(t, s.paula, withPrefix(in, writeRequests("/api/v1/namespaces/default/serviceaccounts", "builder", "ServiceAccount", "v1"))...)
	token := `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest"}`
	requests := []request{
		{path: configMapsPath}, {path: confidentialPath}, {path: "/api/v1/configmaps"}, {path: "/api/v1/namespaces"}, {path: clusterRoles}, {path: ownClusterPath}, {path: workspacesPath}, {path: exportsPath},
		{path: "/metrics"}, {path: "/logs"}, {path: "/debug/pprof/"}, {path: "/readyz"}, {path: "/services/apiexport/" + s.p + "/widgets/clusters/" + s.b + widgets}, {path: "/clusters/" + s.b + confidentialPath},
		{path: "/apis/example.com/v1/namespaces/default/secrets/confidential"}, {path: "/api/v1/namespaces/default/widgets/confidential"}, {path: "/apis/example.com/v2" + strings.TrimPrefix(widgets, "/apis/example.com/v1")},
		{path: widgets + "/confidential/scale"}, {path: widgets + "/confidential/nothing"}, {path: widgets + "/confidential/status/more"}, {path: "/api/v1/namespaces/default/finalize"},
		{path: "/api/v1/proxy/namespaces/default/secrets/confidential"}, {path: "/api/v1/watch/namespaces/default/configmaps/confidential"}, {path: "/api/v1/watch/configmaps"},
		{path: secrets + "%2fconfidential"}, {path: widgets + "/../secrets/confidential"}, {path: widgets + "/..%2f..%2fconfigmaps%2fconfidential"}, {path: "/apis/example.com/v1/namespaces/default/widgets:" + s.identity + "/confidential"},
		{method: http.MethodPost, path: "/api/v1/namespaces/default/serviceaccounts/builder/token", body: token},
		{method: http.MethodPut, path: "/api/v1/namespaces/default/finalize", body: `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"default"}}`},
		{method: http.MethodPatch, path: bindingsPath + "/widgets", body: `{"spec":{"permissionClaims":[]}}`, contentType: mergePatchType},
		{method: http.MethodPatch, path: bindingsPath + "/widgets/status", body: `{"status":{"phase":""}}`, contentType: mergePatchType},
		{method: http.MethodDelete, path: bindingsPath + "/widgets"},
		{method: http.MethodDelete, path: bindingsPath},
		{method: http.MethodPatch, path: ownClusterPath + "/status", body: `{"status":{"initializers":[]}}`, contentType: mergePatchType},
		{method: http.MethodPost, path: "/apis/authorization.k8s.io/v1/subjectaccessreviews", body: `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"x","nonResourceAttributes":{"path":"/","verb":"get"}}}`},
	}
	s.expectRefused(t, s.paula, withPrefix(in, requests)...)
	for _, h := range []http.Header{{"Impersonate-User": {"bob"}}, {"Impersonate-User": {"x"}, "Impersonate-Group": {"system:masters"}}, {"impersonate-user": {"bob"}}, {"X-Remote-User": {"bob"}, "X-Remote-Group": {"system:masters"}}} {
		r := request{path: in + confidentialPath, header: h}
		s.expectRefused(t, s.paula, r)
		s.expectRefused(t, s.unrelatedUser, r)
	}
	all := s.virtualWorkspace("widgets", "*")
	s.expectRefused(t, s.paula, withPrefix(all, writeRequests(widgets, "confidential", "Widget", "example.com/v1"))...)
	s.expectRefused(t, s.paula, withPrefix(all, writeRequests(allWidgets, "confidential", "Widget", "example.com/v1"))...)
	// Other bindings of b are not visible, whatever the selector.
	for _, at := range []string{in, all} {
		for _, query := range []string{"", "?resourceVersion=0", "?labelSelector=a!=b", "?labelSelector=internal.apis.kcp.io/export", "?labelSelector=&labelSelector=x", "?fieldSelector=metadata.name=tenancy.kcp.io", "?limit=1"} {
			if got := s.sendToShard(t, s.paula, request{path: at + bindingsPath + query}); got.status != http.StatusOK || strings.Contains(got.body, "tenancy.kcp.io-") || strings.Contains(got.body, `"name":"tenancy.kcp.io`) {
				t.Errorf("%s%s: %d %.800s", at, query, got.status, got.body)
			}
		}
	}
}

// testClaimSelector attempts to reach the secret of b that is not labelled, by the claim on those that are.
func (s *sharingEnv) testClaimSelector(t *testing.T) {
	raw := func() string {
		return s.do(t, s.masters, s.b, request{path: secrets + "/confidential"}).body
	}
	before := raw()
	var value struct{ Data map[string]string }
	must(t, json.Unmarshal([]byte(before), &value))
	in, all := s.virtualWorkspace("widgets", s.b), s.virtualWorkspace("widgets", "*")
	for _, r := range writeRequests(secrets, "confidential", "Secret", "v1") {
		if strings.Contains(r.path, "/confidential") {
			s.expectRefused(t, s.paula, withPrefix(in, []request{r})...)
		}
	}
	s.expectRefused(t, s.paula, withPrefix(in, []request{
		{path: secrets + "/confidential"},
		{method: http.MethodPatch, path: secrets + "/shared", body: `{"metadata":{"labels":{"share":"no"}}}`, contentType: mergePatchType},
		{method: http.MethodPatch, path: secrets + "/shared", body: `{"metadata":{"labels":null}}`, contentType: "application/x"},
		{method: http.MethodPost, path: secrets, body: `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"other","labels":{"share":"no"}}}`},
	})...)
	// A patch reveals nothing about fields that it did not change.
	answers := map[string]bool{}
	for _, guess := range []string{value.Data["content"], "d3Jvbmc="} {
		patch := `[{"op":"test","path":"/data/content","value":"` + guess + `"},{"op":"add","path":"/metadata/labels","value":{"share":"yes"}}]`
		got := s.sendToShard(t, s.paula, request{method: http.MethodPatch, path: in + secrets + "/confidential", body: patch, contentType: "application/json-patch+json"})
		answers[fmt.Sprintf("%d %s", got.status, got.body)] = true
	}
	if len(answers) != 1 {
		t.Errorf("responses to guesses of the content of a secret differ: %v", answers)
	}
	var reads errgroup.Group
	reads.SetLimit(16)
	for _, at := range []string{in, all} {
		for _, query := range []string{
			"", "?resourceVersion=0", "?limit=500", "?labelSelector=share!=yes", "?labelSelector=&labelSelector=!share", "?labelSelector=%21share", "?fieldSelector=metadata.name=confidential", "?LabelSelector=share", "?labelSelector=share&LABELSELECTOR=", "?labelSelector=share;labelSelector=",
			"?watch=1&timeoutSeconds=1&resourceVersion=1", "?watch=1&timeoutSeconds=1", "?watch=1&timeoutSeconds=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan", "?watch=true&timeoutSeconds=1&fieldSelector=metadata.name=confidential",
		} {
			for _, path := range []string{"/api/v1/secrets", secrets, "/api/v1/watch/secrets", "/api/v1/watch/namespaces/default/secrets/confidential"} {
				if strings.Contains(path, "/watch/") && query != "" {
					continue
				}
				if strings.Contains(path, "/watch/") {
					query = "?timeoutSeconds=1"
				}
				reads.Go(func() error { // each watch takes a second
					if got := s.sendToShard(t, s.paula, request{path: at + path + query}); got.status >= 500 || strings.Contains(got.body, `"name":"confidential"`) || strings.Contains(got.body, value.Data["content"]) {
						t.Errorf("%s%s%s: %d %.300s", at, path, query, got.status, got.body)
					}
					return nil
				})
			}
		}
	}
	must(t, reads.Wait())
	// Deleting the collection deletes the shared secrets only.
	if got := s.sendToShard(t, s.paula, request{method: http.MethodDelete, path: in + secrets + "?labelSelector=%21share"}); got.status >= 500 {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got := s.sendToShard(t, s.paula, request{method: http.MethodDelete, path: in + secrets}); got.status != http.StatusOK {
		t.Errorf("%d %s", got.status, got.body)
	}
	if after := raw(); after != before {
		t.Errorf("the secret changed from %s\nto %s", before, after)
	}
	if got := s.do(t, s.masters, s.b, request{path: secrets + "/shared"}); got.status != http.StatusNotFound {
		t.Errorf("the shared secret was not deleted: %d", got.status)
	}
}

// testConsumerIsolation has a consumer request the objects of another one.
func (s *sharingEnv) testConsumerIsolation(t *testing.T) {
	token := func(path string) string {
		metadata, _ := s.sendToShard(t, s.masters, request{path: path + "?limit=1"}).object(t)["metadata"].(map[string]any)
		text, _ := metadata["continue"].(string)
		return text
	}
	var reads errgroup.Group
	reads.SetLimit(16)
	tokens := []string{token("/clusters/*" + allWidgets + ":" + s.identity), token(s.virtualWorkspace("widgets", "*") + allWidgets)}
	for _, path := range []string{allWidgets, allWidgets + ":" + s.identity, allWidgets + "%3a" + s.identity, widgets, widgets + ":" + s.identity, widgets + "/confidential", widgets + ":" + s.identity + "/confidential"} {
		queries := []string{"", "?resourceVersion=0", "?fieldSelector=metadata.name=confidential", "?labelSelector=of=" + confidentialData, "?watch=1&timeoutSeconds=1&resourceVersion=1", "?watch=1&timeoutSeconds=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"}
		for _, one := range tokens {
			queries = append(queries, "?limit=5&continue="+one)
		}
		for _, query := range queries {
			for _, accept := range []string{jsonType, "application/json;as=Table;v=v1;g=meta.k8s.io", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"} {
				reads.Go(func() error { // each watch takes a second
					got := s.sendToShard(t, s.adminA, request{path: "/clusters/" + s.a + path + query, header: http.Header{"Accept": {accept}}})
					if got.status >= 500 && !strings.Contains(got.body, "Too large resource version") || strings.Contains(got.body, confidentialData) || strings.Contains(got.body, s.b) {
						t.Errorf("%s%s: %d %.400s", path, query, got.status, got.body)
					}
					return nil
				})
			}
		}
	}
	must(t, reads.Wait())
	for _, path := range []string{allWidgets, allWidgets + ":" + s.identity, allWidgets + "?labelSelector=of=" + confidentialData, "/apis/example.com/v1/widgets:" + s.identity + "?watch=1&timeoutSeconds=1"} {
		for _, caller := range []*testUser{s.adminA, s.serviceAccount, s.unrelatedUser, s.anonymous, s.carol, s.paula} {
			s.expectRefused(t, caller, request{path: "/clusters/*" + path})
			if caller != s.adminA && caller != s.serviceAccount {
				s.expectRefused(t, caller, request{path: "/clusters/" + s.a + path})
			}
			s.expectRefused(t, caller, request{path: "/clusters/" + s.b + path})
		}
	}
	// c has no binding: the resource is not served there by any name.
	s.expectRefused(t, s.carol, request{path: "/clusters/" + s.c + allWidgets}, request{path: "/clusters/" + s.c + allWidgets + ":" + s.identity}, request{method: http.MethodPost, path: "/clusters/" + s.c + widgets + ":" + s.identity, body: `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"x"}}`})
}

// testForeignExports sends requests to the virtual workspace of an export of another workspace.
func (s *sharingEnv) testForeignExports(t *testing.T) {
	for _, caller := range []*testUser{s.adminA, s.serviceAccount, s.adminB, s.carol, s.unrelatedUser, s.anonymous} {
		for _, cluster := range []string{"*", s.a, s.b, s.c, s.p} {
			in := s.virtualWorkspace("widgets", cluster)
			s.expectRefused(t, caller, withPrefix(in, []request{{path: "/api"}, {path: "/apis"}, {path: "/openapi/v3"}, {path: "/version"}, {path: allWidgets}, {path: widgets + "/confidential"}, {path: bindingsPath}, {path: "/api/v1/secrets"}, {method: http.MethodDelete, path: widgets}})...)
		}
	}
	s.expectRefused(t, s.paula, request{path: exportVirtualWorkspacePath("root", "tenancy.kcp.io", "*") + workspacesPath}, request{path: exportVirtualWorkspacePath("root", "tenancy.kcp.io", s.b) + workspacesPath}, request{path: exportVirtualWorkspacePath(s.b, "widgets", "*") + allWidgets},
		request{path: "/services/apiresourceschema/" + s.b + "/apis/apis.kcp.io/v1alpha1/apiresourceschemas"}, request{path: "/services/replication/" + s.b + "/x/clusters/" + s.b + "/apis"},
		request{path: "/services/apiexport/" + s.p + "/widgets/clusters/" + s.b + "/../" + s.c + secrets}, request{path: "/services/apiexport/root:p/widgets/clusters/*" + allWidgets}, request{path: "/services/cache/shards/*/clusters/*/api/v1/secrets"}, request{path: "/services/" + s.p})
	// Any exporter may claim the resources of p, but no consumer has accepted the claim.
	s.createObject(t, exportsPath, `{"apiVersion":"apis.kcp.io/v1alpha2","kind":"APIExport","metadata":{"name":"claiming"},"spec":{"permissionClaims":[
		{"group":"example.com","resource":"widgets","identityHash":"`+s.identity+`","verbs":["*"]},{"resource":"secrets","verbs":["*"]},{"resource":"configmaps","verbs":["*"]},{"group":"apis.kcp.io","resource":"apibindings","verbs":["*"]}]}}`)
	s.waitForStatus(t, s.adminA, s.a, exportsPath+"/claiming", http.StatusOK)
	shardtesting.Eventually(t, "the virtual workspace of the new export is served", func(context.Context) error {
		if got := s.sendToShard(t, s.adminA, request{path: exportVirtualWorkspacePath(s.a, "claiming", "*") + "/api/v1/secrets"}); got.status != http.StatusOK {
			return fmt.Errorf("%d %s", got.status, got.body)
		}
		return nil
	})
	for _, path := range []string{"/api/v1/secrets", "/api/v1/configmaps", allWidgets, bindingsPath} {
		for _, query := range []string{"", "?resourceVersion=0", "?watch=1&timeoutSeconds=1&resourceVersion=1", "?labelSelector=share"} {
			if got := s.sendToShard(t, s.adminA, request{path: exportVirtualWorkspacePath(s.a, "claiming", "*") + path + query}); got.status >= 500 || strings.Contains(got.body, confidentialData) || strings.Contains(got.body, s.b) || strings.Contains(got.body, `"confidential"`) {
				t.Errorf("%s%s: %d %.400s", path, query, got.status, got.body)
			}
			s.expectRefused(t, s.adminA, request{path: exportVirtualWorkspacePath(s.a, "claiming", s.b) + path + query})
		}
	}
}
