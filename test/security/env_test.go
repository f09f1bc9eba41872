package security_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/loopback"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
	"github.com/atoll-dev/atoll/test/sharded"
)

// confidentialData is data that only users of workspace b may see.
const confidentialData = "confidential-data-of-b"

const (
	proxyName        = "kcp-front-proxy"
	configMapsPath   = "/api/v1/namespaces/default/configmaps"
	confidentialPath = configMapsPath + "/confidential"
	jsonType         = "application/json"
	mergePatchType   = "application/merge-patch+json"
	applyPatchType   = "application/apply-patch+yaml"
	workspacesPath   = "/apis/tenancy.kcp.io/v1alpha1/workspaces"
	typesPath        = "/apis/tenancy.kcp.io/v1alpha1/workspacetypes"
	clustersPath     = "/apis/core.kcp.io/v1alpha1/logicalclusters"
	ownClusterPath   = clustersPath + "/cluster"
	clusterRoles     = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
	clusterBindings  = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
)

// placement names the shards of a and of b. Neither is the root shard.
type placement struct{ a, b string }

var (
	// sameShard lets a and b share memory, storage and queues. In differentShards, the shards depend on each other's
	// data.
	sameShard       = placement{installation.Alpha, installation.Alpha}
	differentShards = placement{installation.Alpha, installation.Beta}
)

// env is an installation of three shards with two workspaces that hold objects of equal names, and users.
type env struct {
	placement
	directory string
	layout    *sharded.Layout
	shards    map[string]*shardtesting.Shard // by name
	ca        []byte                         // of all servers, PEM
	roots     *x509.CertPool
	// shardURL is the base URL of the shard of a; proxy and cache are those of the other servers.
	shardURL, proxyURL, cacheURL string
	a, b                         string // names of logical clusters
	shardURLs                    sync.Map

	// kcpAdmin is a client of the kcp administrator that sends requests to the shard of the logical cluster in the
	// context.
	kcpAdmin client.Client

	anonymous, unrelatedUser, adminA, serviceAccount, adminB, masters *testUser
}

// newEnv starts the installation. alice is administrator of a, bob of b, mallory has no permissions, builder is a
// service account of a.
func newEnv(t *testing.T, where placement) *env {
	t.Helper()
	return newEnvWith(t, where, sharded.Options{Shards: []string{installation.Root, installation.Alpha, installation.Beta}})
}

// newEnvWith is newEnv for an installation with other options.
func newEnvWith(t *testing.T, where placement, layoutOptions sharded.Options) *env {
	t.Helper()
	s := &env{placement: where}
	s.startServers(t, layoutOptions)
	s.shardURL = s.layout.URL(where.a)
	s.masters = s.newCertificateUser(t, "root", "system:masters")
	s.kcpAdmin = s.newAdminClient(t)
	s.a, s.b = s.createTenantWorkspace(t, "a", "alice", where.a), s.createTenantWorkspace(t, "b", "bob", where.b)
	s.anonymous = s.newUser(t, "anonymous", nil)
	s.unrelatedUser, s.adminA, s.adminB = s.newCertificateUser(t, "mallory"), s.newCertificateUser(t, "alice"), s.newCertificateUser(t, "bob")
	s.serviceAccount = s.newServiceAccountUser(t)
	s.createPrivateType(t)
	shardtesting.Eventually(t, "the proxy routes to a and b", func(context.Context) error {
		for _, cluster := range []string{s.a, s.b} {
			if got := s.send(t, s.masters, s.proxyURL, request{path: "/clusters/" + cluster + "/version"}); strings.Contains(got.body, "workspace access not permitted") || got.status == 0 {
				return fmt.Errorf("%s: %d %s", cluster, got.status, got.body)
			}
		}
		return nil
	})
	return s
}

// serverURLs returns the base URLs at which a tenant may request a logical cluster, whether that server has it or not.
func (e *env) serverURLs() []string {
	all := []string{e.proxyURL}
	for _, name := range e.layout.Shards() {
		all = append(all, e.layout.URL(name))
	}
	return all
}

// workspaceServerURLs returns the URLs of the shards of a and b, and of the proxy.
func (e *env) workspaceServerURLs() []string {
	if e.placement.a == e.placement.b {
		return []string{e.shardURL, e.proxyURL}
	}
	return []string{e.shardURL, e.layout.URL(e.placement.b), e.proxyURL}
}

// remoteLocation returns the part of a workspace specification that places it on the shard of b.
func (e *env) remoteLocation() string {
	return `"location":{"selector":{"matchLabels":{"name":"` + e.placement.b + `"}}}`
}

