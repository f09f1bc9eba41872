package security_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

const auditPath = "/audit"

// auditEvents returns the events of a logical cluster that a user may read.
func (e *env) auditEvents(t *testing.T, caller *testUser, cluster string) (auditv1.EventList, string) {
	t.Helper()
	var list auditv1.EventList
	got := e.do(t, caller, cluster, request{path: auditPath})
	if err := json.Unmarshal([]byte(got.body), &list); got.status != http.StatusOK || err != nil {
		t.Fatalf("%s reads the events of %s: %d %.300s, %v", caller.name, cluster, got.status, got.body, err)
	}
	return list, got.body
}

// testAuditLog has bob read the events of a workspace of his, with changes of his own, of a provider, and refused ones of others; and has others try to
// read them. alice has a workspace on the same shard.
func (s *sharingEnv) testAuditLog(t *testing.T) {
	own, other := s.createTenantWorkspace(t, "audited", "bob", s.placement.a), s.createTenantWorkspace(t, "auditing", "alice", s.placement.a)
	s.Bind(t, own, s.p, "widgets")
	widget := `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"provided","namespace":"default"}}`
	shardtesting.Eventually(t, "the provider creates a widget", func(context.Context) error {
		if got := s.sendToShard(t, s.paula, request{method: http.MethodPost, path: s.virtualWorkspace("widgets", own) + widgets, body: widget}); got.status != http.StatusCreated && got.status != http.StatusConflict {
			return fmt.Errorf("%d %s", got.status, got.body)
		}
		return nil
	})
	configMap := func(caller *testUser, cluster, name string, want int) {
		t.Helper()
		body := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"},"data":{"content":"content-of-the-body"}}`
		if got := s.do(t, caller, cluster, request{method: http.MethodPost, path: configMapsPath, body: body}); got.status != want {
			t.Fatalf("%s creates %s in %s: %d %s", caller.name, name, cluster, got.status, got.body)
		}
	}
	s.waitForStatus(t, s.adminB, own, configMapsPath, http.StatusOK)
	s.waitForStatus(t, s.adminA, other, configMapsPath, http.StatusOK)
	configMap(s.adminB, own, "mark-of-own", http.StatusCreated)
	configMap(s.adminA, other, "mark-of-other", http.StatusCreated)
	configMap(s.unrelatedUser, own, "intruder", http.StatusForbidden)
	configMap(s.serviceAccount, own, "robot", http.StatusForbidden)
	// What is refused at the view of the export, or is for all logical clusters, is in no log.
	for _, cluster := range []string{other, "*"} {
		s.sendToShard(t, s.paula, request{method: http.MethodPost, path: s.virtualWorkspace("widgets", cluster) + widgets, body: widget})
	}

	const hidden = "system:kcp:user-of-another-workspace"
	provider := "system:kcp:view:apiexport/" + s.p + "/widgets"
	shardtesting.Eventually(t, "the events", func(context.Context) error {
		list, body := s.auditEvents(t, s.adminB, own)
		found := map[string]int32{}
		for _, event := range list.Items {
			if ref := event.ObjectRef; ref != nil {
				found[event.User.Username+" "+event.Verb+" "+ref.Resource+" "+ref.Name] = event.ResponseStatus.Code
			}
		}
		for what, code := range map[string]int32{
			"bob create configmaps mark-of-own": 201, provider + " create widgets provided": 201, "mallory create configmaps ": 403, hidden + " create configmaps ": 403,
		} {
			if found[what] != code {
				return fmt.Errorf("%q has code %d, want %d, in %s", what, found[what], code, body)
			}
		}
		return nil
	})
	shardtesting.Eventually(t, "the events of alice", func(context.Context) error {
		if _, body := s.auditEvents(t, s.adminA, other); !strings.Contains(body, "mark-of-other") {
			return fmt.Errorf("got %s", body)
		}
		return nil
	})
	_, ownLog := s.auditEvents(t, s.adminB, own)
	_, otherLog := s.auditEvents(t, s.adminA, other)
	for _, foreign := range []string{s.a, s.b, other, "mark-of-other", "paula", "alice", "serviceaccount:default:builder", "content-of-the-body", `"groups"`, `"extra"`, "root:a", "system:cluster:"} {
		if strings.Contains(ownLog, foreign) {
			t.Errorf("%q is in the log: %s", foreign, ownLog)
		}
	}
	for _, foreign := range []string{own, s.p, "mark-of-own", "paula", "bob", "widgets"} {
		if strings.Contains(otherLog, foreign) {
			t.Errorf("%q is in the log of alice: %s", foreign, otherLog)
		}
	}
	s.expectNoForeignAudit(t, own, other)
}

// expectNoForeignAudit has users read the events of a logical cluster in which they have no permissions.
func (s *sharingEnv) expectNoForeignAudit(t *testing.T, own, other string) {
	in := "/clusters/" + own
	paths := []string{
		in + auditPath, "/clusters/root:audited" + auditPath, in + auditPath + "/", in + "//audit", in + "/./audit", in + "/%61udit", in + auditPath + "?limit=1", "/clusters/*" + auditPath, "/clusters/%2a" + auditPath, auditPath,
		"/clusters/" + other + "/../" + own + auditPath, "/clusters/" + other + "/clusters/" + own + auditPath, "/clusters/" + other + auditPath + "?cluster=" + own, "/clusters/" + other + auditPath + "/" + own, "/clusters/root" + auditPath, "/clusters/system:admin" + auditPath,
		s.virtualWorkspace("widgets", own) + auditPath, s.virtualWorkspace("widgets", "*") + auditPath, s.virtualWorkspace("widgets", own) + in + auditPath, "/services/syncer/" + s.p + "/widgets/clusters/" + own + auditPath,
		"/services/initializingworkspaces/root:universal/clusters/" + own + auditPath, "/services/admin" + in + auditPath, "/services/cache/shards/*" + in + auditPath,
	}
	headers := []http.Header{
		nil, {"X-Remote-User": {"bob"}, "X-Remote-Group": {"system:masters"}}, {"Impersonate-User": {"bob"}}, {"Impersonate-User": {"bob"}, "Impersonate-Group": {"system:masters"}},
		{"X-Kubernetes-Cluster": {own}, "X-Kcp-Cluster": {own}, "X-Original-Url": {in + auditPath}, "X-Forwarded-Uri": {in + auditPath}, "X-Http-Method-Override": {"GET"}},
	}
	for _, base := range s.serverURLs() {
		for _, caller := range []*testUser{s.adminA, s.serviceAccount, s.paula, s.unrelatedUser, s.anonymous} {
			for i, path := range paths {
				for _, header := range []http.Header{nil, headers[i%len(headers)], headers[(i+2)%len(headers)]} {
					got := s.send(t, caller, base, request{path: path, header: header})
					isOwn := caller == s.adminA && strings.HasPrefix(path, "/clusters/"+other+auditPath) || caller == s.serviceAccount && path == auditPath // which means a
					if strings.Contains(got.body, "mark-of-own") || strings.Contains(got.body, "EventList") && !isOwn || got.status >= 500 && got.status != http.StatusNotImplemented {
						t.Errorf("%s gets %s of the %s with %v: %d %.300s", caller.name, path, s.serverName(base), header, got.status, got.body)
					}
				}
			}
		}
	}
}
