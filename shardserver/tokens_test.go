package shardserver_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

const clusterNameExtra = "authentication.kcp.io/cluster-name"

// tenantEnv are two workspaces that hold a service account of the same name, and the certificate authorities.
type tenantEnv struct {
	*shardtesting.Shard
	host             string
	clients, proxies *shardtesting.CA
	a, b             tenant
}

// tenant is one workspace, as its administrator sees it.
type tenant struct {
	name, cluster string
	kubernetes.Interface
}

func newTenantEnv(t *testing.T) *tenantEnv {
	t.Helper()
	s := &tenantEnv{clients: shardtesting.NewCA(t, "clients"), proxies: shardtesting.NewCA(t, "proxies")}
	s.Shard = shardtesting.Start(t, func(o *options.Options) {
		o.Authentication.ClientCert.ClientCA = s.clients.CertFile
		headers := o.Authentication.RequestHeader
		headers.ClientCAFile, headers.AllowedNames = s.proxies.CertFile, []string{"front-proxy"}
		headers.UsernameHeaders, headers.GroupHeaders, headers.ExtraHeaderPrefixes = []string{"X-Remote-User"}, []string{"X-Remote-Group"}, []string{"X-Remote-Extra-"}
		o.Authentication.TokenSuccessCacheTTL = 100 * time.Millisecond // so that the revocation of a token takes effect soon
	})
	s.host = s.Admin(t).Host
	for _, tenant := range []struct {
		*tenant
		name string
	}{{&s.a, "a"}, {&s.b, "b"}} {
		workspace := s.NewWorkspace(t, "root", tenant.name)
		tenant.tenant.name, tenant.cluster = tenant.name, workspace.Spec.Cluster
		tenant.Interface = s.Kubernetes(t, shardtesting.At(s.Admin(t), workspace.Spec.Cluster))
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}
		create(t, tenant.CoreV1().ServiceAccounts("default").Create, account)
		create(t, tenant.CoreV1().ConfigMaps("default").Create, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "where"}, Data: map[string]string{"in": tenant.name}})
		tenant.bind(t, "view", rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "robot"})
	}
	return s
}

func create[T any](t *testing.T, do func(context.Context, T, metav1.CreateOptions) (T, error), obj T) T {
	t.Helper()
	created, err := do(t.Context(), obj, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

// bind binds a cluster role, of the workspace or of the shard, to a subject in the whole workspace.
func (te *tenant) bind(t *testing.T, role string, subject rbacv1.Subject) {
	t.Helper()
	if subject.Kind != rbacv1.ServiceAccountKind {
		subject.APIGroup = rbacv1.GroupName
	}
	create(t, te.RbacV1().ClusterRoleBindings().Create, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{subject},
	})
}

func userSubject(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.UserKind, Name: name}
}

// withToken returns a client at the bare URL, as a pod has it, or at a logical cluster.
func (te *tenantEnv) withToken(t *testing.T, token, cluster string) kubernetes.Interface {
	t.Helper()
	config := rest.AnonymousClientConfig(te.Admin(t))
	config.BearerToken, config.QPS = token, -1
	if cluster != "" {
		config = shardtesting.At(config, cluster)
	}
	return te.Kubernetes(t, config)
}

