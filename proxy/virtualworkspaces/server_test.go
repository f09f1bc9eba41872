package virtualworkspaces_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	unread "github.com/atoll-dev/atoll/internal/writetimeout/testing"
	"github.com/atoll-dev/atoll/proxy/inflight"
	"github.com/atoll-dev/atoll/proxy/virtualworkspaces"
	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

const (
	proxyName = "kcp-front-proxy"
	// watchLimit is the number of concurrent watches of a user.
	watchLimit = 3
)

// env is a shard and a server of its virtual workspaces.
type env struct {
	*testing.T
	shard                     *shardtesting.Shard
	masters                   client.Client
	clients, proxies, servers *shardtesting.CA
	address, provider         string
	consumer                  string
	audit                     string
	stop                      func()
}

func newEnv(t *testing.T) *env {
	s := &env{T: t, clients: shardtesting.NewCA(t, "clients"), proxies: shardtesting.NewCA(t, "proxies"), servers: shardtesting.NewCA(t, "servers")}
	s.shard = shardtesting.Start(t, func(o *options.Options) {
		o.Authentication.ClientCert.ClientCA = s.clients.CertFile
		o.RunVirtualWorkspaces = false
		o.Shard.VirtualWorkspaceURL = "https://vw.example:6444"
	})
	s.masters = s.shard.Client(t, s.shard.Masters(t))
	s.provider = s.shard.NewWorkspace(t, "root", "provider").Spec.Cluster
	s.consumer = s.shard.NewWorkspace(t, "root", "consumer").Spec.Cluster
	s.shard.NewExport(t, s.provider, "widgets", schema.GroupResource{Group: "example.com", Resource: "widgets"}, "Widget")
	s.shard.Bind(t, s.consumer, s.provider, "widgets")
	in := shardtesting.In(t.Context(), s.provider)
	for _, object := range []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "content"}, Rules: []rbacv1.PolicyRule{
			{Verbs: []string{"*"}, APIGroups: []string{"apis.kcp.io"}, Resources: []string{"apiexports/content"}},
			{Verbs: []string{"access"}, NonResourceURLs: []string{"/"}},
		}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "content"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "content"}, Subjects: []rbacv1.Subject{
			{APIGroup: rbacv1.GroupName, Kind: "User", Name: "alice"},
			{Kind: "ServiceAccount", Namespace: "default", Name: "controller"},
		}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "controller"}},
	} {
		if err := s.masters.Create(in, object); err != nil {
			t.Fatal(err)
		}
	}
	s.start()
	return s
}

// start runs the server as its binary does.
func (e *env) start() {
	e.Helper()
	o := virtualworkspaces.NewOptions()
	o.Kubeconfig = e.kubeconfig()
	o.SecureServing.ServerCert.CertKey.CertFile, o.SecureServing.ServerCert.CertKey.KeyFile = e.servers.Issue(e.T, "virtual-workspaces")
	o.ClientCert.ClientCA = e.clients.CertFile
	o.RequestHeader.ClientCAFile, o.RequestHeader.AllowedNames = e.proxies.CertFile, []string{proxyName}
	o.ShutdownTimeout = 10 * time.Second
	o.InFlight = inflight.Limits{Requests: 10, Watches: watchLimit}
	e.audit = filepath.Join(e.TempDir(), "audit.log")
	o.Audit.LogOptions.Path = e.audit
	o.Audit.PolicyFile = filepath.Join(e.TempDir(), "policy.yaml")
	if err := os.WriteFile(o.Audit.PolicyFile, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"), 0o600); err != nil {
		e.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		e.Fatal(err)
	}
	o.SecureServing.Listener, o.SecureServing.BindPort = listener, listener.Addr().(*net.TCPAddr).Port
	e.address = "https://" + listener.Addr().String()
	server, err := virtualworkspaces.New(o)
	if err != nil {
		e.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	stopped := false
	e.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			e.Errorf("the server ended with %v", err)
		}
	}
	e.Cleanup(e.stop)
}

