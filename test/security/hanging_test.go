package security_test

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// startHangingWebhook starts a webhook that accepts every call and does not answer until the test ends.
func startHangingWebhook(t *testing.T) (url, bundle string) {
	t.Helper()
	released := make(chan struct{})
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		select {
		case <-released:
		case <-req.Context().Done():
		}
	}))
	t.Cleanup(func() {
		close(released)
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL, base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
}

// testHangingWebhooks runs attacks side by side that take as long as the shard waits for a webhook.
func testHangingWebhooks(t *testing.T, s *env) {
	for _, attack := range []attack{
		{"conversions delay only their workspace", testHangingConversions},
		{"deletion of other namespaces is not blocked", testHangingNamespaces},
		{"deletion of other workspaces is not blocked", testHangingWorkspaces},
	} {
		t.Run(attack.name, func(t *testing.T) {
			t.Parallel()
			attack.run(t, s)
		})
	}
}

// testHangingConversions creates objects in workspace a whose conversion webhook never answers, and deletes more
// definitions at once than the shard has workers. The shard must still delete definitions of b in time.
func testHangingConversions(t *testing.T, s *env) {
	url, bundle := startHangingWebhook(t)
	const definitions, objects = 12, 20
	for i := range definitions {
		group := fmt.Sprintf("hang-%d.example.com", i)
		s.createDefinition(t, definitionJSON(group, "hangs", "Hang", "Namespaced", "v1", ""), "hangs."+group)
		for j := range objects {
			s.createObject(t, "/apis/"+group+"/v1/namespaces/default/hangs", fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Hang","metadata":{"name":"h-%d"}}`, group, j))
		}
		s.setConversionWebhook(t, s.adminA, s.a, "hangs."+group, url, bundle)
	}
	for i := range definitions {
		s.do(t, s.adminA, s.a, request{method: http.MethodDelete, path: fmt.Sprintf("%s/hangs.hang-%d.example.com", definitionsPath, i)})
	}
	time.Sleep(time.Second) // lets the controller start on all of them
	began := time.Now()
	body := definitionJSON("quick.example.com", "quicks", "Quick", "Namespaced", "v1", "")
	if got := s.do(t, s.masters, s.b, request{method: http.MethodPost, path: definitionsPath, body: body}); got.status != http.StatusCreated {
		t.Fatalf("%d %s", got.status, got.body)
	}
	s.waitForStatus(t, s.masters, s.b, "/apis/quick.example.com/v1/quicks", http.StatusOK)
	s.do(t, s.masters, s.b, request{method: http.MethodPost, path: "/apis/quick.example.com/v1/namespaces/default/quicks", body: `{"apiVersion":"quick.example.com/v1","kind":"Quick","metadata":{"name":"q"}}`})
	s.do(t, s.masters, s.b, request{method: http.MethodDelete, path: definitionsPath + "/quicks.quick.example.com"})
	s.waitForStatus(t, s.masters, s.b, definitionsPath+"/quicks.quick.example.com", http.StatusNotFound)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("a definition of b took %s to be created and deleted", took)
	}
	// Without the webhook the shard deletes the remaining definitions.
	for i := range definitions {
		name := fmt.Sprintf("hangs.hang-%d.example.com", i)
		s.removeConversionWebhook(t, s.adminA, s.a, name)
	}
	for i := range definitions {
		s.waitForStatus(t, s.adminA, s.a, fmt.Sprintf("%s/hangs.hang-%d.example.com", definitionsPath, i), http.StatusNotFound)
	}
}

// testTenantServers checks that requests which wait for a webhook of a have seats of their own, and others do not.
func testTenantServers(t *testing.T, s *env) {
	url, bundle := startHangingWebhook(t)
	const configurations = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
	s.createObject(t, configurations, `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":"hang"},"webhooks":[{"name":"hang.example.com","sideEffects":"None",
		"admissionReviewVersions":["v1"],"timeoutSeconds":1,"clientConfig":{"url":"`+url+`","caBundle":"`+bundle+`"},"rules":[{"apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps"],"operations":["CREATE"]}]}]}`)
	defer s.do(t, s.adminA, s.a, request{method: http.MethodDelete, path: configurations + "/hang"})
	definition := "levels.level.example.com"
	s.createDefinition(t, definitionJSON("level.example.com", "levels", "Level", "Namespaced", "v1", ""), definition)
	s.setConversionWebhook(t, s.adminA, s.a, definition, url, bundle)
	defer s.do(t, s.adminA, s.a, request{method: http.MethodDelete, path: definitionsPath + "/" + definition})
	create := request{method: http.MethodPost, path: configMapsPath, body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"x-"}}`}
	for _, tc := range []struct {
		sentence string
		caller   *testUser
		cluster  string
		request  request
		want     string
	}{
		{"a write that calls a webhook", s.adminA, s.a, create, "tenant-servers"},
		{"a read that may convert objects", s.adminA, s.a, request{path: "/apis/level.example.com/v1/namespaces/default/levels/none"}, "tenant-servers"},
		{"a read in the same workspace", s.adminA, s.a, request{path: confidentialPath}, "logical-clusters"},
		{"a write in another workspace", s.adminB, s.b, request{method: http.MethodPost, path: create.path + "?dryRun=All", body: create.body}, "logical-clusters"},
	} {
		shardtesting.Eventually(t, tc.sentence+" is of the priority level "+tc.want, func(context.Context) error {
			got := s.do(t, tc.caller, tc.cluster, tc.request)
			if level := got.header.Get(flowcontrolv1.ResponseHeaderMatchedPriorityLevelConfigurationUID); level != tc.want {
				return fmt.Errorf("level %q: %d %s", level, got.status, got.body)
			}
			return nil
		})
	}
}

// setConversionWebhook makes v2 the stored version of a definition that has only v1, so that all its objects have to be
// converted.
func (e *env) setConversionWebhook(t *testing.T, caller *testUser, cluster, definition, url, bundle string) {
	t.Helper()
	const schema = `"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}`
	patch := `{"spec":{"versions":[{"name":"v2","served":true,"storage":true,` + schema + `},{"name":"v1","served":true,"storage":false,` + schema + `}],
		"conversion":{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],"clientConfig":{"url":"` + url + `","caBundle":"` + bundle + `"}}}}}`
	if got := e.do(t, caller, cluster, request{method: http.MethodPatch, path: definitionsPath + "/" + definition, body: patch, contentType: mergePatchType}); got.status != http.StatusOK {
		t.Fatalf("%d %s", got.status, got.body)
	}
}