// currentWorkspace returns which workspace a client is in.
func currentWorkspace(ctx context.Context, client kubernetes.Interface) (string, error) {
	cm, err := client.CoreV1().ConfigMaps("default").Get(ctx, "where", metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return cm.Data["in"], nil
}

func whoami(t *testing.T, config *rest.Config) authenticationv1.UserInfo {
	t.Helper()
	review := create(t, (&shardtesting.Shard{}).Kubernetes(t, config).AuthenticationV1().SelfSubjectReviews().Create, &authenticationv1.SelfSubjectReview{})
	return review.Status.UserInfo
}

// eventually waits until a permission that was just granted takes effect: authorization reads it from the watch
// cache.
func eventually(t *testing.T, what string, do func(context.Context) error) {
	t.Helper()
	shardtesting.Eventually(t, what, do)
}

func TestTenantAuthentication(t *testing.T) {
	s := newTenantEnv(t)
	t.Run("a requested token is valid in one workspace", func(t *testing.T) { testRequestedTokens(t, s) })
	t.Run("a token for other audiences is rejected", func(t *testing.T) { testForeignAudiences(t, s) })
	t.Run("a token is revoked with the object that it is bound to", func(t *testing.T) { testBoundTokens(t, s) })
	t.Run("a token secret is populated, and its token is valid in one workspace", func(t *testing.T) { testTokenSecrets(t, s) })
	t.Run("tokens of two keys during a re-keying", func(t *testing.T) { testTokenKeyGenerations(t, s) })
	t.Run("a token is verified with the documents of its issuer", func(t *testing.T) { testTokenVerification(t, s) })
	t.Run("token and access reviews", func(t *testing.T) { testReviews(t, s) })
	t.Run("client certificates", func(t *testing.T) { testClientCertificates(t, s) })
	t.Run("headers of the front proxy", func(t *testing.T) { testProxyHeaders(t, s) })
	t.Run("permissions require workspace access", func(t *testing.T) { testAccess(t, s) })
	t.Run("permissions of one workspace have no effect in another", func(t *testing.T) { testEscalation(t, s) })
	t.Run("tenants impersonate within their workspace", func(t *testing.T) { testImpersonation(t, s) })
}

func (te *tenant) token(t *testing.T, account string, spec authenticationv1.TokenRequestSpec) string {
	t.Helper()
	request, err := te.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), account, &authenticationv1.TokenRequest{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}

func testRequestedTokens(t *testing.T, s *tenantEnv) {
	token := s.a.token(t, "robot", authenticationv1.TokenRequestSpec{})
	s.expectWorkspaceToken(t, token, s.a, s.b)
	info := whoami(t, s.configWithToken(t, token))
	if info.Username != "system:serviceaccount:default:robot" || !slices.Equal(info.Extra[clusterNameExtra], []string{s.a.cluster}) ||
		!slices.Contains(info.Groups, "system:serviceaccounts:default") {
		t.Errorf("the token authenticates %+v", info)
	}
}

func (te *tenantEnv) configWithToken(t *testing.T, token string) *rest.Config {
	config := rest.AnonymousClientConfig(te.Admin(t))
	config.BearerToken = token
	return config
}

// expectWorkspaceToken checks that a token works in its workspace, by URL and from the bare host, and not in another where an account
// of the same name has the same permissions.
func (te *tenantEnv) expectWorkspaceToken(t *testing.T, token string, own, other tenant) {
	t.Helper()
	for what, cluster := range map[string]string{"by name": own.cluster, "by path": "root:" + own.name, "at the bare host": ""} {
		eventually(t, what, func(ctx context.Context) error {
			got, err := currentWorkspace(ctx, te.withToken(t, token, cluster))
			if err == nil && got != own.name {
				t.Fatalf("%s: the token authenticates in workspace %q", what, got)
			}
			return err
		})
	}
	if _, err := currentWorkspace(t.Context(), te.withToken(t, token, other.cluster)); !apierrors.IsForbidden(err) {
		t.Errorf("in the other workspace: got %v, want Forbidden", err)
	}
	if _, err := te.withToken(t, token, "*").CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("over all workspaces: got %v, want Forbidden", err)
	}
	if _, err := te.withToken(t, token+"x", own.cluster).CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("a forged token: got %v, want Unauthorized", err)
	}
}

func testForeignAudiences(t *testing.T, s *tenantEnv) {
	token := s.a.token(t, "robot", authenticationv1.TokenRequestSpec{Audiences: []string{"somebody-else"}})
	if _, err := currentWorkspace(t.Context(), s.withToken(t, token, s.a.cluster)); !apierrors.IsUnauthorized(err) {
		t.Errorf("got %v, want Unauthorized", err)
	}
	review := create(t, s.a.AuthenticationV1().TokenReviews().Create, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{"somebody-else"}}})
	if !review.Status.Authenticated || !slices.Equal(review.Status.Audiences, []string{"somebody-else"}) {
		t.Errorf("a review for that audience returns %+v", review.Status)
	}
	short := int64(1)
	_, err := s.a.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "robot", &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &short}}, metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) {
		t.Errorf("a token for one second: got %v, want Invalid", err)
	}
}

