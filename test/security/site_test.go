package security_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/atoll-dev/atoll/proxy"
	proxyoptions "github.com/atoll-dev/atoll/proxy/options"
	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// treasure is what nobody but the people of workspace b may see.
const treasure = "the-treasure-of-b"

const (
	proxyName       = "front-proxy"
	configMapsOfNS  = "/api/v1/namespaces/default/configmaps"
	treasurePath    = configMapsOfNS + "/treasure"
	jsonType        = "application/json"
	mergePatchType  = "application/merge-patch+json"
	applyPatchType  = "application/apply-patch+yaml"
	workspacesPath  = "/apis/tenancy.kcp.io/v1alpha1/workspaces"
	typesPath       = "/apis/tenancy.kcp.io/v1alpha1/workspacetypes"
	ownClusterPath  = "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster"
	clusterRoles    = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
	clusterBindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
)

// site is a shard with a front proxy, two workspaces that hold objects of equal names, and people.
type site struct {
	*shardtesting.Shard
	shard, proxy     string // base URLs
	clients, proxies *shardtesting.CA
	roots            *x509.CertPool
	a, b             string // names of logical clusters

	anonymous, stranger, admin, robot, owner, masters *person
}

// person is somebody with a credential, at the shard or at the proxy.
type person struct {
	name   string
	token  string
	client *http.Client
}

// start brings the site up. alice is administrator of a, bob of b, mallory has no rights, robot is a service account of a.
func start(t *testing.T) *site {
	t.Helper()
	s := &site{clients: shardtesting.NewCA(t, "clients"), proxies: shardtesting.NewCA(t, "proxies")}
	s.Shard = shardtesting.Start(t, func(o *options.Options) {
		o.FeatureGates = []string{"WorkspaceAuthentication=true", "WorkspaceMounts=true"}
		o.Authentication.ClientCert.ClientCA = s.clients.CertFile
		headers := o.Authentication.RequestHeader
		headers.ClientCAFile, headers.AllowedNames = s.proxies.CertFile, []string{proxyName}
		headers.UsernameHeaders, headers.GroupHeaders, headers.ExtraHeaderPrefixes = []string{"X-Remote-User"}, []string{"X-Remote-Group"}, []string{"X-Remote-Extra-"}
	})
	s.shard = s.Admin(t).Host
	s.roots = x509.NewCertPool()
	s.roots.AppendCertsFromPEM(s.Admin(t).CAData)

	s.a, s.b = s.workspace(t, "a", "alice"), s.workspace(t, "b", "bob")
	s.anonymous = s.person(t, "anonymous", nil)
	s.stranger, s.admin, s.owner = s.withCertificate(t, "mallory"), s.withCertificate(t, "alice"), s.withCertificate(t, "bob")
	s.masters = s.withCertificate(t, "root", "system:masters")
	s.robot = s.account(t)
	s.privateType(t)
	s.startProxy(t)
	return s
}

// workspace creates one below root with an administrator, and puts objects of the same names into it.
func (s *site) workspace(t *testing.T, name, administrator string) string {
	t.Helper()
	cluster := s.NewWorkspace(t, "root", name).Spec.Cluster
	c := s.in(t, cluster)
	_, err := c.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "administrator"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: administrator}},
	}, metav1.CreateOptions{})
	must(t, err)
	content := map[string]string{"content": "plain"}
	if name == "b" {
		content["content"] = treasure
	}
	_, err = c.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "treasure"}, Data: content}, metav1.CreateOptions{})
	must(t, err)
	_, err = c.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "treasure"}, StringData: content}, metav1.CreateOptions{})
	must(t, err)
	_, err = c.CoreV1().ServiceAccounts("default").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{})
	must(t, err)
	return cluster
}

// in returns a client of kcp's administrator in a logical cluster.
func (s *site) in(t *testing.T, cluster string) kubernetes.Interface {
	return s.Kubernetes(t, shardtesting.At(s.Admin(t), cluster))
}

