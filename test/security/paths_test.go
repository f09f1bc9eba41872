package security_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
)

// testPathTraversal attempts to reach b, the whole shard or a system cluster by the form of the URL, with reads and
// deletes.
func testPathTraversal(t *testing.T, s *env) {
	prefixes := []string{
		"/clusters/{a}", "/clusters/{b}", "/clusters/root:b", "/clusters/root%3ab", "/clusters/root%3Ab", "/clusters/*", "/clusters/%2a", "/clusters/*:b",
		"/clusters/{a}/../{b}", "/clusters/{a}/%2e%2e/{b}", "/clusters/{a}/%252e%252e/{b}", "/clusters/{a}%2f..%2f{b}", "/clusters/{a}/..%2f{b}", `/clusters/{a}\..\{b}`,
		"/clusters/{a}/clusters/{b}", "/clusters/{a}//clusters/{b}", "/clusters/{a}/%2fclusters/{b}", "/clusters/{a}%2fclusters%2f{b}", "/clusters/{a}/../../clusters/{b}",
		"/clusters/{a}:{b}", "/clusters/{a}:..:{b}", "/clusters/{a},{b}", "/clusters/{a};{b}", "/clusters/{a}%00{b}", "/clusters/{a}%20/{b}", "/clusters/{a}%0a{b}",
		"/clusters/{b}:", "/clusters/:{b}", "/clusters/{b}%2f", "/clusters/{b}%00", "/clusters/{b}.", "/clusters/{B}", "/clusters//{b}", "/clusters", "/clusters/",
		"/Clusters/{b}", "//clusters/{b}", "/./clusters/{b}", "/x/../clusters/{b}", "/%63lusters/{b}", "/%2fclusters/{b}", "/services/../clusters/{b}", "/services/x/clusters/{b}",
		"/api/v1/clusters/{b}", "/clusters/{a}/api/v1/../../../{b}", "/clusters/{a}?/clusters/{b}", "/clusters/{a}#/clusters/{b}",
		"/clusters/system:admin", "/clusters/system%3aadmin", "/clusters/system:shard", "/clusters/root:system:admin", "/clusters/system", "/clusters/user:bob", "",
	}
	suffixes := []string{
		confidentialPath, "/api/v1/configmaps", "/api/v1/secrets", "/api/v1/watch/configmaps?timeoutSeconds=1",
		// Within the permissions in a: namespaces and names that traverse out of the storage key.
		"/api/v1/namespaces/..%2f..%2f{b}%2fdefault/configmaps/confidential", "/api/v1/namespaces/../configmaps", "/api/v1/namespaces/%2e%2e/configmaps?resourceVersion=0",
		configMapsPath + "/..%2f..%2f..%2f{b}%2fdefault%2fconfidential", configMapsPath + "/%2e%2e", "/api/v1/namespaces/default%2f..%2f..%2f{b}/configmaps",
		"/api/v1/namespaces//configmaps/confidential", "/api/v1/namespaces/{b}/configmaps/confidential", "/api/v1/configmaps?fieldSelector=kcp.io/cluster={b}",
	}
	names := strings.NewReplacer("{a}", s.a, "{b}", s.b, "{B}", strings.ToUpper(s.b))
	forged := forgedToken(s.b)
	wrong := s.proxyCertificate(t, "not-the-proxy")
	wrongProxy := s.newUser(t, "wrong proxy certificate", &wrong)
	remote := http.Header{"X-Remote-User": {"bob"}, "X-Remote-Group": {"system:masters", "system:kcp:admin", "system:authenticated"}}
	callers := []struct {
		*testUser
		header http.Header
	}{
		{s.anonymous, nil}, {s.unrelatedUser, nil}, {s.adminA, nil}, {s.serviceAccount, nil},
		{s.anonymous, http.Header{"Authorization": {"Bearer " + forged}}},
		{s.adminA, http.Header{"Authorization": {"Bearer " + forged}}},
		{s.adminA, remote}, {wrongProxy, remote},
	}
	if s.placement.a != s.placement.b {
		callers = callers[2:5] // alice and the service account: the other users have sent these paths on one shard
	}
	for _, caller := range callers {
		for _, base := range s.workspaceServerURLs() {
			t.Run(fmt.Sprintf("%s with %d headers at the %s", caller.name, len(caller.header), s.serverName(base)), func(t *testing.T) {
				var attacks errgroup.Group // each watch takes a second
				attacks.SetLimit(16)
				for _, prefix := range prefixes {
					attacks.Go(func() error {
						for _, suffix := range suffixes {
							for _, method := range []string{http.MethodGet, http.MethodDelete} {
								path := names.Replace(prefix + suffix)
								got := s.send(t, caller.testUser, base, request{method: method, path: path, header: caller.header})
								if strings.Contains(got.body, confidentialData) {
									t.Errorf("%s %s: %d %s", method, path, got.status, got.body)
								}
								if got.status >= 500 && got.status != http.StatusNotImplemented && !strings.Contains(got.body, "invalid key") {
									t.Errorf("%s %s causes a server error: %d %s", method, path, got.status, got.body)
								}
							}
						}
						return nil
					})
				}
				must(t, attacks.Wait())
			})
		}
	}
}

func forgedPayload(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

// forgedToken returns a service account token of a logical cluster with an invalid signature.
func forgedToken(cluster string) string {
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"none"}`)) + "." + encode([]byte(`{"iss":"https://kcp.default.svc","sub":"system:serviceaccount:default:builder","kubernetes.io":{"clusterName":"`+cluster+`","namespace":"default","serviceaccount":{"name":"builder"}}}`)) + "."
}