func testBoundTokens(t *testing.T, s *tenantEnv) {
	for _, tenant := range []tenant{s.a, s.b} { // the objects of b remain, and must not keep tokens of a valid
		create(t, tenant.CoreV1().ServiceAccounts("default").Create, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "brief"}})
		create(t, tenant.CoreV1().Secrets("default").Create, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "leash"}})
		tenant.bind(t, "view", rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "brief"})
	}
	free := s.a.token(t, "brief", authenticationv1.TokenRequestSpec{})
	bound := s.a.token(t, "brief", authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret", Name: "leash"}})
	s.expectWorkspaceToken(t, free, s.a, s.b)
	s.expectWorkspaceToken(t, bound, s.a, s.b)

	if err := s.a.CoreV1().Secrets("default").Delete(t.Context(), "leash", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.waitForTokenRevocation(t, bound)
	if _, err := currentWorkspace(t.Context(), s.withToken(t, free, "")); err != nil {
		t.Errorf("the other token: %v", err)
	}
	if err := s.a.CoreV1().ServiceAccounts("default").Delete(t.Context(), "brief", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	create(t, s.a.CoreV1().ServiceAccounts("default").Create, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "brief"}})
	s.waitForTokenRevocation(t, free) // although an account of that name was created again
}

// waitForTokenRevocation waits until a token is rejected.
func (te *tenantEnv) waitForTokenRevocation(t *testing.T, token string) {
	t.Helper()
	shardtesting.Eventually(t, "the token is revoked", func(ctx context.Context) error {
		if _, err := currentWorkspace(ctx, te.withToken(t, token, te.a.cluster)); !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("got %v, want Unauthorized", err)
		}
		return nil
	})
}