// account returns the service account of a that may do everything there.
func (s *site) account(t *testing.T) *person {
	t.Helper()
	c := s.in(t, s.a)
	_, err := c.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "robot"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "robot"}},
	}, metav1.CreateOptions{})
	must(t, err)
	request, err := c.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "robot", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	must(t, err)
	p := s.person(t, "service account of a", nil)
	p.token = request.Status.Token
	return p
}

// overHTTP1 returns the same person on connections of HTTP/1.1.
func (p *person) overHTTP1(t *testing.T) *person {
	transport := p.client.Transport.(*http.Transport).Clone()
	transport.ForceAttemptHTTP2 = false
	transport.TLSClientConfig.NextProtos = []string{"http/1.1"}
	transport.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	t.Cleanup(transport.CloseIdleConnections)
	client := *p.client
	client.Transport = transport
	return &person{name: p.name, token: p.token, client: &client}
}

// privateType makes a workspace type in b that bob, and whoever comes from the logical cluster "partner", may use.
func (s *site) privateType(t *testing.T) {
	t.Helper()
	for path, body := range map[string]string{
		typesPath:    `{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"WorkspaceType","metadata":{"name":"private"},"spec":{}}`,
		clusterRoles: `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"use-private"},"rules":[{"apiGroups":["tenancy.kcp.io"],"resources":["workspacetypes"],"resourceNames":["private"],"verbs":["use"]}]}`,
		clusterBindings: `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"use-private"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"use-private"},"subjects":[
			{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"bob"},
			{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"system:kcp:serviceaccount:partner:default:robot"},
			{"kind":"Group","apiGroup":"rbac.authorization.k8s.io","name":"system:cluster:partner"}]}`,
	} {
		if got := s.do(t, s.masters, s.b, request{method: http.MethodPost, path: path, body: body}); got.status != http.StatusCreated {
			t.Fatalf("%s: %d %s", path, got.status, got.body)
		}
	}
}

// eventually polls as somebody until the answer has the status: permissions show with the delay of a watch.
func (s *site) eventually(t *testing.T, as *person, cluster, path string, status int) {
	t.Helper()
	shardtesting.Eventually(t, fmt.Sprintf("%s gets %d for %s", as.name, status, path), func(context.Context) error {
		if got := s.do(t, as, cluster, request{path: path}); got.status != status {
			return fmt.Errorf("%d %s", got.status, got.body)
		}
		return nil
	})
}

