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

// joinable is the number of identities that one request joins.
const joinable = 16

// testJoinedIdentities has consumers bind gadgets of more exports than one request joins. Some are bound before.
func testJoinedIdentities(t *testing.T, s *env, claim apisv1alpha2.PermissionClaim, bound int) {
	s = s.withT(t)
	producers := s.shard.NewWorkspace(t, "root", "producers").Spec.Cluster
	s.create(shardtesting.In(t.Context(), producers), newSchema("v1", "gadgets", "shared.dev"))
	bindAnother := func(number int) (cluster string) {
		name := fmt.Sprintf("gadgets-%d", number)
		export := newGadgetExport()
		export.Name = name
		s.create(shardtesting.In(t.Context(), producers), export)
		cluster = s.newConsumer(fmt.Sprintf("consumer-%d", number), acceptClaim(claim))
		s.bind(cluster, producers, name)
		s.expectStatus(http.StatusCreated, "masters", http.MethodPost, "/clusters/"+cluster+gadgetsPath, newGadgetJSON(name))
		return cluster
	}
	list := s.virtualPath("*", allGadgetsPath)
	for number := bound + 1; number <= joinable; number++ {
		bindAnother(number)
	}
	shardtesting.Eventually(t, "one list joins all identities", func(context.Context) error {
		status, content := s.do("provider", http.MethodGet, list, "")
		for number := bound + 1; number <= joinable; number++ {
			if status != http.StatusOK || !strings.Contains(content, fmt.Sprintf("%q", fmt.Sprintf("gadgets-%d", number))) {
				return fmt.Errorf("%d, gadgets-%d: %.300s", status, number, content)
			}
		}
		return nil
	})
	stream := s.watch("provider", list+"?watch=true")
	last := bindAnother(joinable + 1)
	stream.waitForEnd()
	for _, path := range []string{list, list + "?watch=true"} {
		if body := s.eventuallyStatus(http.StatusBadRequest, "provider", http.MethodGet, path, ""); !strings.Contains(body, "gadgets.shared.dev of more than 16 exports") {
			t.Errorf("the refusal is %s", body)
		}
	}
	s.expectStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath(last, gadgetsPath+fmt.Sprintf("/gadgets-%d", joinable+1)), "")

	update(s, last, s.export, &apisv1alpha2.APIBinding{}, func(b *apisv1alpha2.APIBinding) {
		b.Spec.PermissionClaims[0].State = apisv1alpha2.ClaimRejected
	})
	s.eventuallyStatus(http.StatusOK, "provider", http.MethodGet, list, "")
}

// testProviders: a policy lists providers as users and groups. Users with scopes and service accounts are no users of the installation with
// the same name.
func testProviders(t *testing.T, s *env) {
	s = s.withT(t)
	cluster := s.shard.NewWorkspace(t, "root", "partner").Spec.Cluster
	ctx := shardtesting.In(t.Context(), cluster)
	subjects := []rbacv1.Subject{{Kind: "Group", APIGroup: rbacv1.GroupName, Name: "system:authenticated"}}
	for _, account := range []string{"listed", "other"} {
		s.expectStatus(http.StatusCreated, "masters", http.MethodPost, "/clusters/"+cluster+accountsPath, newAccountJSON(account, ""))
		subjects = append(subjects, rbacv1.Subject{Kind: "ServiceAccount", Namespace: "default", Name: account})
	}
	s.create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "everybody"},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"}, Subjects: subjects})
	s.expectStatus(http.StatusCreated, "masters", http.MethodPost, policiesPath, newPolicyJSON("partners", `[{"claimer":"partner.dev","groups":["partner-shared.dev"]}]`,
		`[{"kind":"User","name":"alice"},{"kind":"Group","name":"partners"},{"kind":"User","name":"system:kcp:serviceaccount:`+cluster+`:default:listed"},
		{"kind":"User","name":"system:serviceaccount:default:other"},{"kind":"Group","name":"system:serviceaccounts"}]`))

	const scopes, origin, warrant = "authentication.kcp.io/scopes", "authentication.kcp.io/cluster-name", "authorization.kcp.io/warrant"
	impersonate := func(name string, groups []string, extra map[string][]string) *rest.Config {
		config := rest.CopyConfig(s.shard.Masters(t))
		config.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: append(groups, "system:authenticated"), Extra: extra}
		return config
	}
	account := func(name string) *rest.Config {
		var minted authenticationv1.TokenRequest
		body := s.expectStatus(http.StatusCreated, "masters", http.MethodPost, "/clusters/"+cluster+accountsPath+"/"+name+"/token", tokenBody)
		if err := json.Unmarshal([]byte(body), &minted); err != nil {
			t.Fatal(err)
		}
		config := rest.AnonymousClientConfig(s.shard.Masters(t))
		config.BearerToken = minted.Status.Token
		return config
	}
	for name, tc := range map[string]struct {
		config  *rest.Config
		allowed bool
	}{
		"a listed user":                               {impersonate("alice", nil, nil), true},
		"a member of a listed group":                  {impersonate("bob", []string{"partners"}, nil), true},
		"another user":                                {impersonate("bob", nil, nil), false},
		"a listed user with a scope":                  {impersonate("alice", nil, map[string][]string{scopes: {"cluster:" + cluster}}), false},
		"a listed group with a scope":                 {impersonate("bob", []string{"partners"}, map[string][]string{scopes: {"cluster:" + cluster}}), false},
		"a listed user with a scope that has root":    {impersonate("alice", nil, map[string][]string{scopes: {"cluster:" + cluster + ",cluster:root"}}), true},
		"a warrant of a listed user":                  {impersonate("bob", nil, map[string][]string{warrant: {`{"user":"alice","groups":["system:authenticated","partners"]}`}}), false},
		"a listed service account":                    {account("listed"), true},
		"a service account that is listed by a local": {account("other"), false},
		"a service account of another workspace":      {impersonate("system:serviceaccount:default:listed", []string{"system:serviceaccounts"}, map[string][]string{origin: {s.provider}}), false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, group := range []string{"partner.dev", "partner-shared.dev"} {
				export := newGadgetExport()
				export.Spec.Resources[0].Group, export.Spec.Resources[0].Schema = group, "v1.gadgets."+group
				body, err := json.Marshal(export)
				if err != nil {
					t.Fatal(err)
				}
				want, text := http.StatusCreated, ""
				if !tc.allowed {
					want, text = http.StatusForbidden, `is reserved by PermissionClaimPolicy \"partners\"`
				}
				response, content := shardtesting.Send(t, tc.config, http.MethodPost, "/clusters/"+cluster+"/apis/apis.kcp.io/v1alpha2/apiexports?dryRun=All", string(body))
				if response.StatusCode != want || !strings.Contains(content, text) {
					t.Errorf("%s: %d: %s", group, response.StatusCode, content)
				}
			}
		})
	}
}