// serverName returns the name of the server at a base URL.
func (e *env) serverName(base string) string {
	for _, server := range e.layout.Servers {
		if server.URL == base {
			return server.Name
		}
	}
	return base
}

// resolveShardURL returns the base URL of the shard that has a logical cluster, or of the shard of a if none has it.
func (e *env) resolveShardURL(t *testing.T, cluster string) string {
	t.Helper()
	if cluster == "root" {
		return e.layout.URL(installation.Root)
	}
	if at, known := e.shardURLs.Load(cluster); known {
		return at.(string)
	}
	if strings.Trim(cluster, "abcdefghijklmnopqrstuvwxyz0123456789") != "" { // not a generated name
		return e.shardURL
	}
	for _, name := range e.layout.Shards() {
		if got := e.send(t, e.masters, e.layout.URL(name), request{path: "/clusters/" + cluster + ownClusterPath}); got.status == http.StatusOK {
			e.shardURLs.Store(cluster, e.layout.URL(name))
			return e.layout.URL(name)
		}
	}
	return e.shardURL
}

// router sends requests to the shards of their logical clusters.
type router struct {
	env  *env
	t    *testing.T
	next http.RoundTripper
}

func (r router) RoundTrip(req *http.Request) (*http.Response, error) {
	cluster, _, _ := strings.Cut(strings.TrimPrefix(req.URL.Path, "/clusters/"), "/")
	req = req.Clone(req.Context())
	req.URL.Host = strings.TrimPrefix(r.env.resolveShardURL(r.t, cluster), "https://")
	req.Host = req.URL.Host
	return r.next.RoundTrip(req)
}

func (e *env) adminConfig(t *testing.T) *rest.Config {
	t.Helper()
	config, err := e.layout.Client(e.layout.URL(installation.Root), "kcp-admin", "system:kcp:admin")
	must(t, err)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return router{e, t, next} })
	return config
}

func (e *env) newAdminClient(t *testing.T) client.Client {
	t.Helper()
	c, err := loopback.NewClient(e.adminConfig(t))
	must(t, err)
	return c
}

// NewWorkspace, NewExport and Bind wrap those of package testing, as the kcp administrator at the shard of the logical
// cluster.
func (e *env) NewWorkspace(t *testing.T, parent, name, shard string) *tenancyv1alpha1.Workspace {
	t.Helper()
	return shardtesting.NewWorkspace(t, e.kcpAdmin, parent, name, shardtesting.OnShard(shard))
}

func (e *env) NewExport(t *testing.T, cluster, name string, gr schema.GroupResource, kind string, changes ...func(*apisv1alpha2.APIExport)) *apisv1alpha2.APIExport {
	t.Helper()
	return shardtesting.NewExport(t, e.kcpAdmin, cluster, name, gr, kind, changes...)
}

func (e *env) Bind(t *testing.T, cluster, exportCluster, exportName string, changes ...func(*apisv1alpha2.APIBinding)) *apisv1alpha2.APIBinding {
	t.Helper()
	var dryRun apisv1alpha2.APIBinding // exports of other shards are replicated with a delay
	dryRun.Name, dryRun.Spec.Reference.Export = exportName, &apisv1alpha2.ExportBindingReference{Path: exportCluster, Name: exportName}
	shardtesting.Eventually(t, "export "+exportName+" can be bound in "+cluster, func(ctx context.Context) error {
		return e.kcpAdmin.Create(shardtesting.In(ctx, cluster), dryRun.DeepCopy(), client.DryRunAll)
	})
	return shardtesting.Bind(t, e.kcpAdmin, cluster, exportCluster, exportName, changes...)
}

// createTenantWorkspace creates a workspace below root with an administrator, and creates objects of fixed names in it.
func (e *env) createTenantWorkspace(t *testing.T, name, administrator, shard string) string {
	t.Helper()
	cluster := e.NewWorkspace(t, "root", name, shard).Spec.Cluster
	c := e.clientset(t, cluster)
	_, err := c.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "administrator"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: administrator}},
	}, metav1.CreateOptions{})
	must(t, err)
	content := map[string]string{"content": "plain"}
	if name == "b" {
		content["content"] = confidentialData
	}
	_, err = c.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "confidential"}, Data: content}, metav1.CreateOptions{})
	must(t, err)
	_, err = c.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "confidential"}, StringData: content}, metav1.CreateOptions{})
	must(t, err)
	_, err = c.CoreV1().ServiceAccounts("default").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "builder"}}, metav1.CreateOptions{})
	must(t, err)
	return cluster
}