func (s *site) person(t *testing.T, name string, pair *tls.Certificate) *person {
	config := &tls.Config{RootCAs: s.roots}
	if pair != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair, nil }
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &person{name: name, client: &http.Client{
		Transport: transport, Timeout: 20 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func (s *site) withCertificate(t *testing.T, name string, groups ...string) *person {
	t.Helper()
	pair := loadPair(t, s.clients, name, groups...)
	return s.person(t, name, &pair)
}

func loadPair(t *testing.T, ca *shardtesting.CA, name string, groups ...string) tls.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(ca.Issue(t, name, groups...))
	must(t, err)
	return pair
}

// startProxy puts a front proxy in front of the shard, with certificates as the operator makes them.
func (s *site) startProxy(t *testing.T) {
	t.Helper()
	directory := t.TempDir()
	file := func(name string, content []byte) string {
		path := filepath.Join(directory, name)
		must(t, os.WriteFile(path, content, 0o600))
		return path
	}
	shardCA := file("shard-ca.crt", s.Admin(t).CAData)
	headerCert, headerKey := s.proxies.Issue(t, proxyName)
	mapping := fmt.Sprintf("- {path: /clusters/, backend: %q, backend_server_ca: %q, proxy_client_cert: %q, proxy_client_key: %q}\n", s.shard, shardCA, headerCert, headerKey)
	adminCert, adminKey := s.clients.Issue(t, "proxy-admin", "system:masters")
	kubeconfig := filepath.Join(directory, "kubeconfig")
	must(t, clientcmd.WriteToFile(clientcmdapi.Config{
		CurrentContext: "c",
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: s.shard, CertificateAuthority: shardCA}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {ClientCertificate: adminCert, ClientKey: adminKey}},
		Contexts:       map[string]*clientcmdapi.Context{"c": {Cluster: "c", AuthInfo: "u"}},
	}, kubeconfig))

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	servers := shardtesting.NewCA(t, "servers")
	trusted, err := os.ReadFile(servers.CertFile)
	must(t, err)
	s.roots.AppendCertsFromPEM(trusted)
	o := proxyoptions.New()
	o.SecureServing.Listener, o.SecureServing.BindPort = listener, listener.Addr().(*net.TCPAddr).Port
	o.SecureServing.ServerCert.CertKey.CertFile, o.SecureServing.ServerCert.CertKey.KeyFile = servers.Issue(t, "proxy")
	o.RootDirectory, o.MappingFile, o.RootKubeconfig, o.ShardsKubeconfig = directory, file("mapping.yaml", []byte(mapping)), kubeconfig, kubeconfig
	o.Authentication.ClientCert.ClientCA = s.clients.CertFile
	o.ShutdownTimeout = time.Second
	o.FeatureGates["WorkspaceAuthentication"], o.FeatureGates["WorkspaceMounts"] = true, true
	completed, err := o.Complete()
	must(t, err)
	config, err := proxy.NewConfig(completed)
	must(t, err)
	complete, err := config.Complete()
	must(t, err)
	server, err := proxy.NewServer(complete)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the proxy ended with %v", err)
		}
	})
	s.proxy = "https://" + listener.Addr().String()
	shardtesting.Eventually(t, "the proxy leads to a and b", func(context.Context) error {
		for _, cluster := range []string{s.a, s.b} {
			if got := s.try(t, s.masters, s.proxy, request{path: "/clusters/" + cluster + "/version"}); strings.Contains(got.body, "workspace access not permitted") || got.status == 0 {
				return fmt.Errorf("%s: %d %s", cluster, got.status, got.body)
			}
		}
		return nil
	})
}

// request is one request. The path goes out byte by byte as it is.
type request struct {
	method, path, body, contentType string
	header                          http.Header
}

type answer struct {
	status int
	header http.Header
	body   string
}

func (a answer) object(t *testing.T) map[string]any {
	t.Helper()
	var object map[string]any
	if err := json.Unmarshal([]byte(a.body), &object); err != nil {
		t.Fatalf("%d %s: %v", a.status, a.body, err)
	}
	return object
}

// try sends a request. A request that did not get an answer has status 0.
func (s *site) try(t *testing.T, as *person, base string, r request) answer {
	t.Helper()
	at, err := url.Parse(base)
	must(t, err)
	if r.method == "" {
		r.method = http.MethodGet
	}
	req := (&http.Request{
		Method: r.method, URL: &url.URL{Scheme: at.Scheme, Host: at.Host, Opaque: r.path}, Host: at.Host,
		Header: http.Header{"Accept": {jsonType}}, Body: io.NopCloser(strings.NewReader(r.body)), ContentLength: int64(len(r.body)),
	}).WithContext(t.Context())
	if r.body == "" {
		req.Body = http.NoBody
	} else if r.contentType == "" {
		r.contentType = jsonType
	}
	if r.contentType != "" {
		req.Header.Set("Content-Type", r.contentType)
	}
	if as.token != "" {
		req.Header.Set("Authorization", "Bearer "+as.token)
	}
	for name, values := range r.header {
		req.Header[name] = values
	}
	res, err := as.client.Do(req)
	if err != nil {
		return answer{body: err.Error()}
	}
	defer res.Body.Close()
	var body bytes.Buffer
	if _, err := body.ReadFrom(res.Body); err != nil {
		return answer{body: err.Error()}
	}
	return answer{res.StatusCode, res.Header, body.String()}
}

// do is try at the shard, and fails the test without an answer.
func (s *site) do(t *testing.T, as *person, cluster string, r request) answer {
	t.Helper()
	r.path = "/clusters/" + cluster + r.path
	got := s.try(t, as, s.shard, r)
	if got.status == 0 {
		t.Fatalf("%s %s: %s", r.method, r.path, got.body)
	}
	return got
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