func testTokenSecrets(t *testing.T, s *tenantEnv) {
	secrets := s.a.CoreV1().Secrets("default")
	create(t, s.a.CoreV1().ServiceAccounts("default").Create, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "veteran"}})
	s.a.bind(t, "view", rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "veteran"})
	create(t, secrets.Create, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "veteran", Annotations: map[string]string{corev1.ServiceAccountNameKey: "veteran"}},
		Type:       corev1.SecretTypeServiceAccountToken,
	})
	var data map[string][]byte
	shardtesting.Eventually(t, "the secret is populated", func(ctx context.Context) error {
		secret, err := secrets.Get(ctx, "veteran", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if data = secret.Data; len(data["token"]) == 0 || len(data["ca.crt"]) == 0 || string(data["namespace"]) != "default" {
			return fmt.Errorf("it has %d keys", len(data))
		}
		return nil
	})
	s.expectWorkspaceToken(t, string(data["token"]), s.a, s.b)
	if err := s.a.CoreV1().ServiceAccounts("default").Delete(t.Context(), "veteran", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.waitForTokenRevocation(t, string(data["token"]))
	shardtesting.Eventually(t, "the secret is deleted with its account", func(ctx context.Context) error {
		if _, err := secrets.Get(ctx, "veteran", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("got %v, want NotFound", err)
		}
		return nil
	})
}

func testReviews(t *testing.T, s *tenantEnv) {
	token := s.a.token(t, "robot", authenticationv1.TokenRequestSpec{})
	reviewed := create(t, s.a.AuthenticationV1().TokenReviews().Create, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}})
	if status := reviewed.Status; !status.Authenticated || status.User.Username != "system:serviceaccount:default:robot" || !slices.Equal(status.User.Extra[clusterNameExtra], []string{s.a.cluster}) {
		t.Errorf("a token review returns %+v", status)
	}
	refused := create(t, s.a.AuthenticationV1().TokenReviews().Create, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: "nonsense"}})
	if refused.Status.Authenticated {
		t.Error("a token review authenticates an invalid token")
	}

	s.a.bind(t, "system:kcp:workspace:access", userSubject("rita"))
	s.a.bind(t, "view", userSubject("rita"))
	s.b.bind(t, "view", userSubject("rita")) // but without access
	allowed := func(w tenant, verb string) authorizationv1.SubjectAccessReviewStatus {
		return create(t, w.AuthorizationV1().SubjectAccessReviews().Create, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "rita", Groups: []string{"system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Resource: "configmaps", Namespace: "default"},
		}}).Status
	}
	eventually(t, "a review of access", func(context.Context) error {
		if got := allowed(s.a, "get"); !got.Allowed || got.Reason != "access granted" {
			return fmt.Errorf("got %+v", got)
		}
		return nil
	})
	for what, got := range map[string]authorizationv1.SubjectAccessReviewStatus{"without permission": allowed(s.a, "delete"), "without access": allowed(s.b, "get")} {
		if got.Allowed || got.Denied && what == "without permission" || got.Reason != "access denied" {
			t.Errorf("%s: got %+v", what, got)
		}
	}
	local := create(t, s.a.AuthorizationV1().LocalSubjectAccessReviews("default").Create, &authorizationv1.LocalSubjectAccessReview{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default"},
		Spec: authorizationv1.SubjectAccessReviewSpec{User: "rita", Groups: []string{"system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Resource: "configmaps", Namespace: "default"}},
	})
	if !local.Status.Allowed {
		t.Errorf("a local review returns %+v", local.Status)
	}
	robot := s.withToken(t, token, "")
	own := create(t, robot.AuthorizationV1().SelfSubjectAccessReviews().Create, &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Resource: "configmaps", Namespace: "default"},
	}})
	if !own.Status.Allowed {
		t.Errorf("a self review of the robot returns %+v", own.Status)
	}
	rules := create(t, robot.AuthorizationV1().SelfSubjectRulesReviews().Create, &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "default"}})
	if rules.Status.Incomplete || !slices.ContainsFunc(rules.Status.ResourceRules, func(rule authorizationv1.ResourceRule) bool {
		return slices.Contains(rule.Resources, "configmaps") && slices.Contains(rule.Verbs, "watch")
	}) {
		t.Errorf("rules of the robot: %+v", rules.Status)
	}
	listed := map[string]int{}
	for _, rule := range rules.Status.ResourceRules {
		listed[rule.String()]++
	}
	for _, rule := range rules.Status.NonResourceRules {
		listed[rule.String()]++
	}
	for rule, count := range listed {
		if count > 1 {
			t.Errorf("listed %d times: %s", count, rule)
		}
	}
}

func testClientCertificates(t *testing.T, s *tenantEnv) {
	root := shardtesting.At(s.Admin(t), "root")
	info := whoami(t, s.clients.Client(t, root, "alice", "devs", "ops"))
	if info.Username != "alice" || !slices.Contains(info.Groups, "devs") || !slices.Contains(info.Groups, "ops") || !slices.Contains(info.Groups, "system:authenticated") {
		t.Errorf("the certificate authenticates %+v", info)
	}
	if got := getStatus(t, s.clients.Client(t, shardtesting.At(s.Admin(t), "*"), "chief", "system:masters"), "/api/v1/namespaces"); got != http.StatusOK {
		t.Errorf("masters by certificate, over all clusters: got %d, want 200", got)
	}
	unknownCA := shardtesting.NewCA(t, "strangers")
	if got := getStatus(t, unknownCA.Client(t, root, "alice", "system:masters"), "/api/v1/namespaces"); got != http.StatusUnauthorized {
		t.Errorf("a certificate of an unknown authority: got %d, want 401", got)
	}
}

