package virtualworkspaces_test

import (
	"context"
	"fmt"
	"io"
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

	"github.com/atoll-dev/atoll/proxy/virtualworkspaces"
	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

const proxyName = "kcp-front-proxy"

// site is a shard with a server of its virtual workspaces in front.
type site struct {
	*testing.T
	shard                     *shardtesting.Shard
	masters                   client.Client
	clients, proxies, servers *shardtesting.CA
	address, provider         string
	consumer                  string
	audit                     string
	stop                      func()
}

func newSite(t *testing.T) *site {
	s := &site{T: t, clients: shardtesting.NewCA(t, "clients"), proxies: shardtesting.NewCA(t, "proxies"), servers: shardtesting.NewCA(t, "servers")}
	s.shard = shardtesting.Start(t, func(o *options.Options) {
		o.Authentication.ClientCert.ClientCA = s.clients.CertFile
		o.RunVirtualWorkspaces = false
		o.Shard.VirtualWorkspaceURL = "https://views.example:6444"
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

// start runs the server as its binary would.
func (s *site) start() {
	s.Helper()
	o := virtualworkspaces.NewOptions()
	o.Kubeconfig = s.kubeconfig()
	o.SecureServing.ServerCert.CertKey.CertFile, o.SecureServing.ServerCert.CertKey.KeyFile = s.servers.Issue(s.T, "views")
	o.ClientCert.ClientCA = s.clients.CertFile
	o.RequestHeader.ClientCAFile, o.RequestHeader.AllowedNames = s.proxies.CertFile, []string{proxyName}
	o.ShutdownTimeout = 10 * time.Second
	s.audit = filepath.Join(s.TempDir(), "audit.log")
	o.Audit.LogOptions.Path = s.audit
	o.Audit.PolicyFile = filepath.Join(s.TempDir(), "policy.yaml")
	if err := os.WriteFile(o.Audit.PolicyFile, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"), 0o600); err != nil {
		s.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.Fatal(err)
	}
	o.SecureServing.Listener, o.SecureServing.BindPort = listener, listener.Addr().(*net.TCPAddr).Port
	s.address = "https://" + listener.Addr().String()
	server, err := virtualworkspaces.New(o)
	if err != nil {
		s.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	stopped := false
	s.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			s.Errorf("the server ended with %v", err)
		}
	}
	s.Cleanup(s.stop)
}

// kubeconfig is one of masters at the shard, with a path that does not matter.
func (s *site) kubeconfig() string {
	s.Helper()
	masters := s.shard.Masters(s.T)
	cert, key := s.clients.Issue(s.T, "virtual-workspace", "system:masters")
	file := filepath.Join(s.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(clientcmdapi.Config{
		CurrentContext: "c",
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: masters.Host + "/clusters/root", CertificateAuthorityData: masters.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {ClientCertificate: cert, ClientKey: key}},
		Contexts:       map[string]*clientcmdapi.Context{"c": {Cluster: "c", AuthInfo: "u"}},
	}, file); err != nil {
		s.Fatal(err)
	}
	return file
}

// bare is a client without credentials.
func (s *site) bare() *rest.Config {
	return &rest.Config{Host: s.address, TLSClientConfig: rest.TLSClientConfig{CAFile: s.servers.CertFile}, QPS: -1}
}

func (s *site) user(name string, groups ...string) *rest.Config {
	s.Helper()
	return s.clients.Client(s.T, s.bare(), name, groups...)
}

func (s *site) token(token string) *rest.Config {
	config := s.bare()
	config.BearerToken = token
	return config
}

func (s *site) get(config *rest.Config, path string, headers ...string) (int, string) {
	s.Helper()
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		s.Fatal(err)
	}
	defer httpClient.CloseIdleConnections()
	req, err := http.NewRequestWithContext(s.Context(), http.MethodGet, config.Host+path, nil)
	if err != nil {
		s.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header[headers[i]] = append(req.Header[headers[i]], headers[i+1])
	}
	answer, err := httpClient.Do(req)
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		s.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

func TestTheServerOfVirtualWorkspaces(t *testing.T) {
	s := newSite(t)
	view := "/services/apiexport/" + s.provider + "/widgets/clusters/*/apis/example.com/v1/widgets"
	here := strings.Replace(view, "*", s.consumer, 1)
	controller := &authenticationv1.TokenRequest{}
	in := shardtesting.In(t.Context(), s.provider)
	if err := s.masters.SubResource("token").Create(in, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "controller"}}, controller); err != nil {
		t.Fatal(err)
	}
	front := s.proxies.Client(t, s.bare(), proxyName)
	notFront := s.proxies.Client(t, s.bare(), "somebody")
	alice, mallory := s.user("alice"), s.user("mallory", "system:masters", "system:kcp:logical-cluster-admin")
	account := s.token(controller.Status.Token)
	admin := s.token(s.shard.Admin(t).BearerToken)

	for name, tc := range map[string]struct {
		config  *rest.Config
		path    string
		headers []string
		want    int
	}{
		"a certificate names a user":                                  {alice, view, nil, http.StatusOK},
		"in one consumer":                                             {alice, here, nil, http.StatusOK},
		"and nobody else":                                             {s.user("bob"), view, nil, http.StatusForbidden},
		"certificates make nobody a master":                           {mallory, view, nil, http.StatusForbidden},
		"what a client says of itself does not count":                 {s.user("bob"), view, []string{"X-Remote-User", "alice", "X-Remote-Group", "system:masters"}, http.StatusForbidden},
		"nor in another spelling":                                     {s.user("bob"), view, []string{"x_remote_user", "alice", "X_remote_group", "system:masters"}, http.StatusForbidden},
		"nobody becomes somebody else":                                {alice, view, []string{"Impersonate-User", "root"}, http.StatusForbidden},
		"nor by another spelling":                                     {alice, view, []string{"impersonate_uid", "1"}, http.StatusForbidden},
		"nor by its group alone":                                      {alice, view, []string{"Impersonate-Group", "system:masters"}, http.StatusForbidden},
		"a proxy in front names users":                                {front, view, []string{"X-Remote-User", "alice", "X-Remote-Group", "system:authenticated"}, http.StatusOK},
		"without power":                                               {front, view, []string{"X-Remote-User", "mallory", "X-Remote-Group", "system:masters"}, http.StatusForbidden},
		"other servers of its CA do not":                              {notFront, view, []string{"X-Remote-User", "alice"}, http.StatusUnauthorized},
		"a proxy that names nobody is nobody":                         {front, view, nil, http.StatusUnauthorized},
		"tokens of service accounts are the shard's to check":         {account, view, nil, http.StatusOK},
		"a token that is none":                                        {s.token("none"), view, nil, http.StatusUnauthorized},
		"a token does not get what the server's own certificate may":  {s.token("none"), "/services/initializingworkspaces/root:universal/clusters/*/apis/core.kcp.io/v1alpha1/logicalclusters", nil, http.StatusUnauthorized},
		"a token does not help a certificate":                         {s.user("bob"), view, []string{"Authorization", "Bearer " + controller.Status.Token}, http.StatusForbidden},
		"tokens of the shard's administrator":                         {admin, view, nil, http.StatusOK},
		"nobody":                                                      {s.bare(), view, nil, http.StatusForbidden},
		"nobody who says to be somebody":                              {s.bare(), view, []string{"X-Remote-User", "alice", "Impersonate-User", "alice"}, http.StatusForbidden},
		"other paths of the shard are not here":                       {admin, "/clusters/root/api/v1/namespaces", nil, http.StatusForbidden},
		"nor behind dots":                                             {admin, "/services/../clusters/root/api/v1/namespaces", nil, http.StatusForbidden},
		"metrics are for who may read them in root":                   {admin, "/metrics", nil, http.StatusOK},
		"not for others":                                              {alice, "/metrics", nil, http.StatusForbidden},
		"nor for nobody":                                              {s.bare(), "/metrics", nil, http.StatusUnauthorized},
		"nor for a token that is none":                                {s.token("none"), "/metrics", nil, http.StatusUnauthorized},
		"nor for a service account":                                   {account, "/metrics", nil, http.StatusForbidden},
		"certificates make nobody read them":                          {mallory, "/metrics", nil, http.StatusForbidden},
		"metrics of the shard are not here":                           {admin, "/services/../metrics", nil, http.StatusForbidden},
		"a view that does not exist":                                  {alice, "/services/nothing", nil, http.StatusForbidden},
		"health":                                                      {s.bare(), "/healthz", nil, http.StatusOK},
		"life":                                                        {s.bare(), "/livez", nil, http.StatusOK},
		"readiness is that of the shard's views":                      {s.bare(), "/readyz/apiexport", nil, http.StatusOK},
		"readiness of the shard":                                      {s.bare(), "/readyz/shard", nil, http.StatusOK},
		"a view that the shard does not have is not missed":           {s.bare(), "/readyz/replication", nil, http.StatusOK},
		"readiness of all":                                            {s.bare(), "/readyz?verbose=1", nil, http.StatusOK},
		"a client that is known at the shard alone is not known here": {s.proxies.Client(t, s.bare(), "alice"), view, nil, http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			s := *s
			s.T = t
			if code, body := s.get(tc.config, tc.path, tc.headers...); code != tc.want {
				t.Errorf("got %d, want %d: %.300s", code, tc.want, body)
			}
		})
	}
	t.Run("the audit log names who asked", func(t *testing.T) {
		shardtesting.Eventually(t, "the event", func(context.Context) error {
			log, err := os.ReadFile(s.audit)
			if err == nil && (!strings.Contains(string(log), `"username":"alice"`) || !strings.Contains(string(log), view)) {
				err = fmt.Errorf("got %.500s", log)
			}
			return err
		})
	})
	t.Run("objects and watches pass, and watches end with the server", func(t *testing.T) {
		s := *s
		s.T = t
		httpClient, err := rest.HTTPClientFor(alice)
		if err != nil {
			t.Fatal(err)
		}
		defer httpClient.CloseIdleConnections()
		answer, err := httpClient.Get(alice.Host + view + "?watch=1")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = answer.Body.Close() }()
		made := strings.NewReader(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"made"}}`)
		created, err := httpClient.Post(alice.Host+strings.Replace(here, "/v1/widgets", "/v1/namespaces/default/widgets", 1), "application/json", made)
		if err != nil {
			t.Fatal(err)
		}
		_ = created.Body.Close()
		if created.StatusCode != http.StatusCreated {
			t.Errorf("creating: %s", created.Status)
		}
		event := make([]byte, 64)
		if _, err := io.ReadFull(answer.Body, event); err != nil || !strings.Contains(string(event), `"ADDED"`) {
			t.Errorf("the event is %s, %v", event, err)
		}
		s.stop()
		_, _ = io.Copy(io.Discard, answer.Body) // returns: the watch has ended, in good order or not
	})
	t.Run("without its shard it lives, and is not ready", func(t *testing.T) {
		s := *s
		s.T = t
		s.start()
		if err := s.shard.Stop(); err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]int{"/livez": http.StatusOK, "/readyz": http.StatusInternalServerError, "/readyz/shard": http.StatusInternalServerError} {
			if code, body := s.get(s.bare(), path); code != want {
				t.Errorf("%s: got %d, want %d: %.300s", path, code, want, body)
			}
		}
	})
}
