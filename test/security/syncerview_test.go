package security_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

const (
	gadgets    = "/apis/service.io/v1/namespaces/default/gadgets"
	allGadgets = "/apis/service.io/v1/gadgets"
)

func (s *sharingEnv) syncerView(export, cluster string) string {
	return "/services/syncer/" + s.p + ":" + export + "/clusters/" + cluster
}

// describe has the owner of an export describe a syncer's view.
func (s *sharingEnv) describe(t *testing.T, export, description string) httpResponse {
	t.Helper()
	body := fmt.Sprintf(`{"metadata":{"annotations":{"syncagent.kcp.io/view":%q}}}`, description)
	return s.do(t, s.paula, s.p, request{method: http.MethodPatch, path: exportsPath + "/" + export, body: body, contentType: mergePatchType})
}

// testSyncerView attempts to reach, by the syncer's view, what the virtual workspace of the export does not give, and to
// write what only the owners of objects may. The owner of the export publishes resources that are not its own.
func (s *sharingEnv) testSyncerView(t *testing.T) {
	for name, description := range map[string]string{
		"a path":      `{"resources":[{"group":"example.com","resource":"widgets/../../secrets","source":{"kind":"K","resource":"x"}}]}`,
		"an identity": `{"related":[{"group":"example.com","resource":"widgets:` + s.identity + `"}]}`,
	} {
		if got := s.describe(t, "widgets", description); got.status != http.StatusForbidden || !strings.Contains(got.body, "metadata.annotations[syncagent.kcp.io/view]") {
			t.Errorf("%s: %d %.300s", name, got.status, got.body)
		}
	}
	description := `{"resources":[{"group":"example.com","resource":"widgets","source":{"group":"service.io","kind":"Gadget","resource":"gadgets"},"filter":{"resource":{"matchExpressions":[{"key":"of","operator":"NotIn","values":["` + confidentialData + `"]}]}}},
		{"resource":"configmaps","source":{"group":"service.io","kind":"Map","resource":"maps"}},{"group":"private.example.com","resource":"gadgets","source":{"group":"service.io","kind":"P","resource":"privates"}},
		{"group":"apis.kcp.io","resource":"apibindings","source":{"group":"service.io","kind":"B","resource":"bindings"}}],
		"related":[{"group":"rbac.authorization.k8s.io","resource":"clusterroles"},{"group":"core.kcp.io","resource":"logicalclusters"}]}`
	if got := s.describe(t, "widgets", description); got.status != http.StatusOK {
		t.Fatalf("%d %s", got.status, got.body)
	}
	shardtesting.Eventually(t, "the view is served", func(context.Context) error {
		for _, cluster := range []string{s.a, s.b} {
			if got := s.sendToShard(t, s.paula, request{path: s.syncerView("widgets", cluster) + allGadgets}); got.status != http.StatusOK {
				return fmt.Errorf("%d %s", got.status, got.body)
			}
		}
		return nil
	})
	s.testSyncerViewRefusals(t)
	// The filter hides the object of b.
	in := s.syncerView("widgets", s.b)
	s.expectRefused(t, s.paula, withPrefix(in, writeRequests(gadgets, "confidential", "Gadget", "service.io/v1"))...)
	s.expectRefused(t, s.paula, request{path: in + gadgets + "/confidential"}, request{path: in + gadgets + "/confidential/status"})
	for _, query := range []string{"", "?resourceVersion=0", "?limit=1", "?labelSelector=of", "?labelSelector=of%3D" + confidentialData, "?fieldSelector=metadata.name%3Dconfidential", "?watch=1&timeoutSeconds=1&resourceVersion=0", "?watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"} {
		for _, cluster := range []string{"*", s.b} {
			for _, accept := range []string{"application/json", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", "application/json;as=Table;g=meta.k8s.io;v=v1", "application/yaml", "application/cbor"} {
				got := s.sendToShard(t, s.paula, request{path: s.syncerView("widgets", cluster) + allGadgets + query, header: http.Header{"Accept": {accept}}})
				if got.status >= 500 || strings.Contains(got.body, confidentialData) || strings.Contains(got.body, `"kcp.io/cluster":"`+s.b) {
					t.Errorf("%s%s as %s: %d %.400s", cluster, query, accept, got.status, got.body)
				}
			}
		}
	}
	// The view shows the object of a, and refuses to change it.
	before := s.do(t, s.masters, s.a, request{path: widgets + "/confidential"}).body
	s.expectRefused(t, s.paula, withPrefix(s.syncerView("widgets", s.a), writeRequests(gadgets, "confidential", "Gadget", "service.io/v1"))...)
	if after := s.do(t, s.masters, s.a, request{path: widgets + "/confidential"}).body; after != before {
		t.Errorf("the object of a was %s and is %s", before, after)
	}
}

// testSyncerViewRefusals requests paths that the view must not serve to any user, and the view as users other than the owner.
func (s *sharingEnv) testSyncerViewRefusals(t *testing.T) {
	for _, cluster := range []string{s.b, s.c, s.p, "root", "system:admin", "system:shard"} {
		in := s.syncerView("widgets", cluster)
		for _, path := range []string{
			widgets + "/confidential", allWidgets, "/apis/service.io/v1/maps", "/apis/service.io/v1/namespaces/default/maps/confidential", "/apis/service.io/v1/privates", "/apis/service.io/v1/bindings", "/api/v1/configmaps", confidentialPath,
			bindingsPath, clusterRoles, ownClusterPath, gadgets + ":" + s.identity, "/apis/service.io/v1/watch/gadgets", gadgets + "/..%2f..%2fconfigmaps%2fconfidential", gadgets + "/confidential/../../secrets", "/apis/service.io/v2/gadgets",
			"/clusters/" + s.b + confidentialPath, "/metrics",
		} {
			s.expectRefused(t, s.paula, request{path: in + path})
		}
	}
	for _, cluster := range []string{s.c, s.p, "root", "0123456789abcdef"} {
		in := s.syncerView("widgets", cluster)
		s.expectRefused(t, s.paula, request{path: in + allGadgets}, request{path: in + gadgets + "/confidential"}, request{path: in + "/api/v1/secrets"})
	}
	for _, caller := range []*testUser{s.adminA, s.serviceAccount, s.adminB, s.carol, s.unrelatedUser, s.anonymous} {
		for _, cluster := range []string{"*", s.a, s.b, s.p} {
			in := s.syncerView("widgets", cluster)
			s.expectRefused(t, caller, request{path: in + allGadgets}, request{path: in + "/apis"}, request{path: in + "/openapi/v3"}, request{path: in + "/api/v1/secrets"}, request{path: in + allGadgets + "?watch=1&timeoutSeconds=1"})
		}
	}
	for _, id := range []string{s.b + ":widgets", "root:tenancy.kcp.io", s.p, s.p + ":", s.p + "%2fwidgets", "root:p:widgets", s.p + ":widgets%2fclusters%2f" + s.b, "*:widgets"} {
		s.expectRefused(t, s.paula, request{path: "/services/syncer/" + id + "/clusters/*" + allGadgets}, request{path: "/services/syncer/" + id + "/clusters/" + s.b + "/api/v1/secrets"})
	}
	for _, h := range []http.Header{{"Impersonate-User": {"bob"}}, {"Impersonate-User": {"x"}, "Impersonate-Group": {"system:masters"}}} {
		s.expectRefused(t, s.paula, request{path: s.syncerView("widgets", s.b) + allGadgets, header: h})
	}
}
