package security_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// testWorkspaceWebhooks has the shard call, for a, addresses that only the shard should reach, and checks what the
// responses reveal.
func testWorkspaceWebhooks(t *testing.T, s *env) {
	bundle := base64.StdEncoding.EncodeToString(s.ca)
	configuration := func(url string) string {
		return `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":"own"},"webhooks":[{"name":"own.example.com","sideEffects":"None","admissionReviewVersions":["v1"],"failurePolicy":"Fail","timeoutSeconds":2,
			"clientConfig":{"url":"` + url + `","caBundle":"` + bundle + `"},"rules":[{"apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps"],"operations":["CREATE"]}]}]}`
	}
	const configurations = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
	for _, url := range []string{
		s.resolveShardURL(t, s.b) + "/clusters/" + s.b + confidentialPath, s.resolveShardURL(t, s.b) + "/clusters/" + s.b + configMapsPath, s.shardURL + "/metrics", s.shardURL + "/debug/pprof/cmdline", s.shardURL + "/clusters/system:admin/api", s.proxyURL + "/clusters/root:b/api", s.resolveShardURL(t, s.b) + "/clusters/" + s.b + "/apis/authentication.k8s.io/v1/selfsubjectreviews",
		"https://169.254.169.254/latest/meta-data", "https://[fd00:ec2::254]/latest/meta-data", "https://100.100.100.200/latest/meta-data", "https://[fe80::1]/", "https://0.0.0.0/", "https://[::ffff:169.254.169.254]/",
	} {
		t.Run(url, func(t *testing.T) {
			got := s.do(t, s.adminA, s.a, request{method: http.MethodPost, path: configurations, body: configuration(url)})
			if got.status != http.StatusCreated {
				return // an immediate refusal is fine, too
			}
			defer s.do(t, s.adminA, s.a, request{method: http.MethodDelete, path: configurations + "/own"})
			for deadline := time.Now().Add(10 * time.Second); ; {
				got = s.do(t, s.adminA, s.a, request{method: http.MethodPost, path: configMapsPath + "?dryRun=All", body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"x-"}}`})
				if got.status >= 400 || time.Now().After(deadline) {
					break
				}
			}
			if got.status < 400 || strings.Contains(got.body, confidentialData) || strings.Contains(got.body, "alice") && strings.Contains(got.body, "userInfo") || strings.Contains(got.body, "go_goroutines") || strings.Contains(got.body, "system:apiserver") {
				t.Errorf("%d %.600s", got.status, got.body)
			}
			if b := s.do(t, s.adminB, s.b, request{method: http.MethodPost, path: configMapsPath + "?dryRun=All", body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"x-"}}`}); b.status != http.StatusCreated {
				t.Errorf("b: %d %.300s", b.status, b.body)
			}
		})
	}
}

// testStrategicPatches sends patches that need Go types to resources that have none in this server.
func testStrategicPatches(t *testing.T, s *env) {
	name := "ingresses.networking.k8s.io"
	s.createDefinition(t, definitionJSON("networking.k8s.io", "ingresses", "Ingress", "Namespaced", "v1", ""), name)
	const ingresses = "/apis/networking.k8s.io/v1/namespaces/default/ingresses"
	s.createObject(t, ingresses, `{"apiVersion":"networking.k8s.io/v1","kind":"Ingress","metadata":{"name":"i","finalizers":["example.com/x"],"annotations":{"a":"b"}},"spec":{"rules":[{"host":"a"}],"tls":[{"hosts":["a"]}],"strange":{"a":[1,"x",null]}}}`)
	for _, patch := range []string{
		`{}`, `null`, `[]`, `"x"`, `{"$patch":"delete"}`, `{"$patch":"replace"}`, `{"$patch":"x"}`, `{"$patch":7}`, `{"metadata":null}`, `{"metadata":7}`, `{"metadata":{"$patch":"delete"}}`, `{"metadata":{"ownerReferences":[null]}}`, `{"metadata":{"ownerReferences":[7]}}`, `{"metadata":{"ownerReferences":[{"$patch":"delete","uid":null}]}}`,
		`{"metadata":{"$setElementOrder/ownerReferences":[null,7,{"uid":{}}]}}`, `{"metadata":{"$deleteFromPrimitiveList/finalizers":7}}`, `{"metadata":{"$deleteFromPrimitiveList/finalizers":[{}]}}`, `{"metadata":{"$setElementOrder/finalizers":[[],{}]}}`, `{"metadata":{"$retainKeys":[7]}}`, `{"$retainKeys":["metadata"]}`,
		`{"spec":{"rules":[{"http":{"paths":[null]}}]}}`, `{"spec":{"rules":7}}`, `{"spec":{"rules":{"a":1}}}`, `{"spec":{"tls":[[[]]]}}`, `{"spec":{"strange":{"a":{"$patch":"merge"}}}}`, `{"spec":{"$setElementOrder/rules":["x"]}}`, `{"status":{"loadBalancer":{"ingress":[{"ports":[{"$patch":"delete"}]}]}}}`,
		`{"metadata":{"annotations":{"kcp.io/cluster":"` + s.b + `"}}}`, `{"metadata":{"name":"other","namespace":"../` + s.b + `","uid":"x"}}`, `{"apiVersion":"v1","kind":"ConfigMap"}`, `{"metadata":{"resourceVersion":"1"}}`, strings.Repeat(`{"spec":`, 9000) + `1` + strings.Repeat(`}`, 9000),
	} {
		for _, at := range []string{"/i", "/i/status", "/i?dryRun=All", "/i?fieldManager=x&force=true", "/none"} {
			got := s.sendToShard(t, s.adminA, request{method: http.MethodPatch, path: "/clusters/" + s.a + ingresses + at, body: patch, contentType: "application/strategic-merge-patch+json"})
			if got.status == 0 || strings.Contains(got.body, "panic") || strings.Contains(got.body, "goroutine ") || got.status < 300 && !strings.Contains(at, "dryRun") && !strings.Contains(got.body, fmt.Sprintf(`"kcp.io/cluster":%q`, s.a)) {
				t.Errorf("%.100s to %s: %d %.300s", patch, at, got.status, got.body)
			}
			if got.status >= 500 {
				t.Errorf("%.100s to %s: %d %.300s", patch, at, got.status, got.body)
			}
		}
	}
	s.do(t, s.adminA, s.a, request{method: http.MethodPatch, path: ingresses + "/i", body: `{"metadata":{"finalizers":null}}`, contentType: mergePatchType})
	s.do(t, s.adminA, s.a, request{method: http.MethodDelete, path: definitionsPath + "/" + name})
	s.waitForStatus(t, s.adminA, s.a, definitionsPath+"/"+name, http.StatusNotFound)
}
