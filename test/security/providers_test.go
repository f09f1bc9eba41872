package security_test

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

const schemasPath = "/apis/apis.kcp.io/v1alpha1/apiresourceschemas"

func exportJSON(name, spec string) string {
	return `{"apiVersion":"apis.kcp.io/v1alpha2","kind":"APIExport","metadata":{"name":"` + name + `"},"spec":{` + spec + `}}`
}

func bindingJSON(name, path, export string) string {
	return `{"apiVersion":"apis.kcp.io/v1alpha2","kind":"APIBinding","metadata":{"name":"` + name + `"},"spec":{"reference":{"export":{"path":"` + path + `","name":"` + export + `"}}}}`
}

func apiSchemaJSON(prefix, group, plural, kind string) string {
	return fmt.Sprintf(`{"apiVersion":"apis.kcp.io/v1alpha1","kind":"APIResourceSchema","metadata":{"name":"%[1]s.%[3]s.%[2]s"},"spec":{"group":%[2]q,"scope":"Namespaced","names":{"plural":%[3]q,"singular":"one%[3]s","kind":%[4]q,"listKind":"%[4]sList"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true},"subresources":{"status":{}}}]}}`, prefix, group, plural, kind)
}

// testExportIdentities attempts to create an export in a with the identity of an export of p.
func (s *sharingEnv) testExportIdentities(t *testing.T) {
	for name, spec := range map[string]string{
		"name":                `"identity":{"secretRef":{"namespace":"kcp-system","name":"widgets"}}`,
		"other-namespace":     `"identity":{"secretRef":{"namespace":"` + s.p + `","name":"widgets"}}`,
		"traversal-namespace": `"identity":{"secretRef":{"namespace":"../` + s.p + `/kcp-system","name":"widgets"}}`,
		"traversal-name":      `"identity":{"secretRef":{"namespace":"kcp-system","name":"../../` + s.p + `/kcp-system/widgets"}}`,
		"plain":               ``,
	} {
		s.do(t, s.adminA, s.a, request{method: http.MethodPost, path: exportsPath, body: exportJSON(name, spec)})
		for _, version := range []string{"v1alpha1", "v1alpha2"} {
			for _, path := range []string{"", "/status", ":customresources"} {
				at := "/apis/apis.kcp.io/" + version + "/apiexports"
				if path == ":customresources" {
					at, path = at+path, "/status"
				}
				for _, body := range []string{`{"status":{"identityHash":"` + s.identity + `"}}`, `{"apiVersion":"apis.kcp.io/` + version + `","kind":"APIExport","metadata":{"name":"` + name + `"},"status":{"identityHash":"` + s.identity + `"}}`} {
					s.do(t, s.adminA, s.a, request{method: http.MethodPatch, path: at + "/" + name + path, body: body, contentType: mergePatchType})
					s.do(t, s.adminA, s.a, request{method: http.MethodPatch, path: at + "/" + name + path + "?fieldManager=x&force=true", body: body, contentType: applyPatchType})
					s.do(t, s.adminA, s.a, request{method: http.MethodPut, path: at + "/" + name + path, body: body})
				}
			}
		}
	}
	s.createObject(t, exportsPath, exportJSON("last", ""))
	shardtesting.Eventually(t, "all exports are reconciled", func(context.Context) error {
		if got := s.do(t, s.adminA, s.a, request{path: exportsPath + "/last"}); !strings.Contains(got.body, `"identityHash":"`) {
			return fmt.Errorf("%s", got.body)
		}
		return nil
	})
	if got := s.do(t, s.adminA, s.a, request{path: exportsPath}); strings.Contains(got.body, `"status":{"identityHash":"`+s.identity) {
		t.Errorf("an export of a has the identity of an export of p: %s", got.body)
	}
	bound := s.do(t, s.adminA, s.a, request{path: bindingsPath + "/widgets"}).object(t)["status"]
	for _, path := range []string{bindingsPath + "/widgets", bindingsPath + "/widgets/status", bindingsPath + ":customresources/widgets/status", "/apis/apis.kcp.io/v1alpha1/apibindings/widgets/status"} {
		s.do(t, s.adminA, s.a, request{method: http.MethodPatch, path: path, contentType: mergePatchType, body: `{"status":{"phase":"Bound","boundResources":[],"apiExportClusterName":"` + s.b + `"}}`})
	}
	if now := s.do(t, s.adminA, s.a, request{path: bindingsPath + "/widgets"}).object(t)["status"]; fmt.Sprint(now) != fmt.Sprint(bound) {
		t.Errorf("the status of a binding was %v and is %v", bound, now)
	}
}