// removeConversionWebhook removes the conversion webhook, so that the shard can delete the objects.
func (e *env) removeConversionWebhook(t *testing.T, caller *testUser, cluster, definition string) {
	t.Helper()
	got := e.do(t, caller, cluster, request{method: http.MethodPatch, path: definitionsPath + "/" + definition, body: `{"spec":{"conversion":{"strategy":"None","webhook":null}}}`, contentType: mergePatchType})
	if got.status != http.StatusOK && got.status != http.StatusNotFound && got.status != http.StatusForbidden && !strings.Contains(got.body, "conflict") {
		t.Errorf("%d %.300s", got.status, got.body)
	}
}

// expectDuration fails the test if an operation in workspace b takes longer than limit while webhooks of a hang.
func expectDuration(t *testing.T, limit time.Duration, what string, do func()) {
	t.Helper()
	began := time.Now()
	do()
	if took := time.Since(began); took > limit {
		t.Errorf("%s took %s", what, took)
	}
}

// testHangingNamespaces deletes more namespaces of workspace a at once than the shard has workers, each with an object
// whose conversion webhook never answers. The shard must still delete a namespace of b in time.
func testHangingNamespaces(t *testing.T, s *env) {
	url, bundle := startHangingWebhook(t)
	const namespaces = 12
	group, path := "hang-ns.example.com", "/api/v1/namespaces"
	s.createDefinition(t, definitionJSON(group, "hangs", "Hang", "Namespaced", "v1", ""), "hangs."+group)
	for i := range namespaces {
		s.createObject(t, path, fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"hang-%d"}}`, i))
		s.createObject(t, fmt.Sprintf("/apis/%s/v1/namespaces/hang-%d/hangs", group, i), fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Hang","metadata":{"name":"h"}}`, group))
	}
	s.setConversionWebhook(t, s.adminA, s.a, "hangs."+group, url, bundle)
	for i := range namespaces {
		s.do(t, s.adminA, s.a, request{method: http.MethodDelete, path: fmt.Sprintf("%s/hang-%d", path, i)})
	}
	time.Sleep(time.Second) // lets the controller start on all of them
	expectDuration(t, 10*time.Second, "the deletion of a namespace of b", func() {
		if got := s.do(t, s.masters, s.b, request{method: http.MethodPost, path: path, body: `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"quick"}}`}); got.status != http.StatusCreated {
			t.Fatalf("%d %s", got.status, got.body)
		}
		s.do(t, s.masters, s.b, request{method: http.MethodDelete, path: path + "/quick"})
		s.waitForStatus(t, s.masters, s.b, path+"/quick", http.StatusNotFound)
	})
	s.removeConversionWebhook(t, s.adminA, s.a, "hangs."+group)
	for i := range namespaces {
		s.waitForStatus(t, s.adminA, s.a, fmt.Sprintf("%s/hang-%d", path, i), http.StatusNotFound)
	}
}

