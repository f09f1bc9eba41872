package proxy_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/proxy"
	"github.com/atoll-dev/atoll/proxy/options"
)

// authority is a certificate authority.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t testing.TB, name string) *authority {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	cert, err := x509.ParseCertificate(der)
	must(t, err)
	return &authority{cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	return key
}

// issue returns a certificate for a server at 127.0.0.1 or a client, as PEM.
func (a *authority) issue(t testing.TB, cn string, groups ...string) (cert, key []byte) {
	t.Helper()
	k := newKey(t)
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<62))
	template := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: cn, Organization: groups},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"}}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, k.Public(), a.key)
	must(t, err)
	raw, err := x509.MarshalECPrivateKey(k)
	must(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: raw})
}

func (a *authority) pair(t testing.TB, cn string, groups ...string) tls.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(a.issue(t, cn, groups...))
	must(t, err)
	return pair
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// received is the response of a backend to requests for which it has no other one: the request that it received.
type received struct {
	Backend string
	Path    string
	Host    string
	Proto   string
	Header  http.Header
	Peer    string
}

// fakeServer is a TLS server that serves lists and watches of Shards, Workspaces, LogicalClusters and so on from
// memory, and responds to all other requests with what it received.
type fakeServer struct {
	*httptest.Server
	name string

	mu       sync.Mutex
	version  int
	objects  map[string]map[string]any // resource -> key -> object
	watchers map[chan string]string    // -> resource
	history  []pastEvent               // after the oldest version
	oldest   int                       // the oldest version at which a watch can start
	lists    map[string]int            // number of lists by resource
	closed   chan struct{}
	conns    map[net.Conn]bool

	allowMetrics map[string]bool // users that an access review allows
	acceptTokens bool            // the result of token reviews
	reviewedUser string          // the user of token reviews

	moving                  atomic.Bool  // whether other requests are refused, because the logical cluster moves
	refused                 atomic.Int64 // the number of these
	largeWritten, largeOpen atomic.Int64 // bytes of responses at /large, and those that have not ended
}

// pastEvent is an event that is sent to watches which start before it.
type pastEvent struct {
	version        int
	resource, line string
}

func newFakeServer(t testing.TB, name string, server, clients *authority) *fakeServer {
	f := &fakeServer{name: name, objects: map[string]map[string]any{}, watchers: map[chan string]string{}, lists: map[string]int{}, closed: make(chan struct{}), conns: map[net.Conn]bool{}, acceptTokens: true, reviewedUser: "system:serviceaccount:ns:app"}
	f.Server = httptest.NewUnstartedServer(f)
	roots := x509.NewCertPool()
	roots.AddCert(clients.cert)
	f.TLS = &tls.Config{Certificates: []tls.Certificate{server.pair(t, name)}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: roots}
	f.EnableHTTP2 = true
	f.Config.ConnState = func(c net.Conn, state http.ConnState) {
		if state == http.StateNew {
			f.mu.Lock()
			f.conns[c] = true
			f.mu.Unlock()
		}
	}
	f.StartTLS()
	t.Cleanup(f.stop)
	return f
}

func (f *fakeServer) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.closed:
		return
	default:
	}
	close(f.closed)
	f.CloseClientConnections()
	go f.Close()
}

func (f *fakeServer) put(resource, cluster, name string, rest map[string]any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	kind := "MODIFIED"
	key := cluster + "/" + name
	if f.objects[resource] == nil {
		f.objects[resource] = map[string]any{}
	}
	if f.objects[resource][key] == nil {
		kind = "ADDED"
	}
	f.version++
	obj := object(resource, cluster, name, f.version, rest)
	f.objects[resource][key] = obj
	f.send(resource, kind, obj)
}

func (f *fakeServer) remove(resource, cluster, name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.version++
	delete(f.objects[resource], cluster+"/"+name)
	f.send(resource, "DELETED", object(resource, cluster, name, f.version, nil))
}

func (f *fakeServer) send(resource, kind string, obj any) {
	line, _ := json.Marshal(map[string]any{"type": kind, "object": obj})
	f.history = append(f.history, pastEvent{f.version, resource, string(line)})
	for ch, watched := range f.watchers {
		if watched == resource {
			ch <- string(line)
		}
	}
}

var kinds = map[string][2]string{"shards": {"core.kcp.io/v1alpha1", "Shard"}, "logicalclusters": {"core.kcp.io/v1alpha1", "LogicalCluster"}, "workspaces": {"tenancy.kcp.io/v1alpha1", "Workspace"},
	"workspacetypes": {"tenancy.kcp.io/v1alpha1", "WorkspaceType"}, "workspaceauthenticationconfigurations": {"tenancy.kcp.io/v1alpha1", "WorkspaceAuthenticationConfiguration"}}