// testExportPaths has a claim the path and the logical cluster of p.
func (s *sharingEnv) testExportPaths(t *testing.T) {
	const forged = `{"metadata":{"annotations":{"kcp.io/path":"root:p","kcp.io/cluster":"root"}}}`
	for _, path := range []string{ownClusterPath, ownClusterPath + "/status"} {
		s.do(t, s.adminA, s.a, request{method: http.MethodPatch, path: path, body: forged, contentType: mergePatchType})
		s.do(t, s.adminA, s.a, request{method: http.MethodPatch, path: path + "?fieldManager=x&force=true", contentType: applyPatchType, body: `{"apiVersion":"core.kcp.io/v1alpha1","kind":"LogicalCluster","metadata":{"name":"cluster","annotations":{"kcp.io/path":"root:p"}}}`})
		s.do(t, s.adminA, s.a, request{method: http.MethodPatch, path: path, contentType: mergePatchType, body: `{"metadata":{"annotations":{"kcp.io/path":null}}}`})
		s.do(t, s.adminA, s.a, request{method: http.MethodPatch, path: path, body: forged, contentType: mergePatchType})
	}
	forgedExport := strings.Replace(exportJSON("widgets", ""), `"metadata":{`, `"metadata":{"annotations":{"kcp.io/path":"root:p"},`, 1)
	s.do(t, s.adminA, s.a, request{method: http.MethodPost, path: exportsPath, body: forgedExport})
	for _, path := range []string{exportsPath + "/widgets", exportsPath + "/widgets/status"} {
		s.do(t, s.adminA, s.a, request{method: http.MethodPatch, path: path, body: forged, contentType: mergePatchType})
	}
	for _, path := range []string{ownClusterPath, exportsPath + "/widgets"} {
		if got := s.do(t, s.adminA, s.a, request{path: path}); strings.Contains(got.body, `"kcp.io/path":"root:p"`) || !strings.Contains(got.body, `"kcp.io/path":"root:a"`) || !strings.Contains(got.body, `"kcp.io/cluster":"`+s.a+`"`) {
			t.Errorf("%s: %d %.600s", path, got.status, got.body)
		}
	}
	// A binding to the path of p resolves to p.
	s.Bind(t, s.c, "root:p", "widgets")
	if got := s.do(t, s.carol, s.c, request{path: bindingsPath + "/widgets"}); !strings.Contains(got.body, `"apiExportClusterName":"`+s.p+`"`) {
		t.Errorf("%s", got.body)
	}
	s.do(t, s.carol, s.c, request{method: http.MethodDelete, path: bindingsPath + "/widgets"})
	s.waitForStatus(t, s.carol, s.c, bindingsPath+"/widgets", http.StatusNotFound)
}