// kubeconfig has credentials in group system:masters, and a server URL with a path, which is ignored.
func (e *env) kubeconfig() string {
	e.Helper()
	masters := e.shard.Masters(e.T)
	cert, key := e.clients.Issue(e.T, "virtual-workspace", "system:masters")
	file := filepath.Join(e.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(clientcmdapi.Config{
		CurrentContext: "c",
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: masters.Host + "/clusters/root", CertificateAuthorityData: masters.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {ClientCertificate: cert, ClientKey: key}},
		Contexts:       map[string]*clientcmdapi.Context{"c": {Cluster: "c", AuthInfo: "u"}},
	}, file); err != nil {
		e.Fatal(err)
	}
	return file
}

// anonymous returns a client configuration without credentials.
func (e *env) anonymous() *rest.Config {
	return &rest.Config{Host: e.address, TLSClientConfig: rest.TLSClientConfig{CAFile: e.servers.CertFile}, QPS: -1}
}

func (e *env) user(name string, groups ...string) *rest.Config {
	e.Helper()
	return e.clients.Client(e.T, e.anonymous(), name, groups...)
}

func (e *env) token(token string) *rest.Config {
	config := e.anonymous()
	config.BearerToken = token
	return config
}

func (e *env) get(config *rest.Config, path string, headers ...string) (int, string) {
	e.Helper()
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		e.Fatal(err)
	}
	defer httpClient.CloseIdleConnections()
	req, err := http.NewRequestWithContext(e.Context(), http.MethodGet, config.Host+path, nil)
	if err != nil {
		e.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header[headers[i]] = append(req.Header[headers[i]], headers[i+1])
	}
	res, err := httpClient.Do(req)
	if err != nil {
		e.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		e.Fatal(err)
	}
	return res.StatusCode, string(body)
}