func object(resource, cluster, name string, version int, rest map[string]any) map[string]any {
	obj := map[string]any{"apiVersion": kinds[resource][0], "kind": kinds[resource][1], "metadata": map[string]any{
		"name": name, "resourceVersion": fmt.Sprint(version), "annotations": map[string]string{"kcp.io/cluster": cluster}}}
	for k, v := range rest {
		obj[k] = v
	}
	return obj
}

// compact makes watches before the current version fail.
func (f *fakeServer) compact() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.version++
	f.oldest, f.history = f.version, nil
}

// listCount returns the number of lists of a resource.
func (f *fakeServer) listCount(resource string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lists[resource]
}

func (f *fakeServer) putCluster(name string) { f.put("logicalclusters", name, "cluster", nil) }

// putTypedCluster is putCluster with a workspace type.
func (f *fakeServer) putTypedCluster(name, workspaceType string) {
	f.mu.Lock()
	version := f.version + 1
	f.mu.Unlock()
	f.put("logicalclusters", name, "cluster", map[string]any{"metadata": map[string]any{"name": "cluster", "resourceVersion": fmt.Sprint(version),
		"annotations": map[string]string{"kcp.io/cluster": name, "internal.tenancy.kcp.io/type": workspaceType}}})
}

func (f *fakeServer) putWorkspace(parent, name, cluster, phase string) {
	f.put("workspaces", parent, name, map[string]any{"spec": map[string]any{"cluster": cluster}, "status": map[string]any{"phase": phase}})
}

// tenancyIdentity is the identity of the export of workspaces.
const tenancyIdentity = "1d0"

func (f *fakeServer) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	path := req.URL.Path
	for resource, gvk := range kinds {
		cluster := "*"
		if resource == "shards" {
			cluster = "root"
		}
		named := resource
		if strings.HasPrefix(gvk[0], "tenancy.kcp.io/") {
			named += ":" + tenancyIdentity
		}
		if path == "/clusters/"+cluster+"/apis/"+gvk[0]+"/"+named && req.TLS.PeerCertificates[0].Subject.CommonName == "proxy-admin" {
			f.serveList(w, req, resource)
			return
		}
	}
	switch {
	case path == "/clusters/root/apis/apis.kcp.io/v1alpha2/apiexports/tenancy.kcp.io":
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport",
			"metadata": map[string]any{"name": "tenancy.kcp.io"}, "status": map[string]any{"identityHash": tenancyIdentity}})
	case strings.HasSuffix(path, "/subjectaccessreviews"):
		var review map[string]any
		_ = json.NewDecoder(req.Body).Decode(&review)
		spec := review["spec"].(map[string]any)
		review["status"] = map[string]any{"allowed": path == "/clusters/root/apis/authorization.k8s.io/v1/subjectaccessreviews" && f.allowMetrics[spec["user"].(string)]}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review)
	case strings.HasSuffix(path, "/tokenreviews"):
		w.Header().Set("Content-Type", "application/json")
		cluster := strings.Split(path, "/")[2]
		_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "status": map[string]any{"authenticated": f.acceptTokens,
			"user": map[string]any{"username": f.reviewedUser, "extra": map[string]any{"authentication.kcp.io/cluster-name": []string{cluster}}}}})
	case req.Header.Get("Upgrade") != "":
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		defer conn.Close()
		fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\nX-Seen-User: %s\r\n\r\n", req.Header.Get("Upgrade"), req.Header.Get("X-Remote-User"))
		_ = rw.Flush()
		_, _ = io.Copy(conn, rw.Reader) // an echo
	case strings.HasSuffix(path, "/stream"):
		for {
			_, err := io.WriteString(w, "tick\n")
			if err != nil || http.NewResponseController(w).Flush() != nil {
				return
			}
			select {
			case <-req.Context().Done():
				return
			case <-f.closed:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	case strings.HasSuffix(path, "/large"):
		f.largeOpen.Add(1)
		defer f.largeOpen.Add(-1)
		for range 128 {
			n, err := w.Write(make([]byte, 32<<10))
			f.largeWritten.Add(int64(n))
			if err != nil {
				return
			}
		}
	case strings.HasSuffix(path, "/redirect"):
		http.Redirect(w, req, "https://redirect.example/", http.StatusFound)
	case strings.HasSuffix(path, "/read"):
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			panic(http.ErrAbortHandler)
		}
	case strings.HasSuffix(path, "/busy"):
		w.Header().Set("Retry-After", "1")
		http.Error(w, "Not found on this shard", http.StatusTooManyRequests)
	case f.moving.Load():
		f.refused.Add(1)
		w.Header().Set("Retry-After", "1")
		w.Header().Set(logicalcluster.MovingHeader, "true")
		http.Error(w, "logical cluster is being migrated", http.StatusServiceUnavailable)
	default:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(received{f.name, req.URL.EscapedPath(), req.Host, req.Proto, req.Header, req.TLS.PeerCertificates[0].Subject.CommonName})
	}
}

