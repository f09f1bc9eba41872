package shardserver_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// TestAuthorizationChain checks the chain as a whole through the API of a running shard.
func TestAuthorizationChain(t *testing.T) {
	s := shardtesting.Start(t)
	admin := shardtesting.At(s.Admin(t), "root")
	as := func(config *rest.Config, user string, groups ...string) *rest.Config {
		impersonating := rest.CopyConfig(config)
		impersonating.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
		return impersonating
	}
	review := func(t *testing.T, config *rest.Config) (authenticationv1.UserInfo, error) {
		t.Helper()
		answer, err := s.Kubernetes(t, config).AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			return authenticationv1.UserInfo{}, err
		}
		return answer.Status.UserInfo, nil
	}
	const scopes = "authentication.kcp.io/scopes"

	t.Run("impersonated users are scoped to this logical cluster", func(t *testing.T) {
		got, err := review(t, as(admin, "bob"))
		if err != nil || got.Username != "bob" || !slices.Equal(got.Extra[scopes], []string{"cluster:root"}) {
			t.Errorf("got %+v, %v", got, err)
		}
	})
	t.Run("impersonation by masters adds no scope", func(t *testing.T) {
		got, err := review(t, as(shardtesting.At(s.Masters(t), "root"), "bob"))
		if err != nil || got.Username != "bob" || len(got.Extra[scopes]) != 0 {
			t.Errorf("got %+v, %v", got, err)
		}
	})
	t.Run("other users have no scope", func(t *testing.T) {
		got, err := review(t, admin)
		if err != nil || len(got.Extra[scopes]) != 0 {
			t.Errorf("got %+v, %v", got, err)
		}
	})
	t.Run("protected groups are impersonated by members only", func(t *testing.T) {
		if _, err := review(t, as(admin, "bob", "system:masters")); !apierrors.IsForbidden(err) {
			t.Errorf("masters: %v", err)
		}
		if _, err := review(t, as(admin, "bob", "system:kcp:admin")); err != nil {
			t.Errorf("by a member: %v", err)
		}
	})
	t.Run("impersonation requires permission", func(t *testing.T) {
		if _, err := review(t, as(shardtesting.At(s.User(t), "root"), "bob")); !apierrors.IsForbidden(err) {
			t.Errorf("got %v", err)
		}
	})
	shardtesting.Eventually(t, "the service account", func(ctx context.Context) error {
		_, err := s.Kubernetes(t, admin).CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	t.Run("service account token works on the bare URL and in its logical cluster", func(t *testing.T) {
		clients := s.Kubernetes(t, admin)
		request, err := clients.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		bare := rest.AnonymousClientConfig(s.Admin(t))
		bare.BearerToken = request.Status.Token
		for _, config := range []*rest.Config{bare, shardtesting.At(bare, "root")} {
			got, err := review(t, config)
			if err != nil || got.Username != "system:serviceaccount:default:default" || !slices.Equal(got.Extra["authentication.kcp.io/cluster-name"], []string{"root"}) {
				t.Errorf("got %+v, %v", got, err)
			}
		}
		if _, err := review(t, shardtesting.At(bare, "system:shard")); !apierrors.IsForbidden(err) {
			t.Errorf("in another logical cluster: %v", err)
		}
	})
	t.Run("origins and scopes of impersonated users grant nothing in other logical clusters", func(t *testing.T) {
		testImpersonatedOrigins(t, s)
	})
	t.Run("constrained impersonation is restricted to its logical cluster and its requests", func(t *testing.T) {
		testConstrainedImpersonation(t, s)
	})
	t.Run("token in a secret works", func(t *testing.T) {
		clients := s.Kubernetes(t, admin)
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "legacy", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}},
			Type:       corev1.SecretTypeServiceAccountToken,
		}
		if _, err := clients.CoreV1().Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		bare := rest.AnonymousClientConfig(s.Admin(t))
		shardtesting.Eventually(t, "the token in the secret", func(context.Context) error {
			filled, err := clients.CoreV1().Secrets("default").Get(t.Context(), "legacy", metav1.GetOptions{})
			if err != nil {
				return err
			}
			bare.BearerToken = string(filled.Data[corev1.ServiceAccountTokenKey])
			_, err = review(t, bare)
			return err
		})
	})
	t.Run("access review of another user discloses no details", func(t *testing.T) {
		answer, err := s.Kubernetes(t, admin).AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: "mallory", ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Resource: "secrets"}},
		}, metav1.CreateOptions{})
		if err != nil || answer.Status.Allowed || answer.Status.Reason != "access denied" {
			t.Errorf("got %+v, %v", answer, err)
		}
	})
	t.Run("RBAC of root allows metrics", func(t *testing.T) {
		scrape := func() error {
			return s.Kubernetes(t, s.User(t)).Discovery().RESTClient().Get().AbsPath("/metrics").Do(t.Context()).Error()
		}
		if err := scrape(); !apierrors.IsForbidden(err) {
			t.Fatalf("before the binding: %v", err)
		}
		_, err := s.Kubernetes(t, admin).RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "scraper"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:kcp:metrics-reader"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "user"}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		shardtesting.Eventually(t, "scraping", func(context.Context) error { return scrape() })
	})
	t.Run("inactive logical cluster rejects all users until it is active again", func(t *testing.T) {
		workspace := s.NewWorkspace(t, "root", "sleeper")
		config := shardtesting.At(s.Masters(t), workspace.Spec.Cluster)
		clients := s.Kubernetes(t, config)
		const path = "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster"
		mark := func(value string) {
			body := []byte(`{"metadata":{"annotations":{"core.kcp.io/inactive":` + value + `}}}`)
			if err := clients.Discovery().RESTClient().Patch("application/merge-patch+json").AbsPath(path).Body(body).Do(t.Context()).Error(); err != nil {
				t.Fatal(err)
			}
		}
		list := func() error {
			_, err := clients.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
			return err
		}
		mark(`"true"`)
		shardtesting.Eventually(t, "the logical cluster to be inactive", func(context.Context) error {
			if err := list(); !apierrors.IsForbidden(err) {
				return errors.New("the request was allowed")
			}
			return nil
		})
		mark("null")
		shardtesting.Eventually(t, "listing", func(context.Context) error { return list() })
	})
}