// clientset returns a client of the kcp administrator in a logical cluster.
func (e *env) clientset(t *testing.T, cluster string) kubernetes.Interface {
	t.Helper()
	clientset, err := kubernetes.NewForConfig(shardtesting.At(e.adminConfig(t), cluster))
	must(t, err)
	return clientset
}

// testUser is a user with a credential, at the shard or at the proxy.
type testUser struct {
	name   string
	token  string
	client *http.Client
}

// newServiceAccountUser returns the service account that has all permissions in a.
func (e *env) newServiceAccountUser(t *testing.T) *testUser {
	t.Helper()
	c := e.clientset(t, e.a)
	_, err := c.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "builder"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "builder"}},
	}, metav1.CreateOptions{})
	must(t, err)
	request, err := c.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "builder", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	must(t, err)
	p := e.newUser(t, "service account of a", nil)
	p.token = request.Status.Token
	return p
}

// withHTTP1 returns the same user on HTTP/1.1 connections.
func (tu *testUser) withHTTP1(t *testing.T) *testUser {
	transport := tu.client.Transport.(*http.Transport).Clone()
	transport.ForceAttemptHTTP2 = false
	transport.TLSClientConfig.NextProtos = []string{"http/1.1"}
	transport.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	t.Cleanup(transport.CloseIdleConnections)
	client := *tu.client
	client.Transport = transport
	return &testUser{name: tu.name, token: tu.token, client: &client}
}

// createPrivateType creates a workspace type in b that bob, and users of the logical cluster "partner", may use. Its
// workspaces have a binding with lifecycle Maintain to an API of b that no other user may bind.
func (e *env) createPrivateType(t *testing.T) {
	t.Helper()
	e.NewExport(t, e.b, "inner", schema.GroupResource{Group: "inner.example.com", Resource: "notes"}, "Note")
	for path, body := range map[string]string{
		typesPath:    `{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"WorkspaceType","metadata":{"name":"private"},"spec":{"defaultAPIBindings":[{"path":"root:b","export":"inner"}],"defaultAPIBindingLifecycle":"Maintain"}}`,
		clusterRoles: `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"use-private"},"rules":[{"apiGroups":["tenancy.kcp.io"],"resources":["workspacetypes"],"resourceNames":["private"],"verbs":["use"]}]}`,
		clusterBindings: `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"use-private"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"use-private"},"subjects":[
			{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"bob"},
			{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"system:kcp:serviceaccount:partner:default:builder"},
			{"kind":"Group","apiGroup":"rbac.authorization.k8s.io","name":"system:cluster:partner"}]}`,
	} {
		if got := e.do(t, e.masters, e.b, request{method: http.MethodPost, path: path, body: body}); got.status != http.StatusCreated {
			t.Fatalf("%s: %d %s", path, got.status, got.body)
		}
	}
}

// waitForStatus polls as a user until the response has the status: permissions take effect with the delay of a watch.
func (e *env) waitForStatus(t *testing.T, caller *testUser, cluster, path string, status int) {
	t.Helper()
	shardtesting.Eventually(t, fmt.Sprintf("%s gets %d for %s", caller.name, status, path), func(context.Context) error {
		if got := e.do(t, caller, cluster, request{path: path}); got.status != status {
			return fmt.Errorf("%d %s", got.status, got.body)
		}
		return nil
	})
}

func (e *env) newUser(t *testing.T, name string, pair *tls.Certificate) *testUser {
	config := &tls.Config{RootCAs: e.roots}
	if pair != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair, nil }
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &testUser{name: name, client: &http.Client{
		Transport: transport, Timeout: 20 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func (e *env) newCertificateUser(t *testing.T, name string, groups ...string) *testUser {
	t.Helper()
	pair := e.clientCertificate(t, name, groups...)
	return e.newUser(t, name, &pair)
}

// clientCertificate returns a client certificate for a user.
func (e *env) clientCertificate(t *testing.T, name string, groups ...string) tls.Certificate {
	t.Helper()
	config, err := e.layout.Client("", name, groups...)
	must(t, err)
	return loadCertificate(t, config.CertFile, config.KeyFile)
}

// proxyCertificate returns a client certificate of the certificate authority of front proxies.
func (e *env) proxyCertificate(t *testing.T, name string) tls.Certificate {
	t.Helper()
	pair, err := e.layout.ProxyCertificate(name)
	must(t, err)
	return loadCertificate(t, pair.CertFile, pair.KeyFile)
}

func loadCertificate(t *testing.T, cert, key string) tls.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(cert, key)
	must(t, err)
	return pair
}