func (f *fakeServer) serveList(w http.ResponseWriter, req *http.Request, resource string) {
	w.Header().Set("Content-Type", "application/json")
	f.mu.Lock()
	if req.URL.Query().Get("watch") == "" {
		items := []any{}
		for _, obj := range f.objects[resource] {
			items = append(items, obj)
		}
		version := f.version
		f.lists[resource]++
		f.mu.Unlock()
		_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": kinds[resource][0], "kind": kinds[resource][1] + "List",
			"metadata": map[string]any{"resourceVersion": fmt.Sprint(version)}, "items": items})
		return
	}
	ch := make(chan string, 1000)
	f.watchers[ch] = resource
	var since int
	_, _ = fmt.Sscan(req.URL.Query().Get("resourceVersion"), &since)
	if since < f.oldest {
		ch <- `{"type":"ERROR","object":{"apiVersion":"v1","kind":"Status","status":"Failure","code":410,"reason":"Expired","message":"too old"}}`
	}
	for _, event := range f.history {
		if event.resource == resource && event.version > since {
			ch <- event.line
		}
	}
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.watchers, ch)
		f.mu.Unlock()
	}()
	_ = http.NewResponseController(w).Flush()
	for {
		select {
		case line := <-ch:
			_, _ = io.WriteString(w, line+"\n")
			_ = http.NewResponseController(w).Flush()
		case <-req.Context().Done():
			return
		case <-f.closed:
			return
		}
	}
}

// env is an installation of two shards and a proxy.
type env struct {
	t                            testing.TB
	dir                          string
	serverCA, clientCA, headerCA *authority
	root, alpha, services        *fakeServer
	url                          string
	stop                         func()
}

// newEnv starts an installation. configure may change the options of the proxy.
func newEnv(t testing.TB, configure ...func(*env, *options.Options)) *env {
	t.Helper()
	i := &env{t: t, dir: t.TempDir(), serverCA: newAuthority(t, "server-ca"), clientCA: newAuthority(t, "client-ca"), headerCA: newAuthority(t, "header-ca")}
	i.root = newFakeServer(t, "root", i.serverCA, i.headerCA)
	i.alpha = newFakeServer(t, "alpha", i.serverCA, i.headerCA)
	i.services = newFakeServer(t, "services", i.serverCA, i.headerCA)
	i.root.put("shards", "root", "root", map[string]any{"spec": map[string]any{"baseURL": i.root.URL}})
	i.root.put("shards", "root", "alpha", map[string]any{"spec": map[string]any{"baseURL": i.alpha.URL + "/base"}})
	i.alpha.Config.Handler = http.StripPrefix("/base", i.alpha)
	i.root.putCluster("root")
	i.root.putCluster("org1")
	i.alpha.putCluster("team1")
	i.alpha.putCluster("broken1")
	i.root.putWorkspace("root", "org", "org1", "Ready")
	i.root.putWorkspace("org1", "team", "team1", "Initializing")
	i.root.putWorkspace("org1", "broken", "broken1", "Unavailable")
	i.root.putWorkspace("org1", "early", "team1", "Scheduling")
	i.root.put("workspaces", "org1", "mount", map[string]any{"spec": map[string]any{"URL": i.services.URL + "/mounted", "mount": map[string]any{"ref": map[string]any{}}}, "status": map[string]any{"phase": "Ready"}})

	header, headerKey := i.headerCA.issue(t, "kcp-front-proxy")
	admin, adminKey := i.headerCA.issue(t, "proxy-admin", "system:masters")
	serving, servingKey := i.serverCA.issue(t, "proxy")
	for name, data := range map[string][]byte{"server-ca.crt": i.serverCA.pem, "client-ca.crt": i.clientCA.pem, "header-ca.crt": i.headerCA.pem,
		"header.crt": header, "header.key": headerKey, "admin.crt": admin, "admin.key": adminKey, "tls.crt": serving, "tls.key": servingKey,
		"token.csv": []byte("bob-token,bob,u1,\"devs,system:masters\"\n")} {
		i.write(name, data)
	}
	entry := func(path, backend string) string {
		return fmt.Sprintf("- path: %s\n  backend: %s\n  backend_server_ca: %s\n  proxy_client_cert: %s\n  proxy_client_key: %s\n",
			path, backend, i.file("server-ca.crt"), i.file("header.crt"), i.file("header.key"))
	}
	i.write("mapping.yaml", []byte(entry("/clusters/", i.root.URL)+entry("/services/", i.services.URL+"/vw")+entry("/e/{cluster}/x", i.services.URL)))
	i.kubeconfig("kubeconfig", i.root.URL+"/clusters/system:admin")

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	o := options.New()
	o.SecureServing.Listener = listener
	o.SecureServing.BindPort = listener.Addr().(*net.TCPAddr).Port
	o.SecureServing.ServerCert.CertKey.CertFile, o.SecureServing.ServerCert.CertKey.KeyFile = i.file("tls.crt"), i.file("tls.key")
	o.RootDirectory = i.dir
	o.MappingFile, o.RootKubeconfig, o.ShardsKubeconfig = i.file("mapping.yaml"), i.file("kubeconfig"), i.file("kubeconfig")
	o.Authentication.ClientCert.ClientCA = i.file("client-ca.crt")
	o.ShutdownTimeout = 5 * time.Second
	for _, f := range configure {
		f(i, o)
	}
	completed, err := o.Complete()
	must(t, err)
	config, err := proxy.NewConfig(completed)
	must(t, err)
	complete, err := config.Complete()
	must(t, err)
	server, err := proxy.NewServer(complete)
	must(t, err)

	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	i.url = "https://" + listener.Addr().String()
	var once sync.Once
	i.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	}
	t.Cleanup(i.stop)
	i.eventually("the proxy is ready", func() bool {
		res, _, err := i.do(i.client(nil), http.MethodGet, "/readyz", nil)
		return err == nil && res.StatusCode == http.StatusOK
	})
	return i
}

