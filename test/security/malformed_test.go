package security_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// testMalformedRequests sends malformed and unusual requests. None may cause a server error or reach b.
func testMalformedRequests(t *testing.T, s *env) {
	pair := s.clientCertificate(t, "alice")
	token := forgedToken(s.b)
	deep := strings.Repeat(`{"kubernetes.io":`, 9000) + strings.Repeat("}", 9000)
	at := "/clusters/" + s.a
	for name, lines := range map[string][]string{
		"forged token without a cluster":           {"GET /api/v1/namespaces HTTP/1.1", "Authorization: Bearer " + token},
		"an opaque URL":                            {"GET x:y HTTP/1.1", "Authorization: Bearer " + token},
		"an opaque URL to b":                       {"GET clusters:/" + s.b + confidentialPath + " HTTP/1.1", "Authorization: Bearer " + token},
		"an absolute URL":                          {"GET https://evil.example/clusters/" + s.b + confidentialPath + " HTTP/1.1"},
		"an absolute URL to workspace a":           {"GET https://evil.example" + at + "/api/v1/namespaces HTTP/1.1"},
		"a star":                                   {"OPTIONS * HTTP/1.1"},
		"CONNECT to a host":                        {"CONNECT evil.example:443 HTTP/1.1"},
		"CONNECT to a path":                        {"CONNECT " + at + "/../" + s.b + confidentialPath + " HTTP/1.1"},
		"TRACE":                                    {"TRACE " + at + "/api HTTP/1.1"},
		"an unknown method":                        {"FOO " + at + confidentialPath + " HTTP/1.1"},
		"method override header":                   {"GET " + at + "/api/v1/namespaces HTTP/1.1", "X-HTTP-Method-Override: DELETE"},
		"a long path":                              {"GET /clusters/" + strings.Repeat("a:", 30000) + "a/api HTTP/1.1"},
		"a deep path":                              {"GET /clusters/" + s.a + strings.Repeat(":a", 2000) + "/api HTTP/1.1"},
		"many slashes":                             {"GET " + at + strings.Repeat("/", 5000) + " HTTP/1.1"},
		"resources without a name":                 {"GET " + at + "/apis/ HTTP/1.1"},
		"an identity without a resource":           {"GET " + at + "/apis/tenancy.kcp.io/v1alpha1/:x HTTP/1.1"},
		"an identity of a subresource":             {"GET " + at + "/apis/tenancy.kcp.io/v1alpha1/workspaces:x/honest/status:x HTTP/1.1"},
		"an identity in a namespace":               {"GET " + at + "/api/v1/namespaces/configmaps:x/configmaps:x/y HTTP/1.1"},
		"impersonation without a user":             {"GET " + at + "/api HTTP/1.1", "Impersonate-Group: system:masters"},
		"impersonation of an empty user":           {"GET " + at + "/api HTTP/1.1", "Impersonate-User: ", "Impersonate-Extra-: x"},
		"malformed extra":                          {"GET " + at + "/api HTTP/1.1", "Impersonate-User: x", "Impersonate-Extra-%zz%00: x", "Impersonate-Extra-Authentication.kcp.io%2Fscopes: ,,cluster:"},
		"malformed warrant":                        {"GET " + at + "/api HTTP/1.1", "Impersonate-User: x", `Impersonate-Extra-Authorization.kcp.io%2fwarrant: {"user":"x","extra":{"authorization.kcp.io/warrant":["null","[]","{}","{"]}}`},
		"a deeply nested token":                    {"GET /api HTTP/1.1", "Authorization: Bearer e30." + strings.TrimRight(forgedPayload(deep), "=") + ".x"},
		"a null token":                             {"GET /api HTTP/1.1", "Authorization: Bearer e30." + forgedPayload("null") + ".x"},
		"a token for a system cluster":             {"GET /api/v1/secrets HTTP/1.1", "Authorization: Bearer " + forgedToken("system:admin")},
		"a token for all clusters":                 {"GET /api/v1/secrets HTTP/1.1", "Authorization: Bearer " + forgedToken("*")},
		"a token with path traversal":              {"GET /api/v1/secrets HTTP/1.1", "Authorization: Bearer " + forgedToken("../"+s.b)},
		"a token in a WebSocket protocol":          {"GET /clusters/" + s.b + confidentialPath + " HTTP/1.1", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io." + forgedPayload(s.serviceAccount.token) + ", x", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="},
		"an upgrade to h2c":                        {"GET " + at + "/api/v1/namespaces HTTP/1.1", "Connection: Upgrade", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA"},
		"an upgrade of a watch":                    {"GET " + at + "/api/v1/namespaces?watch=1&timeoutSeconds=1 HTTP/1.1", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="},
		"two Content-Length headers":               {"POST " + at + configMapsPath + " HTTP/1.1", "Content-Length: 0", "Content-Length: 44"},
		"Content-Length and chunked encoding":      {"POST " + at + configMapsPath + " HTTP/1.1", "Content-Length: 44", "Transfer-Encoding: chunked", "", "0"},
		"an unknown transfer encoding":             {"POST " + at + configMapsPath + " HTTP/1.1", "Transfer-Encoding: xchunked"},
		"a folded header":                          {"GET " + at + "/api HTTP/1.1", "X-A: b", " X-Remote-User: bob"},
		"a space before the colon":                 {"GET " + at + "/api HTTP/1.1", "X-Remote-User : bob"},
		"malformed selectors":                      {"GET " + at + "/api/v1/configmaps?labelSelector=,,,&fieldSelector=%00 HTTP/1.1"},
		"negative limit":                           {"GET " + at + "/api/v1/configmaps?limit=-1&timeoutSeconds=-99999999999999 HTTP/1.1"},
		"resourceVersion out of range":             {"GET " + at + "/api/v1/configmaps?resourceVersion=99999999999999999999 HTTP/1.1"},
		"negative resourceVersion":                 {"GET " + at + "/api/v1/configmaps?resourceVersion=-5 HTTP/1.1"},
		"malformed query":                          {"GET " + at + "/api/v1/configmaps?%zz;watch=1;a=b HTTP/1.1"},
		"discovery with a malformed Accept header": {"POST " + at + "/apis/core.kcp.io/v1alpha1 HTTP/1.1", "Accept: ,,;;q=x"},
		"discovery with an unsupported media type": {"GET " + at + "/apis/core.kcp.io/v1alpha1 HTTP/1.1", "Accept: image/png"},
	} {
		for _, base := range []string{s.shardURL, s.proxyURL} {
			t.Run(name+" at the "+s.serverName(base), func(t *testing.T) {
				to, err := url.Parse(base)
				must(t, err)
				config := &tls.Config{RootCAs: s.roots, ServerName: "localhost", GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }}
				conn, err := tls.Dial("tcp", to.Host, config)
				must(t, err)
				defer conn.Close()
				must(t, conn.SetDeadline(time.Now().Add(15*time.Second)))
				_, err = fmt.Fprintf(conn, "%s\r\nHost: localhost\r\nAccept: application/json\r\n%s\r\n\r\n", lines[0], strings.Join(lines[1:], "\r\n"))
				must(t, err)
				res, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: strings.Fields(lines[0])[0]})
				if err != nil {
					t.Fatalf("no response: %v", err)
				}
				defer res.Body.Close()
				head := make([]byte, 64<<10)
				n, _ := res.Body.Read(head)
				body := string(head[:n])
				if strings.Contains(body, confidentialData) {
					t.Errorf("the response contains data of b: %d %s", res.StatusCode, body)
				}
				if res.StatusCode >= 500 && res.StatusCode != http.StatusNotImplemented {
					t.Errorf("%d %s", res.StatusCode, body)
				}
			})
		}
	}
}

