package migration

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/serviceaccount"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/internal/serviceaccounttokens"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/authentication"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/sharded"
)

const (
	issuer       = "https://kcp.default.svc"
	account      = "robot"
	tokensSecret = "robot-token"
)

// tokens are those of a service account in a workspace that moves, by the shard that signed them.
type tokens struct {
	*env
	cluster string
	admin   kubernetes.Interface
	signed  map[string]string
}

func (e *env) newTokens(t *testing.T, workspace *tenancyv1alpha1.Workspace) *tokens {
	t.Helper()
	admin, err := kubernetes.NewForConfig(e.Admin(t, "root:"+workspace.Name))
	if err != nil {
		t.Fatal(err)
	}
	tok := &tokens{env: e, cluster: workspace.Spec.Cluster, admin: admin, signed: map[string]string{}}
	if _, err := admin.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: account},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceDefault, Name: account}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: tokensSecret, Annotations: map[string]string{corev1.ServiceAccountNameKey: account}}, Type: corev1.SecretTypeServiceAccountToken}
	if _, err := admin.CoreV1().Secrets(metav1.NamespaceDefault).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the token in the Secret", func(ctx context.Context) error {
		got, err := admin.CoreV1().Secrets(metav1.NamespaceDefault).Get(ctx, tokensSecret, metav1.GetOptions{})
		if err == nil && len(got.Data[corev1.ServiceAccountTokenKey]) == 0 {
			return fmt.Errorf("got %v", got.Data)
		}
		if err == nil {
			tok.signed[tokensSecret] = string(got.Data[corev1.ServiceAccountTokenKey])
		}
		return err
	})
	return tok
}

// request requests a token from the shard that has the workspace, whose key must have signed it.
func (tok *tokens) request(t *testing.T, shard string) {
	t.Helper()
	response, err := tok.admin.CoreV1().ServiceAccounts(metav1.NamespaceDefault).CreateToken(t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := keyutil.PublicKeysFromFile(tok.Layout().SigningKey(shard) + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	getter, err := serviceaccount.StaticPublicKeysGetter(keys)
	if err != nil {
		t.Fatal(err)
	}
	audiences := []string{issuer}
	if _, ok, err := serviceaccounttokens.NewAuthenticator(audiences, getter, audiences, nil).AuthenticateToken(t.Context(), response.Status.Token); !ok {
		t.Errorf("shard %s has not signed its token: %v", shard, err)
	}
	tok.signed[shard] = response.Status.Token
}

// status returns the status of a request with a token to a server, in the workspace of the tokens.
func (tok *tokens) status(t *testing.T, server, token string) int {
	t.Helper()
	config := rest.AnonymousClientConfig(tok.Masters(t, server))
	config.BearerToken = token
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	response, err := client.Get(tok.ServerURL(server) + "/clusters/" + tok.cluster + "/api/v1/namespaces/default/configmaps")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	return response.StatusCode
}

// check sends every token to the shard that has the workspace and to the front proxy.
func (tok *tokens) check(t *testing.T, shard string) {
	t.Helper()
	for signer, token := range tok.signed {
		for _, server := range []string{shard, sharded.FrontProxy} {
			if got := tok.status(t, server, token); got != http.StatusOK {
				t.Errorf("on shard %s, the token of %s at %s: got %d", shard, signer, server, got)
			}
		}
	}
}

// checkForeign fails if a shard accepts tokens for a workspace that the shard which signed them never had.
func (tok *tokens) checkForeign(t *testing.T, signer, shard string, other *tenancyv1alpha1.Workspace) {
	t.Helper()
	private, err := keyutil.PrivateKeyFromFile(tok.Layout().SigningKey(signer))
	if err != nil {
		t.Fatal(err)
	}
	generator, err := authentication.NewTokenGenerator(issuer, private)
	if err != nil {
		t.Fatal(err)
	}
	admin, err := kubernetes.NewForConfig(tok.Admin(t, "root:"+other.Name))
	if err != nil {
		t.Fatal(err)
	}
	stored, err := admin.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	claims, bound, err := serviceaccount.Claims(core.ServiceAccount{ObjectMeta: stored.ObjectMeta}, nil, nil, nil, nil, nil, 3600, 0, []string{issuer}, nil)
	if err != nil {
		t.Fatal(err)
	}
	forged, err := generator.GenerateToken(logicalcluster.With(t.Context(), logicalcluster.MustParseName(other.Spec.Cluster)), claims, bound)
	if err != nil {
		t.Fatal(err)
	}
	victim := *tok
	victim.cluster = other.Spec.Cluster
	for _, server := range []string{shard, sharded.FrontProxy} {
		if got := victim.status(t, server, forged); got != http.StatusUnauthorized {
			t.Errorf("a token that %s signed for a logical cluster that it never had, at %s: got %d, want 401", signer, server, got)
		}
	}
}

// checkRevoked deletes the Secret and the account, and waits until their tokens are refused.
func (tok *tokens) checkRevoked(t *testing.T, shard string) {
	t.Helper()
	refused := func(signer string) {
		shardtesting.Eventually(t, "the refusal of the token of "+signer, func(context.Context) error {
			for _, server := range []string{shard, sharded.FrontProxy} {
				if got := tok.status(t, server, tok.signed[signer]); got != http.StatusUnauthorized {
					return fmt.Errorf("at %s: got %d", server, got)
				}
			}
			return nil
		})
	}
	if err := tok.admin.CoreV1().Secrets(metav1.NamespaceDefault).Delete(t.Context(), tokensSecret, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	refused(tokensSecret)
	delete(tok.signed, tokensSecret)
	tok.check(t, shard)
	if err := tok.admin.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Delete(t.Context(), account, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for signer := range tok.signed {
		refused(signer)
	}
}