func (en *env) file(name string) string { return filepath.Join(en.dir, name) }

func (en *env) write(name string, data []byte) {
	en.t.Helper()
	must(en.t, os.WriteFile(en.file(name), data, 0o600))
}

// kubeconfig writes inline credentials: for files, client-go starts goroutines that do not end, which goleak would
// find.
func (en *env) kubeconfig(name, server string) {
	admin, err := os.ReadFile(en.file("admin.crt"))
	must(en.t, err)
	key, err := os.ReadFile(en.file("admin.key"))
	must(en.t, err)
	must(en.t, clientcmd.WriteToFile(clientcmdapi.Config{CurrentContext: "c",
		Clusters:  map[string]*clientcmdapi.Cluster{"c": {Server: server, CertificateAuthority: en.file("server-ca.crt")}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": {ClientCertificateData: admin, ClientKeyData: key}},
		Contexts:  map[string]*clientcmdapi.Context{"c": {Cluster: "c", AuthInfo: "u"}}}, en.file(name)))
}

// client returns an HTTP/2 client with the certificate, if any.
func (en *env) client(pair *tls.Certificate) *http.Client {
	roots := x509.NewCertPool()
	roots.AddCert(en.serverCA.cert)
	config := &tls.Config{RootCAs: roots}
	if pair != nil {
		// Present the certificate whatever CAs the server advertises, as curl does.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair, nil }
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	en.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, Timeout: 20 * time.Second}
}

func (en *env) clientFor(cn string, groups ...string) *http.Client {
	pair := en.clientCA.pair(en.t, cn, groups...)
	return en.client(&pair)
}

func (en *env) do(c *http.Client, method, path string, header http.Header) (*http.Response, []byte, error) {
	req, err := http.NewRequest(method, en.url+path, nil)
	if err != nil {
		return nil, nil, err
	}
	for name, values := range header {
		req.Header[name] = values
	}
	res, err := c.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer res.Body.Close()
	var body bytes.Buffer
	_, err = body.ReadFrom(res.Body)
	return res, body.Bytes(), err
}

// get returns the response and, if it is that of a backend, what the backend received.
func (en *env) get(c *http.Client, path string, header http.Header) (int, received, string) {
	en.t.Helper()
	res, body, err := en.do(c, http.MethodGet, path, header)
	must(en.t, err)
	var s received
	if res.StatusCode == http.StatusOK {
		_ = json.Unmarshal(body, &s)
	}
	return res.StatusCode, s, string(body)
}

func (en *env) eventually(what string, f func() bool) {
	en.t.Helper()
	for deadline := time.Now().Add(15 * time.Second); time.Now().Before(deadline); {
		if f() {
			return
		}
		time.Sleep(5 * time.Millisecond) // between polls
	}
	en.t.Fatalf("timed out: %s", what)
}