// testPathReuse has another user take over the path of a deleted workspace whose export others have bound.
func (s *sharingEnv) testPathReuse(t *testing.T) {
	claims := `"permissionClaims":[{"resource":"configmaps","verbs":["*"]}]`
	createExport := func(caller *testUser, cluster string) {
		t.Helper()
		for path, body := range map[string]string{
			schemasPath: apiSchemaJSON("v1", "reused.example.com", "things", "Thing"),
			exportsPath: exportJSON("things", `"resources":[{"group":"reused.example.com","name":"things","schema":"v1.things.reused.example.com","storage":{"crd":{}}}],`+claims),
		} {
			if got := s.do(t, caller, cluster, request{method: http.MethodPost, path: path, body: body}); got.status != http.StatusCreated {
				t.Fatalf("%d %s", got.status, got.body)
			}
		}
		shardtesting.Eventually(t, "the export has an identity", func(context.Context) error {
			if got := s.do(t, caller, cluster, request{path: exportsPath + "/things"}); !strings.Contains(got.body, `"identityHash":"`) {
				return fmt.Errorf("%s", got.body)
			}
			return nil
		})
	}
	const things = "/apis/reused.example.com/v1/namespaces/default/things"
	first := s.createTenantWorkspace(t, "provider", "paula", s.placement.a)
	createExport(s.paula, first)
	s.Bind(t, s.c, "root:provider", "things", func(binding *apisv1alpha2.APIBinding) {
		binding.Spec.PermissionClaims = []apisv1alpha2.AcceptablePermissionClaim{{PermissionClaim: allVerbsClaim("configmaps"), Selector: apisv1alpha2.PermissionClaimSelector{MatchAll: true}, State: apisv1alpha2.ClaimAccepted}}
	})
	if got := s.do(t, s.carol, s.c, request{method: http.MethodPost, path: things, body: `{"apiVersion":"reused.example.com/v1","kind":"Thing","metadata":{"name":"kept"}}`}); got.status != http.StatusCreated {
		t.Fatalf("%d %s", got.status, got.body)
	}
	shardtesting.Eventually(t, "the claimed objects are served", func(context.Context) error {
		if got := s.sendToShard(t, s.paula, request{path: exportVirtualWorkspacePath(first, "things", s.c) + confidentialPath}); got.status != http.StatusOK {
			return fmt.Errorf("%d %s", got.status, got.body)
		}
		return nil
	})
	s.do(t, s.masters, "root", request{method: http.MethodDelete, path: workspacesPath + "/provider"})
	s.waitForStatus(t, s.masters, "root", workspacesPath+"/provider", http.StatusNotFound)
	newOwner := s.newCertificateUser(t, "newowner")
	second := s.createTenantWorkspace(t, "provider", "newowner", s.placement.b)
	createExport(newOwner, second)
	shardtesting.Eventually(t, "the binding reports the other identity", func(context.Context) error {
		if got := s.do(t, s.carol, s.c, request{path: bindingsPath + "/things"}); !strings.Contains(got.body, "another identity") {
			return fmt.Errorf("%s", got.body)
		}
		return nil
	})
	for _, cluster := range []string{s.c, "*"} {
		for _, path := range []string{confidentialPath, "/api/v1/configmaps", things, things + "/kept", "/apis/reused.example.com/v1/things", bindingsPath} {
			if got := s.send(t, newOwner, s.resolveShardURL(t, s.c), request{path: exportVirtualWorkspacePath(second, "things", cluster) + path}); strings.Contains(got.body, s.c) && got.status < 400 || strings.Contains(got.body, `"confidential"`) && got.status < 400 || got.status >= 500 {
				t.Errorf("the new owner gets %s of %s: %d %.400s", path, cluster, got.status, got.body)
			}
		}
	}
	if got := s.do(t, s.carol, s.c, request{path: things + "/kept"}); got.status != http.StatusOK {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// testMaximalPermissionPolicy attempts, by all names and verbs, what the maximal permission policy of an API denies: a
// may only read gadgets.
func (s *sharingEnv) testMaximalPermissionPolicy(t *testing.T) {
	const gadgets = "/apis/bounded.example.com/v1/namespaces/default/gadgets"
	for path, body := range map[string]string{
		schemasPath:  apiSchemaJSON("v1", "bounded.example.com", "gadgets", "Gadget"),
		exportsPath:  exportJSON("bounded", `"maximalPermissionPolicy":{"local":{}},"resources":[{"group":"bounded.example.com","name":"gadgets","schema":"v1.gadgets.bounded.example.com","storage":{"crd":{}}}]`),
		clusterRoles: `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"bounded"},"rules":[{"apiGroups":["bounded.example.com"],"resources":["gadgets"],"verbs":["get","list","watch"]}]}`,
		clusterBindings: `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"bounded"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"bounded"},"subjects":[
			{"kind":"Group","apiGroup":"rbac.authorization.k8s.io","name":"apis.kcp.io:binding:system:authenticated"}]}`,
	} {
		if got := s.do(t, s.paula, s.p, request{method: http.MethodPost, path: path, body: body}); got.status != http.StatusCreated {
			t.Fatalf("%s: %d %s", path, got.status, got.body)
		}
	}
	s.allowBinding(t, "bounded")
	shardtesting.Eventually(t, "the export has an identity", func(context.Context) error {
		if got := s.do(t, s.paula, s.p, request{path: exportsPath + "/bounded"}); !strings.Contains(got.body, "identityHash") {
			return fmt.Errorf("%s", got.body)
		}
		return nil
	})
	status, _ := s.do(t, s.paula, s.p, request{path: exportsPath + "/bounded"}).object(t)["status"].(map[string]any)
	identity, _ := status["identityHash"].(string)
	s.Bind(t, s.a, s.p, "bounded")
	object := `{"apiVersion":"bounded.example.com/v1","kind":"Gadget","metadata":{"name":"kept"},"spec":{}}`
	if got := s.do(t, s.masters, s.a, request{method: http.MethodPost, path: gadgets, body: object}); got.status != http.StatusCreated {
		t.Fatalf("%d %s", got.status, got.body)
	}
	s.waitForStatus(t, s.adminA, s.a, gadgets+"/kept", http.StatusOK)
	before := s.do(t, s.masters, s.a, request{path: gadgets + "/kept"}).body
	impersonate := func(user string, groups ...string) http.Header {
		return http.Header{"Impersonate-User": {user}, "Impersonate-Group": groups}
	}
	headers := []http.Header{nil, impersonate("paula", "system:authenticated"), impersonate("x", "system:kcp:admin"), impersonate("x", "system:masters"), impersonate("apis.kcp.io:binding:paula"), impersonate("system:serviceaccount:default:builder", "system:serviceaccounts"),
		{"Impersonate-User": {"x"}, "Impersonate-Extra-Authorization.kcp.io%2fwarrant": {`{"user":"paula","groups":["system:kcp:admin"]}`}}, {"X-Kcp-Internal-Deep-Subjectaccessreview": {"true"}}}
	for _, name := range []string{gadgets, gadgets + ":" + identity, gadgets + "%3a" + identity} {
		for _, caller := range []*testUser{s.adminA, s.serviceAccount} {
			for _, h := range headers {
				requests := writeRequests(name, "kept", "Gadget", "bounded.example.com/v1")
				requests = append(requests, writeRequests(name, "kept/status", "Gadget", "bounded.example.com/v1")[4:8]...)
				requests = append(requests, request{method: http.MethodDelete, path: name}, request{method: http.MethodDelete, path: name + "?labelSelector=none"})
				for _, r := range requests {
					r.header, r.path = h, "/clusters/"+s.a+r.path
					if got := s.sendToShard(t, caller, r); got.status < 400 || got.status >= 500 {
						t.Errorf("%s with %v: %s %s: %d %.300s", caller.name, h, r.method, r.path, got.status, got.body)
					}
				}
			}
		}
	}
	if after := s.do(t, s.masters, s.a, request{path: gadgets + "/kept"}).body; after != before {
		t.Errorf("%s\nbefore: %s", after, before)
	}
}

// testUnpermittedBindings binds exports without permission, and compares the responses with those for exports that do
// not exist.
func (s *sharingEnv) testUnpermittedBindings(t *testing.T) {
	answers := map[string]string{}
	for i, reference := range []struct{ path, name string }{{"root:p", "private"}, {s.p, "private"}, {"root:p", "none"}, {s.p, "none"}, {"root:missing", "private"}, {"0123456789abcdef", "private"}, {"root:b", "none"}, {s.b, "none"}, {"system:admin", "none"}, {"system:shard", "none"}, {"system:bound-crds", "none"}, {"root", "none"}, {"root", "shards.core.kcp.io"}} {
		name := fmt.Sprint("guess-", i)
		got := s.do(t, s.adminA, s.a, request{method: http.MethodPost, path: bindingsPath, body: bindingJSON(name, reference.path, reference.name)})
		text := strings.NewReplacer(name, "NAME", reference.path+":"+reference.name, "REFERENCE").Replace(got.body)
		if got.status != http.StatusForbidden {
			t.Errorf("%v: %d %.300s", reference, got.status, got.body)
		}
		answers[text] = fmt.Sprint(reference)
		dry := s.do(t, s.adminA, s.a, request{method: http.MethodPost, path: bindingsPath + "?dryRun=All", body: bindingJSON(name, reference.path, reference.name)})
		apply := s.do(t, s.adminA, s.a, request{method: http.MethodPatch, path: bindingsPath + "/" + name + "?fieldManager=x", body: bindingJSON(name, reference.path, reference.name), contentType: applyPatchType})
		old := s.do(t, s.adminA, s.a, request{method: http.MethodPost, path: strings.Replace(bindingsPath, "v1alpha2", "v1alpha1", 1), body: strings.Replace(bindingJSON(name, reference.path, reference.name), "v1alpha2", "v1alpha1", 1)})
		for _, other := range []httpResponse{dry, apply, old} {
			if other.status != http.StatusForbidden {
				t.Errorf("%v: %d %.300s", reference, other.status, other.body)
			}
		}
	}
	if len(answers) != 1 {
		t.Errorf("refusals differ: %v", answers)
	}
	// The export of a binding is immutable.
	for _, spec := range []string{`{"reference":{"export":{"path":"root:p","name":"private"}}}`, `{"reference":{"export":{"path":"` + s.p + `","name":"private"}}}`} {
		for _, labels := range []string{"", `"metadata":{"labels":{"internal.apis.kcp.io/export":"x"}},`, `"metadata":{"labels":{"internal.apis.kcp.io/export":null}},`} {
			got := s.do(t, s.adminA, s.a, request{method: http.MethodPatch, path: bindingsPath + "/widgets", body: `{` + labels + `"spec":` + spec + `}`, contentType: mergePatchType})
			if got.status < 400 || got.status >= 500 {
				t.Errorf("%d %.300s", got.status, got.body)
			}
		}
	}
	if got := s.do(t, s.adminA, s.a, request{path: bindingsPath}); strings.Contains(got.body, `"name":"private"`) || strings.Contains(got.body, "guess-") {
		t.Errorf("%s", got.body)
	}
	if got := s.do(t, s.adminA, s.a, request{path: "/apis/private.example.com/v1/gadgets"}); got.status != http.StatusNotFound {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// testBoundDefinitions attempts to change the definitions that serve bound resources, and to create definitions with
// names that are in use.
func (s *sharingEnv) testBoundDefinitions(t *testing.T) {
	for _, caller := range []*testUser{s.adminA, s.serviceAccount, s.paula, s.unrelatedUser, s.anonymous} {
		for _, cluster := range []string{"system:bound-crds", "system:admin", "system:shard", "system:system-crds"} {
			s.expectRefused(t, caller, withPrefix("/clusters/"+cluster, []request{{path: definitionsPath}, {path: "/apis"}, {path: allWidgets}, {method: http.MethodDelete, path: definitionsPath}, {method: http.MethodPost, path: definitionsPath, body: definitionJSON("evil.example.com", "evils", "Evil", "Namespaced", "v1", "")}})...)
		}
	}
	for _, taken := range []struct{ group, plural, kind, path string }{
		{"rbac.authorization.k8s.io", "clusterrolebindings", "ClusterRoleBinding", clusterBindings + "/administrator"},
		{"core.kcp.io", "logicalclusters", "LogicalCluster", ownClusterPath},
		{"apis.kcp.io", "apibindings", "APIBinding", bindingsPath + "/widgets"},
		{"tenancy.kcp.io", "workspaces", "Workspace", workspacesPath},
		{"authorization.k8s.io", "subjectaccessreviews", "SubjectAccessReview", ownClusterPath},
		{"apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition", definitionsPath},
	} {
		t.Run(taken.plural, func(t *testing.T) {
			name := taken.plural + "." + taken.group
			read := func() string {
				object := s.do(t, s.masters, s.a, request{path: taken.path}).object(t)
				return fmt.Sprint(object["kind"], object["items"], object["spec"], object["status"], object["subjects"])
			}
			schema := s.do(t, s.paula, s.p, request{method: http.MethodPost, path: schemasPath, body: apiSchemaJSON("evil", taken.group, taken.plural, taken.kind)})
			offered := s.do(t, s.paula, s.p, request{method: http.MethodPost, path: exportsPath, body: exportJSON("evil-"+taken.plural, `"resources":[{"group":"`+taken.group+`","name":"`+taken.plural+`","schema":"evil.`+name+`","storage":{"crd":{}}}]`)})
			if schema.status != http.StatusCreated || offered.status != http.StatusCreated {
				return // a refusal is fine, too
			}
			s.allowBinding(t, "evil-"+taken.plural)
			before := read()
			shardtesting.Eventually(t, "the binding is bound or refused", func(context.Context) error {
				got := s.do(t, s.adminA, s.a, request{method: http.MethodPost, path: bindingsPath, body: bindingJSON("evil-"+taken.plural, s.p, "evil-"+taken.plural)})
				if got.status != http.StatusCreated && got.status != http.StatusConflict {
					return fmt.Errorf("%d %s", got.status, got.body)
				}
				if got = s.do(t, s.adminA, s.a, request{path: bindingsPath + "/evil-" + taken.plural}); !strings.Contains(got.body, `"phase":"Bound"`) && !strings.Contains(got.body, "Conflict") && !strings.Contains(got.body, "Invalid") {
					return fmt.Errorf("%d %s", got.status, got.body)
				}
				return nil
			})
			if after := read(); taken.path != bindingsPath && after != before {
				t.Errorf("with the binding %s\nbefore: %s", after, before)
			}
			if got := s.do(t, s.adminA, s.a, request{path: configMapsPath + "/confidential"}); got.status != http.StatusOK {
				t.Errorf("%d %s", got.status, got.body)
			}
			s.do(t, s.adminA, s.a, request{method: http.MethodDelete, path: bindingsPath + "/evil-" + taken.plural})
			s.waitForStatus(t, s.adminA, s.a, bindingsPath+"/evil-"+taken.plural, http.StatusNotFound)
			if after := read(); after != before {
				t.Errorf("after the deletion of the binding %s\nbefore: %s", after, before)
			}
		})
	}
}

// testProviderWebhooks has p register a webhook for every resource, and a policy that denies everything: they apply
// only to the resources that p exports.
func (s *sharingEnv) testProviderWebhooks(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		mu.Lock()
		seen = append(seen, string(body))
		mu.Unlock()
		http.Error(w, "no", http.StatusInternalServerError)
	}))
	t.Cleanup(server.Close)
	bundle := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	const rule = `[{"apiGroups":["*"],"apiVersions":["*"],"resources":["*/*"],"operations":["*"],"scope":"*"}]`
	hook := func(kind string) string {
		return `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"` + kind + `","metadata":{"name":"all"},"webhooks":[{"name":"all.example.com","clientConfig":{"url":"` + server.URL + `","caBundle":"` + bundle + `"},"failurePolicy":"Fail","sideEffects":"None","admissionReviewVersions":["v1"],"timeoutSeconds":2,"rules":` + rule + `}]}`
	}
	const group = "/apis/admissionregistration.k8s.io/v1/"
	for _, one := range [][2]string{
		{group + "mutatingwebhookconfigurations", hook("MutatingWebhookConfiguration")},
		{group + "validatingwebhookconfigurations", hook("ValidatingWebhookConfiguration")},
		{group + "validatingadmissionpolicies", `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"no"},"spec":{"failurePolicy":"Fail","matchConstraints":{"resourceRules":` + rule + `},"validations":[{"expression":"false"}]}}`},
		{group + "validatingadmissionpolicybindings", `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":"no"},"spec":{"policyName":"no","validationActions":["Deny"]}}`},
	} {
		if got := s.do(t, s.paula, s.p, request{method: http.MethodPost, path: one[0], body: one[1]}); got.status != http.StatusCreated {
			t.Fatalf("%s: %d %s", one[0], got.status, got.body)
		}
	}
	shardtesting.Eventually(t, "the webhooks and policies of p apply to widgets of b", func(context.Context) error {
		got := s.do(t, s.adminB, s.b, request{method: http.MethodPost, path: widgets + "?dryRun=All", body: `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"hooked"}}`})
		if got.status < 400 {
			return fmt.Errorf("%d %s", got.status, got.body)
		}
		return nil
	})
	for range 5 {
		for path, body := range map[string]string{
			secrets:        `{"apiVersion":"v1","kind":"Secret","metadata":{"generateName":"hooked-","labels":{"share":"yes"}}}`,
			configMapsPath: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"hooked-"}}`,
			clusterRoles:   `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"generateName":"hooked-"}}`,
			exportsPath:    `{"apiVersion":"apis.kcp.io/v1alpha2","kind":"APIExport","metadata":{"generateName":"hooked-"},"spec":{}}`,
		} {
			if got := s.do(t, s.adminB, s.b, request{method: http.MethodPost, path: path, body: body}); got.status != http.StatusCreated {
				t.Errorf("%s: %d %s", path, got.status, got.body)
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, review := range seen {
		if strings.Contains(review, s.b) && !strings.Contains(review, `"kind":"Widget"`) || strings.Contains(review, `"hooked-`) {
			t.Errorf("the webhook of p received %.600s", review)
		}
	}
	if !slices.ContainsFunc(seen, func(review string) bool { return strings.Contains(review, `"kind":"Widget"`) }) {
		t.Error("the webhook of p received no widget")
	}
}