// testMalformedObjects writes objects into a that could break a controller or a resolver of the whole shard, and
// expects that requests of b succeed.
func testMalformedObjects(t *testing.T, s *env) {
	for _, path := range []string{"*", "root", "root:b", "system:admin", "user:bob", "../x", ":", strings.Repeat("a:", 2000) + "a", strings.Repeat("x", 200000)} {
		s.annotate(t, `"kcp.io/path":"`+path+`"`)
		for _, spec := range []string{`"type":{"name":"nothing"}`, `"type":{"name":"universal"}`, `"type":{"name":"private","path":"` + strings.TrimRight(path[:min(len(path), 4000)], ":") + `"}`} {
			started := time.Now()
			got := s.do(t, s.adminA, s.a, request{method: http.MethodPost, path: workspacesPath + "?dryRun=All", body: `{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"Workspace","metadata":{"generateName":"x-"},"spec":{` + spec + `}}`})
			if got.status >= 500 {
				t.Errorf("path %.40s, %.60s: %d %.300s", path, spec, got.status, got.body)
			}
			if took := time.Since(started); took > time.Second {
				t.Errorf("path %.40s, %.60s: one request took %s", path, spec, took)
			}
		}
	}
	s.annotate(t, `"kcp.io/path":"root:a"`)
	for _, kind := range []string{"", ":", "root", "root:b:private", "nothing:x", strings.Repeat("a:", 2000) + "a"} {
		s.annotate(t, `"internal.tenancy.kcp.io/type":"`+kind+`"`)
		if got := s.do(t, s.adminA, s.a, request{method: http.MethodPost, path: workspacesPath + "?dryRun=All", body: `{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"Workspace","metadata":{"generateName":"x-"},"spec":{}}`}); got.status >= 500 {
			t.Errorf("type %.40s: %d %.300s", kind, got.status, got.body)
		}
	}
	s.annotate(t, `"internal.tenancy.kcp.io/type":"root:universal"`)
	// Types that extend themselves, each other, or very many.
	var many []string
	for i := range 200 {
		many = append(many, fmt.Sprintf(`{"name":"none-%d","path":"root:a"}`, i))
	}
	for name, with := range map[string]string{"self": `{"name":"self","path":"root:a"}`, "ping": `{"name":"pong","path":"root:a"}`, "pong": `{"name":"ping","path":"root:a"}`, "foreign": `{"name":"private","path":"root:b"}`, "many": strings.Join(many, ",")} {
		got := s.do(t, s.adminA, s.a, request{method: http.MethodPost, path: typesPath, body: `{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"WorkspaceType","metadata":{"name":"` + name + `"},"spec":{"extend":{"with":[` + with + `]}}}`})
		if got.status != http.StatusCreated {
			continue // an immediate refusal is fine, too
		}
		got = s.do(t, s.adminA, s.a, request{method: http.MethodPost, path: workspacesPath, body: `{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"Workspace","metadata":{"name":"of-` + name + `"},"spec":{"type":{"name":"` + name + `","path":"root:a"}}}`})
		if got.status != http.StatusForbidden {
			t.Errorf("a workspace of type %s: %d %.300s", name, got.status, got.body)
		}
	}
	// A response does not reveal whether a workspace exists that the user cannot access.
	createError := func(path string) string {
		got := s.do(t, s.adminA, s.a, request{method: http.MethodPost, path: workspacesPath, body: `{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"Workspace","metadata":{"name":"probe"},"spec":{"type":{"name":"nothing","path":"` + path + `"}}}`})
		return fmt.Sprint(got.status, strings.ReplaceAll(got.body, path, "PATH"))
	}
	for _, path := range []string{"root:c", "root:b:c", "nosuchcluster", "system:admin", "system:nothing"} {
		if got, want := createError(path), createError("root:b"); got != want {
			t.Errorf("type of %s: %s\nbut of root:b: %s", path, got, want)
		}
	}
	// The shard still serves requests.
	if got := s.do(t, s.masters, s.b, request{method: http.MethodPost, path: workspacesPath, body: `{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"Workspace","metadata":{"name":"after"},"spec":{"type":{"name":"universal","path":"root"}}}`}); got.status != http.StatusCreated {
		t.Fatalf("%d %s", got.status, got.body)
	}
	s.waitReady(t, s.b, "after")
	s.do(t, s.masters, s.b, request{method: http.MethodDelete, path: workspacesPath + "/after"})
	s.waitForStatus(t, s.masters, s.b, workspacesPath+"/after", http.StatusNotFound)
}

func (e *env) annotate(t *testing.T, annotation string) {
	t.Helper()
	got := e.do(t, e.adminA, e.a, request{method: http.MethodPatch, path: ownClusterPath, contentType: mergePatchType, body: `{"metadata":{"annotations":{` + annotation + `}}}`})
	if got.status >= 500 {
		t.Errorf("%.60s: %d %.300s", annotation, got.status, got.body)
	}
}