func testProxyHeaders(t *testing.T, s *tenantEnv) {
	root := shardtesting.At(s.Admin(t), "root")
	headers := http.Header{"X-Remote-User": {"carol"}, "X-Remote-Group": {"devs", "system:masters", "system:kcp:logical-cluster-admin"}, "X-Remote-Extra-Shoe": {"42"}}
	withProxyHeaders := func(config *rest.Config) *rest.Config { return withHeaders(config, headers) }
	proxy := s.proxies.Client(t, root, "front-proxy")
	info := whoami(t, withProxyHeaders(proxy))
	if info.Username != "carol" || !slices.Contains(info.Groups, "devs") || !slices.Equal(info.Extra["shoe"], []string{"42"}) {
		t.Errorf("the headers authenticate %+v", info)
	}
	for _, group := range []string{"system:masters", "system:kcp:logical-cluster-admin"} {
		if slices.Contains(info.Groups, group) {
			t.Errorf("a header granted %s", group)
		}
	}
	for what, tc := range map[string]struct {
		config *rest.Config
		want   int
	}{
		"masters by header, in a workspace":                  {s.at(withProxyHeaders(proxy), s.a.cluster), http.StatusForbidden},
		"masters by header, over all clusters":               {s.at(withProxyHeaders(proxy), "*"), http.StatusForbidden},
		"the proxy without headers, anonymous":               {proxy, http.StatusForbidden},
		"a certificate of the proxies' CA with another name": {withProxyHeaders(s.proxies.Client(t, root, "impostor")), http.StatusUnauthorized},
		"headers without any credential":                     {withProxyHeaders(rest.AnonymousClientConfig(root)), http.StatusForbidden},
		"headers with a client certificate":                  {s.at(withProxyHeaders(s.clients.Client(t, root, "alice")), s.a.cluster), http.StatusForbidden},
	} {
		if got := getStatus(t, tc.config, "/api/v1/namespaces"); got != tc.want {
			t.Errorf("%s: got %d, want %d", what, got, tc.want)
		}
	}
	if info := whoami(t, withProxyHeaders(s.clients.Client(t, root, "alice"))); info.Username != "alice" || slices.Contains(info.Groups, "devs") {
		t.Errorf("headers with a client certificate authenticate %+v", info)
	}
	if info := whoami(t, withProxyHeaders(shardtesting.At(s.User(t), "root"))); info.Username != "user" {
		t.Errorf("headers with a token authenticate %+v", info)
	}
}

// at returns a configuration for another logical cluster.
func (te *tenantEnv) at(config *rest.Config, cluster string) *rest.Config {
	moved := rest.CopyConfig(config)
	moved.Host = te.host + "/clusters/" + cluster
	return moved
}

func withHeaders(config *rest.Config, headers http.Header) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			req = req.Clone(req.Context())
			for name, values := range headers {
				req.Header[name] = values
			}
			return next.RoundTrip(req)
		})
	})
	return config
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return r(req) }

func testAccess(t *testing.T, s *tenantEnv) {
	alice := s.clients.Client(t, shardtesting.At(s.Admin(t), s.a.cluster), "alice")
	documents := []string{"/version", "/api", "/apis", "/openapi/v3", "/api/v1/namespaces", "/apis/tenancy.kcp.io/v1alpha1/workspaces"}
	s.a.bind(t, "view", userSubject("alice")) // no effect without access
	for _, path := range documents {
		if got := getStatus(t, alice, path); got != http.StatusForbidden {
			t.Errorf("without access, GET %s: got %d, want 403", path, got)
		}
	}
	s.a.bind(t, "system:kcp:workspace:access", userSubject("alice"))
	eventually(t, "access", func(ctx context.Context) error {
		_, err := currentWorkspace(ctx, s.Kubernetes(t, alice))
		return err
	})
	for _, path := range documents[:4] {
		if got := getStatus(t, alice, path); got != http.StatusOK {
			t.Errorf("with access, GET %s: got %d, want 200", path, got)
		}
	}
	_, err := s.Kubernetes(t, alice).CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("a viewer creates: got %v, want Forbidden", err)
	}
	if _, err := currentWorkspace(t.Context(), s.Kubernetes(t, s.at(alice, s.b.cluster))); !apierrors.IsForbidden(err) {
		t.Errorf("in the other workspace: got %v, want Forbidden", err)
	}
}