func TestServer(t *testing.T) {
	s := newEnv(t)
	wildcardPath := "/services/apiexport/" + s.provider + "/widgets/clusters/*/apis/example.com/v1/widgets"
	consumerPath := strings.Replace(wildcardPath, "*", s.consumer, 1)
	controller := &authenticationv1.TokenRequest{}
	in := shardtesting.In(t.Context(), s.provider)
	if err := s.masters.SubResource("token").Create(in, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "controller"}}, controller); err != nil {
		t.Fatal(err)
	}
	frontProxy := s.proxies.Client(t, s.anonymous(), proxyName)
	otherProxy := s.proxies.Client(t, s.anonymous(), "other-proxy")
	alice, mallory := s.user("alice"), s.user("mallory", "system:masters", "system:kcp:logical-cluster-admin")
	account := s.token(controller.Status.Token)
	admin := s.token(s.shard.Admin(t).BearerToken)

	for name, tc := range map[string]struct {
		config  *rest.Config
		path    string
		headers []string
		want    int
	}{
		"a certificate authenticates a user":                            {alice, wildcardPath, nil, http.StatusOK},
		"also for one consumer":                                         {alice, consumerPath, nil, http.StatusOK},
		"another user is forbidden":                                     {s.user("bob"), wildcardPath, nil, http.StatusForbidden},
		"the view of a sync agent":                                      {admin, "/services/syncer/" + s.provider + ":widgets/clusters/*/apis", nil, http.StatusOK},
		"the admin workspace":                                           {admin, "/services/admin/apis/core.kcp.io/v1alpha1/shards", nil, http.StatusOK},
		"the admin workspace is for members":                            {alice, "/services/admin/apis/core.kcp.io/v1alpha1/shards", nil, http.StatusForbidden},
		"the view of a sync agent needs another permission":             {alice, "/services/syncer/" + s.provider + ":widgets/clusters/*/apis", nil, http.StatusForbidden},
		"groups of masters in a certificate are dropped":                {mallory, wildcardPath, nil, http.StatusForbidden},
		"identity headers of a client are ignored":                      {s.user("bob"), wildcardPath, []string{"X-Remote-User", "alice", "X-Remote-Group", "system:masters"}, http.StatusForbidden},
		"also in another spelling":                                      {s.user("bob"), wildcardPath, []string{"x_remote_user", "alice", "X_remote_group", "system:masters"}, http.StatusForbidden},
		"impersonation is forbidden":                                    {alice, wildcardPath, []string{"Impersonate-User", "root"}, http.StatusForbidden},
		"also in another spelling of its headers":                       {alice, wildcardPath, []string{"impersonate_uid", "1"}, http.StatusForbidden},
		"also of a group only":                                          {alice, wildcardPath, []string{"Impersonate-Group", "system:masters"}, http.StatusForbidden},
		"the front proxy authenticates users":                           {frontProxy, wildcardPath, []string{"X-Remote-User", "alice", "X-Remote-Group", "system:authenticated"}, http.StatusOK},
		"without groups of masters":                                     {frontProxy, wildcardPath, []string{"X-Remote-User", "mallory", "X-Remote-Group", "system:masters"}, http.StatusForbidden},
		"other clients with a certificate of its CA do not":             {otherProxy, wildcardPath, []string{"X-Remote-User", "alice"}, http.StatusUnauthorized},
		"the front proxy without a user":                                {frontProxy, wildcardPath, nil, http.StatusUnauthorized},
		"service account tokens are verified by the shard":              {account, wildcardPath, nil, http.StatusOK},
		"an invalid token":                                              {s.token("none"), wildcardPath, nil, http.StatusUnauthorized},
		"an invalid token does not use the credentials of the server":   {s.token("none"), "/services/initializingworkspaces/root:universal/clusters/*/apis/core.kcp.io/v1alpha1/logicalclusters", nil, http.StatusUnauthorized},
		"a token is ignored with a certificate":                         {s.user("bob"), wildcardPath, []string{"Authorization", "Bearer " + controller.Status.Token}, http.StatusForbidden},
		"the token of the shard's administrator":                        {admin, wildcardPath, nil, http.StatusOK},
		"an anonymous client":                                           {s.anonymous(), wildcardPath, nil, http.StatusForbidden},
		"an anonymous client with identity headers":                     {s.anonymous(), wildcardPath, []string{"X-Remote-User", "alice", "Impersonate-User", "alice"}, http.StatusForbidden},
		"other paths of the shard":                                      {admin, "/clusters/root/api/v1/namespaces", nil, http.StatusForbidden},
		"other paths after dot segments":                                {admin, "/services/../clusters/root/api/v1/namespaces", nil, http.StatusForbidden},
		"metrics for a user with access in root":                        {admin, "/metrics", nil, http.StatusOK},
		"metrics for another user":                                      {alice, "/metrics", nil, http.StatusForbidden},
		"metrics for an anonymous client":                               {s.anonymous(), "/metrics", nil, http.StatusUnauthorized},
		"metrics for an invalid token":                                  {s.token("none"), "/metrics", nil, http.StatusUnauthorized},
		"metrics for a service account":                                 {account, "/metrics", nil, http.StatusForbidden},
		"metrics for groups of masters in a certificate":                {mallory, "/metrics", nil, http.StatusForbidden},
		"metrics of the shard":                                          {admin, "/services/../metrics", nil, http.StatusForbidden},
		"an unknown virtual workspace":                                  {alice, "/services/nothing", nil, http.StatusForbidden},
		"health":                                                        {s.anonymous(), "/healthz", nil, http.StatusOK},
		"liveness":                                                      {s.anonymous(), "/livez", nil, http.StatusOK},
		"readiness of a virtual workspace":                              {s.anonymous(), "/readyz/apiexport", nil, http.StatusOK},
		"readiness of the shard":                                        {s.anonymous(), "/readyz/shard", nil, http.StatusOK},
		"readiness of a virtual workspace that the shard does not have": {s.anonymous(), "/readyz/replication", nil, http.StatusOK},
		"readiness of all":                                              {s.anonymous(), "/readyz?verbose=1", nil, http.StatusOK},
		"a certificate of another CA":                                   {s.proxies.Client(t, s.anonymous(), "alice"), wildcardPath, nil, http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			s := *s
			s.T = t
			if code, body := s.get(tc.config, tc.path, tc.headers...); code != tc.want {
				t.Errorf("got %d, want %d: %.300s", code, tc.want, body)
			}
		})
	}
	t.Run("the audit log has the user", func(t *testing.T) {
		shardtesting.Eventually(t, "the event", func(context.Context) error {
			log, err := os.ReadFile(s.audit)
			if err == nil && (!strings.Contains(string(log), `"username":"alice"`) || !strings.Contains(string(log), wildcardPath)) {
				err = fmt.Errorf("got %.500s", log)
			}
			return err
		})
	})
	t.Run("a user beyond the limit of watches is refused, and others are served", func(t *testing.T) {
		tlsConfig, err := rest.TLSConfigFor(alice)
		if err != nil {
			t.Fatal(err)
		}
		watches, err := unread.Dial(t.Context(), strings.TrimPrefix(s.address, "https://"), tlsConfig, 0)
		if err != nil {
			t.Fatal(err)
		}
		for range watchLimit + 2 {
			if err := watches.Get(wildcardPath + "?watch=1"); err != nil {
				t.Fatal(err)
			}
		}
		want := map[string]int{"200": watchLimit, "429": 2}
		shardtesting.Eventually(t, "all responses", func(context.Context) error {
			if got := watches.Count().Status; !maps.Equal(got, want) {
				return fmt.Errorf("got %v, want %v", got, want)
			}
			return nil
		})
		const shortWatch = "?watch=1&timeoutSeconds=1"
		s := *s
		s.T = t
		for name, tc := range map[string]struct {
			config *rest.Config
			path   string
			want   int
		}{
			"a watch of the same user":                         {alice, wildcardPath + shortWatch, http.StatusTooManyRequests},
			"a watch of the same user through the front proxy": {frontProxy, wildcardPath + shortWatch, http.StatusTooManyRequests},
			"a list of the same user":                          {alice, wildcardPath, http.StatusOK},
			"a watch of another user":                          {account, wildcardPath + shortWatch, http.StatusOK},
		} {
			if code, body := s.get(tc.config, tc.path, "X-Remote-User", "alice"); code != tc.want {
				t.Errorf("%s: got %d, want %d: %.300s", name, code, tc.want, body)
			}
		}
		watches.Close()
		shardtesting.Eventually(t, "the user to be served again", func(context.Context) error {
			if code, body := s.get(alice, wildcardPath+shortWatch); code != http.StatusOK {
				return fmt.Errorf("got %d: %.300s", code, body)
			}
			return nil
		})
	})
	t.Run("objects and watches are forwarded, and watches end with the server", func(t *testing.T) {
		s := *s
		s.T = t
		httpClient, err := rest.HTTPClientFor(alice)
		if err != nil {
			t.Fatal(err)
		}
		defer httpClient.CloseIdleConnections()
		res, err := httpClient.Get(alice.Host + wildcardPath + "?watch=1")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		widget := strings.NewReader(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"created"}}`)
		created, err := httpClient.Post(alice.Host+strings.Replace(consumerPath, "/v1/widgets", "/v1/namespaces/default/widgets", 1), "application/json", widget)
		if err != nil {
			t.Fatal(err)
		}
		_ = created.Body.Close()
		if created.StatusCode != http.StatusCreated {
			t.Errorf("creating: %s", created.Status)
		}
		event := make([]byte, 64)
		if _, err := io.ReadFull(res.Body, event); err != nil || !strings.Contains(string(event), `"ADDED"`) {
			t.Errorf("the event is %s, %v", event, err)
		}
		s.stop()
		_, _ = io.Copy(io.Discard, res.Body) // returns when the watch has ended, with or without an error
	})
	t.Run("without the shard the server is live and not ready", func(t *testing.T) {
		s := *s
		s.T = t
		s.start()
		if err := s.shard.Stop(); err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]int{"/livez": http.StatusOK, "/readyz": http.StatusInternalServerError, "/readyz/shard": http.StatusInternalServerError} {
			if code, body := s.get(s.anonymous(), path); code != want {
				t.Errorf("%s: got %d, want %d: %.300s", path, code, want, body)
			}
		}
	})
}