// testImpersonatedOrigins binds an export that users from two logical clusters may bind: as the administrator of the
// first, who impersonates users, and as its service account.
func testImpersonatedOrigins(t *testing.T, s *shardtesting.Shard) {
	provider, own, partner := s.NewWorkspace(t, "root", "provider").Spec.Cluster, s.NewWorkspace(t, "root", "own").Spec.Cluster, s.NewWorkspace(t, "root", "partner").Spec.Cluster
	s.NewExport(t, provider, "things", schema.GroupResource{Group: "things.io", Resource: "things"}, "Thing")
	subject := func(group string) rbacv1.Subject {
		return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "Group", Name: group}
	}
	grant(t, s, shardtesting.At(s.Masters(t), provider), "bind", []rbacv1.PolicyRule{{Verbs: []string{"bind"}, APIGroups: []string{"apis.kcp.io"}, Resources: []string{"apiexports"}}},
		subject("system:cluster:"+own), subject("system:cluster:"+partner))
	grant(t, s, shardtesting.At(s.Masters(t), own), "everything", []rbacv1.PolicyRule{{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}}, {Verbs: []string{"*"}, NonResourceURLs: []string{"*"}}},
		subject("system:authenticated"))
	bind := func(config *rest.Config) error {
		binding := &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{GenerateName: "things-"}, Spec: apisv1alpha2.APIBindingSpec{
			Reference: apisv1alpha2.BindingReference{Export: &apisv1alpha2.ExportBindingReference{Path: provider, Name: "things"}},
		}}
		return s.Client(t, config).Create(shardtesting.In(t.Context(), own), binding, client.DryRunAll)
	}
	token, err := s.Kubernetes(t, shardtesting.At(s.Masters(t), own)).CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	account := rest.AnonymousClientConfig(s.Masters(t))
	account.BearerToken = token.Status.Token
	shardtesting.Eventually(t, "the service account to bind", func(context.Context) error { return bind(account) })

	const origin, scopes, warrant = "authentication.kcp.io/cluster-name", "authentication.kcp.io/scopes", "authorization.kcp.io/warrant"
	for name, tc := range map[string]struct {
		user  string
		extra map[string][]string
	}{
		"the scope of its own logical cluster": {"bob", map[string][]string{scopes: {"cluster:" + own}}},
		"the scope of another logical cluster": {"bob", map[string][]string{scopes: {"cluster:" + partner}}},
		"scopes of both":                       {"bob", map[string][]string{scopes: {"cluster:" + own + ",cluster:" + partner + ",cluster:" + provider}}},
		"another origin":                       {"bob", map[string][]string{origin: {partner}}},
		"another origin with its scope":        {"bob", map[string][]string{origin: {partner}, scopes: {"cluster:" + partner}}},
		"another origin with both scopes":      {"bob", map[string][]string{origin: {partner}, scopes: {"cluster:" + partner + ",cluster:" + own}}},
		"a service account from elsewhere":     {"system:serviceaccount:default:default", map[string][]string{origin: {partner}}},
		"a warrant for one from elsewhere":     {"bob", map[string][]string{warrant: {`{"user":"system:serviceaccount:default:default","extra":{"` + origin + `":["` + partner + `"]}}`}}},
	} {
		t.Run(name, func(t *testing.T) {
			config := rest.CopyConfig(s.Admin(t))
			config.Impersonate = rest.ImpersonationConfig{UserName: tc.user, Groups: []string{"system:authenticated"}, Extra: tc.extra}
			// The administrator may impersonate the user, and admission refuses the binding.
			if _, err := s.Kubernetes(t, shardtesting.At(config, own)).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{}); err != nil {
				t.Errorf("reading in its own logical cluster: %v", err)
			}
			if err := bind(config); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "no permission to bind") {
				t.Errorf("binding: %v", err)
			}
		})
	}
}
