package apiexport_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

func newClaim(group, resource string) apisv1alpha2.PermissionClaim {
	return apisv1alpha2.PermissionClaim{GroupResource: apisv1alpha2.GroupResource{Group: group, Resource: resource}, Verbs: []string{"*"}}
}

func TestClaimable(t *testing.T) {
	claims := []apisv1alpha2.PermissionClaim{
		newClaim("", "namespaces"), newClaim("", "events"), newClaim("authorization.k8s.io", "subjectaccessreviews"), newClaim("apis.kcp.io", "apibindings"),
		newClaim("core.kcp.io", "logicalclusters"), newClaim("rbac.authorization.k8s.io", "clusterroles"), newClaim("coordination.k8s.io", "leases"),
	}
	s := newEnv(t, claims...)
	s.createExport(s.provider, "gadgets")
	var answers []apisv1alpha2.AcceptablePermissionClaim
	for _, claim := range claims {
		answers = append(answers, acceptClaim(claim))
	}
	cluster := s.newConsumer("generous", answers...)
	s.bind(cluster, s.provider, "gadgets")

	s.eventuallyStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath(cluster, "/api/v1/namespaces/default"), "")
	s.expectStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath(cluster, "/api/v1/namespaces/default/status"), "")
	s.expectStatus(http.StatusNotFound, "provider", http.MethodPut, s.virtualPath(cluster, "/api/v1/namespaces/default/finalize"), "{}")
	s.expectStatus(http.StatusMethodNotAllowed, "provider", http.MethodDelete, s.virtualPath(cluster, "/api/v1/namespaces"), "")
	if found := s.parseList(s.expectStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath("*", "/api/v1/namespaces"), "")); !found[cluster+"/default"] {
		t.Errorf("listed objects are %v", found)
	}

	s.expectStatus(http.StatusCreated, "provider", http.MethodPost, s.virtualPath(cluster, "/apis/events.k8s.io/v1/namespaces/default/events"),
		`{"apiVersion":"events.k8s.io/v1","kind":"Event","metadata":{"name":"created"},"eventTime":"2026-01-01T00:00:00.000000Z","action":"a","reason":"r","reportingController":"c","reportingInstance":"i","type":"Normal","regarding":{"namespace":"default"}}`)
	s.expectStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath(cluster, "/api/v1/namespaces/default/events/created"), "")

	review := s.expectStatus(http.StatusCreated, "provider", http.MethodPost, s.virtualPath(cluster, "/apis/authorization.k8s.io/v1/subjectaccessreviews"),
		`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"unknown","resourceAttributes":{"verb":"get","resource":"secrets"}}}`)
	if !strings.Contains(review, `"allowed":false`) {
		t.Errorf("the review is %s", review)
	}
	s.expectStatus(http.StatusMethodNotAllowed, "provider", http.MethodGet, s.virtualPath(cluster, "/apis/authorization.k8s.io/v1/subjectaccessreviews"), "")

	const bindings = "/apis/apis.kcp.io/v1alpha2/apibindings"
	if found := s.parseList(s.eventuallyStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath(cluster, bindings), "")); !found[cluster+"/widgets"] || !found[cluster+"/gadgets"] {
		t.Errorf("bindings are %v", found)
	}
	// Admission authorizes the provider, who cannot grant permissions that it does not have.
	s.expectStatus(http.StatusForbidden, "provider", http.MethodPost, s.virtualPath(cluster, bindings),
		`{"apiVersion":"apis.kcp.io/v1alpha2","kind":"APIBinding","metadata":{"name":"more"},"spec":{"reference":{"export":{"path":"root","name":"shards.core.kcp.io"}}}}`)
	s.expectStatus(http.StatusForbidden, "provider", http.MethodGet, s.virtualPath(cluster, bindings+"/widgets/status"), "") // only the server writes it

	s.expectStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath(cluster, "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster"), "")
	s.expectStatus(http.StatusCreated, "provider", http.MethodPost, s.virtualPath(cluster, "/apis/rbac.authorization.k8s.io/v1/clusterroles"), `{"metadata":{"name":"made"},"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["secrets"]}]}`)
	s.expectStatus(http.StatusCreated, "provider", http.MethodPost, s.virtualPath(cluster, "/apis/coordination.k8s.io/v1/namespaces/default/leases"), `{"metadata":{"name":"made"}}`)
	s.expectStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath(cluster, "/apis/coordination.k8s.io/v1/namespaces/default/leases/made"), "")
}