func testEscalation(t *testing.T, s *tenantEnv) {
	s.b.bind(t, "cluster-admin", userSubject("eve"))
	s.a.bind(t, "system:kcp:workspace:access", userSubject("eve"))
	create(t, s.a.RbacV1().ClusterRoles().Create, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "rbac-writer"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"*"}, Verbs: []string{"get", "list", "create", "update"}},
	}})
	s.a.bind(t, "rbac-writer", userSubject("eve"))
	eve := s.clients.Client(t, shardtesting.At(s.Admin(t), s.a.cluster), "eve")
	client := s.Kubernetes(t, eve)
	eventually(t, "writing roles", func(ctx context.Context) error {
		_, err := client.RbacV1().ClusterRoles().List(ctx, metav1.ListOptions{})
		return err
	})
	role := func(rule rbacv1.PolicyRule) error {
		_, err := client.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "eve-"}, Rules: []rbacv1.PolicyRule{rule}}, metav1.CreateOptions{})
		return err
	}
	binding := func(name string) error {
		_, err := client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "eve-"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "eve"}},
		}, metav1.CreateOptions{})
		return err
	}
	for what, err := range map[string]error{
		"a role with all permissions":                         role(rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}),
		"a role with permissions of eve in another workspace": role(rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}}),
		"a role with the verb escalate":                       role(rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}, Verbs: []string{"escalate"}}),
		"a binding of the shard's cluster-admin":              binding("cluster-admin"),
		"a binding of a role of the installation":             binding("system:kcp:logical-cluster-admin"),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: got %v, want Forbidden", what, err)
		}
	}
	if err := role(rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles"}, Verbs: []string{"get"}}); err != nil {
		t.Errorf("a role with permissions of eve: %v", err)
	}
	if err := binding("rbac-writer"); err != nil {
		t.Errorf("a binding of a role of eve: %v", err)
	}
}

func testImpersonation(t *testing.T, s *tenantEnv) {
	create(t, s.a.RbacV1().ClusterRoles().Create, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "actor"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"impersonate"}},
	}})
	for _, role := range []string{"system:kcp:workspace:access", "actor"} {
		s.a.bind(t, role, userSubject("ivan"))
	}
	s.a.bind(t, "system:kcp:workspace:access", userSubject("zoe"))
	s.b.bind(t, "cluster-admin", userSubject("zoe"))
	as := func(cluster string, who rest.ImpersonationConfig) kubernetes.Interface {
		config := s.clients.Client(t, shardtesting.At(s.Admin(t), cluster), "ivan")
		config.Impersonate = who
		return s.Kubernetes(t, config)
	}
	review := func(client kubernetes.Interface) (*authenticationv1.SelfSubjectReview, error) {
		return client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	}
	eventually(t, "impersonating a user", func(context.Context) error {
		got, err := review(as(s.a.cluster, rest.ImpersonationConfig{UserName: "zoe", Groups: []string{"friends"}}))
		if err != nil {
			return err
		}
		info := got.Status.UserInfo
		if info.Username != "zoe" || !slices.Contains(info.Groups, "friends") || !slices.Equal(info.Extra["authentication.kcp.io/scopes"], []string{"cluster:" + s.a.cluster}) {
			return fmt.Errorf("got %+v", info)
		}
		return nil
	})
	for what, who := range map[string]rest.ImpersonationConfig{
		"masters":               {UserName: "zoe", Groups: []string{"system:masters"}},
		"the admins' group":     {UserName: "zoe", Groups: []string{"system:kcp:admin"}},
		"managers of the shard": {UserName: "zoe", Groups: []string{"system:kcp:logical-cluster-admin"}},
		"a warrant of admins":   {UserName: "zoe", Extra: map[string][]string{"authorization.kcp.io/warrant": {`{"user":"x","groups":["system:kcp:admin"]}`}}},
	} {
		if _, err := review(as(s.a.cluster, who)); !apierrors.IsForbidden(err) {
			t.Errorf("%s: got %v, want Forbidden", what, err)
		}
	}
	if _, err := currentWorkspace(t.Context(), as(s.b.cluster, rest.ImpersonationConfig{UserName: "zoe"})); !apierrors.IsForbidden(err) {
		t.Errorf("in a workspace where ivan has no permissions and zoe all: got %v, want Forbidden", err)
	}
	if got, err := currentWorkspace(t.Context(), as(s.a.cluster, rest.ImpersonationConfig{UserName: "system:serviceaccount:default:robot"})); err != nil || got != "a" {
		t.Errorf("a service account of the workspace: got %q, %v", got, err)
	}
}