// testHangingWorkspaces deletes more workspaces at once than the shard has workers, each with objects whose conversion
// webhook never answers. The shard must still delete another workspace in time.
func testHangingWorkspaces(t *testing.T, s *env) {
	url, bundle := startHangingWebhook(t)
	const workspaces = 10
	var clusters []string
	definitions := map[string]string{"Namespaced": "hang-in.example.com", "Cluster": "hang-on.example.com"}
	for i := range workspaces {
		cluster := s.NewWorkspace(t, "root", fmt.Sprintf("hang-%d", i), s.placement.a).Spec.Cluster
		clusters = append(clusters, cluster)
		for scope, group := range definitions {
			if got := s.do(t, s.masters, cluster, request{method: http.MethodPost, path: definitionsPath, body: definitionJSON(group, "hangs", "Hang", scope, "v1", "")}); got.status != http.StatusCreated {
				t.Fatalf("%d %s", got.status, got.body)
			}
			objects := fmt.Sprintf("/apis/%s/v1/%shangs", group, map[string]string{"Namespaced": "namespaces/default/"}[scope])
			s.waitForStatus(t, s.masters, cluster, objects, http.StatusOK)
			if got := s.do(t, s.masters, cluster, request{method: http.MethodPost, path: objects, body: fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Hang","metadata":{"name":"h"}}`, group)}); got.status != http.StatusCreated {
				t.Fatalf("%d %s", got.status, got.body)
			}
			s.setConversionWebhook(t, s.masters, cluster, "hangs."+group, url, bundle)
		}
	}
	s.NewWorkspace(t, "root", "quick", s.placement.a)
	for i := range workspaces {
		s.do(t, s.masters, "root", request{method: http.MethodDelete, path: fmt.Sprintf("%s/hang-%d", workspacesPath, i)})
	}
	time.Sleep(time.Second) // lets the controllers start on all of them
	expectDuration(t, 15*time.Second, "the deletion of another workspace", func() {
		s.do(t, s.masters, "root", request{method: http.MethodDelete, path: workspacesPath + "/quick"})
		s.waitForStatus(t, s.masters, "root", workspacesPath+"/quick", http.StatusNotFound)
	})
	for _, cluster := range clusters {
		for _, group := range definitions {
			s.removeConversionWebhook(t, s.masters, cluster, "hangs."+group)
		}
	}
	for i := range workspaces {
		s.waitForStatus(t, s.masters, "root", fmt.Sprintf("%s/hang-%d", workspacesPath, i), http.StatusNotFound)
	}
}