func TestRootExports(t *testing.T) {
	shard := shardtesting.Start(t)
	s := &env{T: t, shard: shard, masters: shard.Client(t, shard.Masters(t)), provider: "root", export: "tenancy.kcp.io"}
	s.users = map[string]*rest.Config{"masters": shard.Masters(t), "admin": shard.Admin(t), "user": shard.User(t)}
	parent := shard.NewWorkspace(t, "root", "parent").Spec.Cluster
	child := shard.NewWorkspace(t, parent, "child")
	const workspaces = "/apis/tenancy.kcp.io/v1alpha1/workspaces"
	for _, userName := range []string{"admin", "masters"} {
		found := s.parseList(s.expectStatus(http.StatusOK, userName, http.MethodGet, s.virtualPath("*", workspaces), ""))
		if !found["root/parent"] || !found[parent+"/child"] {
			t.Errorf("%s lists %v", userName, found)
		}
		if found := s.parseList(s.expectStatus(http.StatusOK, userName, http.MethodGet, s.virtualPath(parent, workspaces), "")); len(found) != 1 || !found[parent+"/child"] {
			t.Errorf("%s lists %v in one cluster", userName, found)
		}
	}
	s.expectStatus(http.StatusForbidden, "user", http.MethodGet, s.virtualPath("*", workspaces), "")
	s.expectStatus(http.StatusOK, "admin", http.MethodPatch, s.virtualPath(parent, workspaces+"/child"), `{"metadata":{"labels":{"seen":"yes"}}}`)
	s.expectStatus(http.StatusOK, "admin", http.MethodGet, s.virtualPath(parent, workspaces+"/child"), "", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	s.expectStatus(http.StatusNotFound, "masters", http.MethodGet, s.virtualPath(parent, "/apis/topology.kcp.io/v1alpha1/partitions"), "")
	document := s.expectStatus(http.StatusOK, "admin", http.MethodGet, s.virtualPath("*", "/openapi/v3/apis/tenancy.kcp.io/v1alpha1"), "")
	if !strings.Contains(document, "workspaces/{name}/status") {
		t.Errorf("the document is %.500s", document)
	}
	stream := s.watch("admin", s.virtualPath("*", workspaces+"?watch=1"))
	s.expectStatus(http.StatusOK, "admin", http.MethodDelete, s.virtualPath(parent, workspaces+"/"+child.Name), "")
	stream.waitForEvent(t, "DELETED child")
}

func TestAuditAnnotations(t *testing.T) {
	directory := t.TempDir()
	log, policy := filepath.Join(directory, "audit.log"), filepath.Join(directory, "policy.yaml")
	if err := os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newEnvWith(t, func(o *options.Options) { o.Audit.PolicyFile, o.Audit.LogOptions.Path = policy, log }, configMapsClaim)
	cluster := s.newConsumer("one", acceptClaim(configMapsClaim))
	s.eventuallyStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath(cluster, configMapsPath), "")
	s.expectStatus(http.StatusForbidden, "provider", http.MethodGet, s.virtualPath(cluster, "/api/v1/secrets"), "")
	s.expectStatus(http.StatusForbidden, "stranger", http.MethodGet, s.virtualPath(cluster, configMapsPath), "")
	for name, matches := range map[string]func(auditv1.Event) bool{
		"an allowed request, its user and the impersonated user": func(event auditv1.Event) bool {
			a := event.Annotations
			return event.ResponseStatus.Code == http.StatusOK && a["kcp.io/cluster"] == cluster &&
				a["virtual.apiexport.boundapi.authorization.kcp.io/decision"] == "Allowed" && a["virtual.apiexport.content.authorization.kcp.io/decision"] == "Allowed" &&
				a["virtual.apiexport.maxpermissionpolicy.authorization.kcp.io/decision"] == "Allowed" && event.ImpersonatedUser != nil && event.ImpersonatedUser.Username == "provider"
		},
		"a resource that is not claimed": func(event auditv1.Event) bool {
			return event.ResponseStatus.Code == http.StatusForbidden && event.ObjectRef != nil && event.ObjectRef.Resource == "secrets" &&
				strings.Contains(event.Annotations["virtual.apiexport.boundapi.authorization.kcp.io/reason"], "neither has nor claims secrets")
		},
		"a user without access to the content": func(event auditv1.Event) bool {
			return event.ResponseStatus.Code == http.StatusForbidden && event.Annotations["virtual.apiexport.boundapi.authorization.kcp.io/decision"] == "Allowed" &&
				event.Annotations["virtual.apiexport.content.authorization.kcp.io/decision"] == "Denied"
		},
	} {
		shardtesting.Eventually(t, name, func(context.Context) error {
			events, err := readAuditEvents(log)
			for _, event := range events {
				if event.Annotations["virtual.kcp.io/workspace"] == "apiexport/"+s.provider+"/widgets" && event.ResponseStatus != nil && matches(event) {
					return nil
				}
			}
			return fmt.Errorf("no match among %d events, %v", len(events), err)
		})
	}
}

func readAuditEvents(file string) ([]auditv1.Event, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var all []auditv1.Event
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event auditv1.Event
		if json.Unmarshal(lines.Bytes(), &event) != nil {
			break // still being written
		}
		all = append(all, event)
	}
	return all, lines.Err()
}
