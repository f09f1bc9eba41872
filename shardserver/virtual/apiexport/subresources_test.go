package apiexport_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

const (
	accountsPath = "/api/v1/namespaces/default/serviceaccounts"
	tokenBody    = `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"expirationSeconds":600}}`
)

func newAccountJSON(name, labels string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":%q,"labels":{%s}}}`, name, labels)
}

// testTokens requests tokens of service accounts of consumers at the view, which needs a claim of the subresource.
func testTokens(t *testing.T, s *env) {
	accounts := apisv1alpha2.PermissionClaim{GroupResource: apisv1alpha2.GroupResource{Resource: "serviceaccounts"}, Verbs: []string{"get", "list", "watch"}}
	token := apisv1alpha2.PermissionClaim{GroupResource: apisv1alpha2.GroupResource{Resource: "serviceaccounts/token"}, Verbs: []string{"create"}}
	s.createExport(s.provider, "tokens", accounts, token)
	view := func(cluster, path string) string {
		return "/services/apiexport/" + s.provider + "/tokens/clusters/" + cluster + path
	}
	newConsumer := func(name string, claims ...apisv1alpha2.AcceptablePermissionClaim) string {
		cluster := s.shard.NewWorkspace(s.T, "root", name).Spec.Cluster
		s.bind(cluster, s.provider, "tokens", claims...)
		for account, labels := range map[string]string{"given": `"for":"provider"`, "own": ""} {
			s.expectStatus(http.StatusCreated, "masters", http.MethodPost, "/clusters/"+cluster+accountsPath, newAccountJSON(account, labels))
		}
		return cluster
	}
	selected, whole := acceptClaim(accounts), acceptClaim(token)
	selected.Selector = apisv1alpha2.PermissionClaimSelector{LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{"for": "provider"}}}
	whole.Selector = apisv1alpha2.PermissionClaimSelector{}

	cluster := newConsumer("minting", selected, whole)
	ctx := shardtesting.In(s.Context(), cluster)
	s.create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "reader"}, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"list"}, APIGroups: []string{""}, Resources: []string{"configmaps"}}, {Verbs: []string{"access"}, NonResourceURLs: []string{"/"}}}})
	s.create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "reader"}, Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: "given"}}})
	body := s.eventuallyStatus(http.StatusCreated, "provider", http.MethodPost, view(cluster, accountsPath+"/given/token"), tokenBody)
	var minted authenticationv1.TokenRequest
	if err := json.Unmarshal([]byte(body), &minted); err != nil || minted.Status.Token == "" {
		t.Fatalf("got %s, %v", body, err)
	}
	asAccount := rest.AnonymousClientConfig(s.shard.Masters(t))
	asAccount.BearerToken = minted.Status.Token
	shardtesting.Eventually(t, "the token has the rights of the account", func(context.Context) error {
		if response, body := shardtesting.Send(t, asAccount, http.MethodGet, "/clusters/"+cluster+allConfigMapsPath, ""); response.StatusCode != http.StatusOK {
			return fmt.Errorf("%d: %s", response.StatusCode, body)
		}
		return nil
	})
	if response, _ := shardtesting.Send(t, asAccount, http.MethodGet, "/clusters/"+cluster+"/api/v1/secrets", ""); response.StatusCode != http.StatusForbidden {
		t.Errorf("the token may read secrets: %d", response.StatusCode)
	}
	// The selector of the claim of the resource applies, and no other subresource or verb is served.
	s.expectStatus(http.StatusNotFound, "provider", http.MethodPost, view(cluster, accountsPath+"/own/token"), tokenBody)
	s.expectStatus(http.StatusNotFound, "provider", http.MethodPost, view(cluster, accountsPath+"/absent/token"), tokenBody)
	s.expectStatus(http.StatusForbidden, "provider", http.MethodPost, view(cluster, accountsPath+"/given/other"), tokenBody)
	s.expectStatus(http.StatusForbidden, "provider", http.MethodGet, view(cluster, accountsPath+"/given/token"), "")
	s.expectStatus(http.StatusForbidden, "provider", http.MethodPost, view(cluster, accountsPath), newAccountJSON("new", ""))
	s.expectStatus(http.StatusForbidden, "stranger", http.MethodPost, view(cluster, accountsPath+"/given/token"), tokenBody)
	s.expectStatus(http.StatusBadRequest, "masters", http.MethodPost, view("*", accountsPath+"/given/token"), tokenBody)
	if body := s.expectStatus(http.StatusOK, "provider", http.MethodGet, view(cluster, "/api/v1"), ""); !strings.Contains(body, `"serviceaccounts/token"`) || strings.Contains(body, `"namespaces/finalize"`) {
		t.Errorf("discovery has %s", body)
	}

	for name, claims := range map[string][]apisv1alpha2.AcceptablePermissionClaim{
		"no-sub": {selected}, "no-parent": {whole}, "rejected": {selected, rejected(whole)},
	} {
		cluster := newConsumer(name, claims...)
		if name != "no-parent" {
			s.eventuallyStatus(http.StatusOK, "provider", http.MethodGet, view(cluster, accountsPath+"/given"), "")
		}
		s.expectStatus(http.StatusForbidden, "provider", http.MethodPost, view(cluster, accountsPath+"/given/token"), tokenBody)
	}
}

// testCustomSubresourceWithoutGate offers a custom subresource while the feature gate is off: nothing serves it, and nothing is bound.
func testCustomSubresourceWithoutGate(t *testing.T, s *env) {
	s.createExport(s.provider, "machines")
	entry := `{"name":"machines/console","group":"example.com","schema":"v1.console.example.com","storage":{"virtual":{"reference":{"apiGroup":"example.com","kind":"Backend","name":"shell"}}}}`
	body := s.expectStatus(http.StatusOK, "masters", http.MethodPatch, "/clusters/"+s.provider+"/apis/apis.kcp.io/v1alpha2/apiexports/machines",
		`[{"op":"add","path":"/spec/resources/-","value":`+entry+`}]`, "Content-Type", "application/json-patch+json")
	if !strings.Contains(body, "machines/console") {
		t.Errorf("got %s", body)
	}
	cluster := s.shard.NewWorkspace(s.T, "root", "of-machines").Spec.Cluster
	s.bind(cluster, s.provider, "machines")
	path := "/clusters/" + cluster + "/apis/example.com/v1/namespaces/default/machines"
	s.eventuallyStatus(http.StatusCreated, "masters", http.MethodPost, path, `{"apiVersion":"example.com/v1","kind":"Machine","metadata":{"name":"one"}}`)
	s.expectStatus(http.StatusNotFound, "masters", http.MethodPost, path+"/one/console", "")
	if body := s.expectStatus(http.StatusOK, "masters", http.MethodGet, "/clusters/"+cluster+"/apis/apis.kcp.io/v1alpha2/apibindings/machines", ""); strings.Contains(body, "console") {
		t.Errorf("bound: %s", body)
	}
	if body := s.expectStatus(http.StatusOK, "masters", http.MethodGet, "/clusters/"+cluster+"/apis/example.com/v1", ""); strings.Contains(body, "console") {
		t.Errorf("discovery has %s", body)
	}
}

func rejected(claim apisv1alpha2.AcceptablePermissionClaim) apisv1alpha2.AcceptablePermissionClaim {
	claim.State = apisv1alpha2.ClaimRejected
	return claim
}
