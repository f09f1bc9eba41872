package shardclient

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/internal/memory"
	"github.com/atoll-dev/atoll/controllers/pki"
)

// TestPinnedServingCertificate: the certificate of a front proxy may come from a public authority, for public
// names, and the operator connects to the Service.
func TestPinnedServingCertificate(t *testing.T) {
	server := newTestServer(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	address, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	otherCert := newSelfSignedCertificate(t)
	for name, tc := range map[string]struct {
		serving []byte // what the Secret of its certificate holds
		host    string
		want    string
	}{
		"at the name it is for":                     {server.certificate, "127.0.0.1", ""},
		"at another name":                           {server.certificate, "localhost", ""},
		"not with another certificate":              {otherCert, "127.0.0.1", "its certificate is signed by an unknown authority"},
		"not while the Secret holds no certificate": {[]byte("none"), "127.0.0.1", "Secret serving holds no certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			clients := New(apply.Cluster{Client: memory.NewClient(t,
				server.secret("root-kcp-operator", server.certificate), server.secret("root-server-ca", otherCert),
				server.secret("root-ca", otherCert), server.secret("serving", tc.serving),
			)})
			root := &operatorv1alpha1.RootShard{ObjectMeta: metav1.ObjectMeta{Name: "root", Namespace: "kcp"}}
			have := ""
			if err := clients.checkServerReadyz(t.Context(), root, "https://"+tc.host+":"+address.Port(), "serving"); err != nil {
				have = StableMessage(err)
			}
			if have != tc.want {
				t.Errorf("got %q, want %q", have, tc.want)
			}
		})
	}
}

// TestServicesAreDialed checks that the operator connects to shards at their Services, independent of the address in the spec for the
// pods of the installation.
func TestServicesAreDialed(t *testing.T) {
	root := &operatorv1alpha1.RootShard{ObjectMeta: metav1.ObjectMeta{Name: "root", Namespace: "kcp"}}
	root.Spec.ShardBaseURL = "https://root.example.com"
	alpha := &operatorv1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: "alpha", Namespace: "kcp"}}
	alpha.Spec.ShardBaseURL = "https://alpha.example.com"
	const rootService, alphaService = "root-kcp.kcp.svc.cluster.local:6443", "alpha-shard-kcp.kcp.svc.cluster.local:6443"
	for name, tc := range map[string]struct {
		call func(context.Context, *Clients) error
		want []string
	}{
		"ready root shard": {func(ctx context.Context, c *Clients) error { return c.ShardReady(ctx, desired.NewRootShard(root)) }, []string{rootService}},
		"ready shard":      {func(ctx context.Context, c *Clients) error { return c.ShardReady(ctx, desired.NewShard(alpha, root)) }, []string{alphaService}},
		"lag": {func(ctx context.Context, c *Clients) error {
			_, err := c.Lag(ctx, desired.NewShard(alpha, root))
			return err
		}, []string{alphaService}},
		"heartbeats": {func(ctx context.Context, c *Clients) error {
			_, err := c.MissingHeartbeats(ctx, root)
			return err
		}, []string{rootService}},
		"registration": {func(ctx context.Context, c *Clients) error {
			_, err := c.Registered(ctx, root, alpha)
			return err
		}, []string{rootService}},
		"logical clusters": {func(ctx context.Context, c *Clients) error {
			_, err := c.LogicalClusters(ctx, root, alpha)
			return err
		}, []string{rootService, alphaService}},
		"workspaces": {func(ctx context.Context, c *Clients) error {
			_, err := c.Workspaces(ctx, root)
			return err
		}, []string{rootService}},
		"cordon": {func(ctx context.Context, c *Clients) error { return c.CordonAll(ctx, root) }, []string{rootService}},
		"a probe of a shard that is not schedulable": {func(ctx context.Context, c *Clients) error {
			return c.Probe(ctx, desired.NewShard(alpha, root))
		}, []string{rootService, alphaService}},
	} {
		t.Run(name, func(t *testing.T) {
			written := "" // by the probe
			server := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
				if body, err := io.ReadAll(r.Body); err == nil && len(body) > 0 {
					written = string(body)
				}
				w.Header().Set("Content-Type", "application/json")
				switch {
				case r.URL.Path == "/readyz", r.URL.Path == "/metrics":
				case strings.Contains(r.URL.Path, "configmaps"):
					fmt.Fprint(w, written)
				default:
					fmt.Fprint(w, `{"apiVersion":"core.kcp.io/v1alpha1","kind":"Shard","metadata":{"name":"alpha","annotations":{"experimental.core.kcp.io/unschedulable":""}},"status":{"identityHash":"abc"},"items":[]}`)
				}
			})
			var secrets []client.Object
			for _, name := range []string{"root-kcp-operator", "root-server-ca", "root-ca", "root-server", "root-proxy-kubeconfig", "alpha-server"} {
				secrets = append(secrets, server.secret(name, server.certificate))
			}
			clients := New(apply.Cluster{Client: memory.NewClient(t, secrets...)})
			var dialed []string
			clients.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				dialed = append(dialed, address)
				return (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
			}
			if err := tc.call(t.Context(), clients); err != nil {
				t.Error(err)
			}
			if dialed = slices.Compact(dialed); !slices.Equal(dialed, tc.want) {
				t.Errorf("dialed %v, want %v", dialed, tc.want)
			}
		})
	}
}

// TestPrivilegedCertificate: shards answer requests to all logical clusters only to system:masters.
func TestPrivilegedCertificate(t *testing.T) {
	root := &operatorv1alpha1.RootShard{ObjectMeta: metav1.ObjectMeta{Name: "root", Namespace: "kcp"}}
	for _, certificate := range pki.Proxy(desired.NewInternalProxy(root), root).Certificates {
		if certificate.Spec.SecretName == privilegedCertificate(root) {
			if have := certificate.Spec.Subject.Organizations; !slices.Equal(have, []string{"system:masters"}) {
				t.Errorf("it has the groups %v", have)
			}
			return
		}
	}
	t.Errorf("there is no certificate %s", privilegedCertificate(root))
}

// TestWorkspaces checks that the logical clusters of the root shard are counted together with the workspaces on other shards, each once,
// and without those that every installation has.
func TestWorkspaces(t *testing.T) {
	cluster := func(name string) string {
		return fmt.Sprintf(`{"apiVersion":"core.kcp.io/v1alpha1","kind":"LogicalCluster","metadata":{"name":"cluster","annotations":{"kcp.io/cluster":%q}}}`, name)
	}
	workspace := func(cluster string) string {
		return fmt.Sprintf(`{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"Workspace","metadata":{"name":"w"},"spec":{"cluster":%q}}`, cluster)
	}
	for name, tc := range map[string]struct {
		clusters, workspaces []string
		want                 int
	}{
		"a new installation":                          {[]string{cluster("root"), cluster("system:admin"), cluster("system:shard")}, nil, 0},
		"a workspace that has no logical cluster yet": {[]string{cluster("root")}, []string{workspace("")}, 0},
		"workspaces here, elsewhere and left behind": {
			[]string{cluster("root"), cluster("here"), cluster("left")}, []string{workspace("here"), workspace("elsewhere")}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			server := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				var items []string
				switch r.URL.Path {
				case "/clusters/*/apis/core.kcp.io/v1alpha1/logicalclusters":
					items = tc.clusters
				case "/clusters/root/apis/apis.kcp.io/v1alpha2/apiexports/tenancy.kcp.io":
					fmt.Fprint(w, `{"apiVersion":"apis.kcp.io/v1alpha2","kind":"APIExport","metadata":{"name":"tenancy.kcp.io"},"status":{"identityHash":"abc"}}`)
					return
				case "/clusters/*/apis/tenancy.kcp.io/v1alpha1/workspaces:abc":
					items = tc.workspaces
				}
				fmt.Fprintf(w, `{"apiVersion":"v1","kind":"List","items":[%s]}`, strings.Join(items, ","))
			})
			var secrets []client.Object
			for _, name := range []string{"root-kcp-operator", "root-server-ca", "root-ca", "root-server", "root-proxy-kubeconfig"} {
				secrets = append(secrets, server.secret(name, server.certificate))
			}
			clients := New(apply.Cluster{Client: memory.NewClient(t, secrets...)})
			clients.dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
			}
			count, err := clients.Workspaces(t.Context(), &operatorv1alpha1.RootShard{ObjectMeta: metav1.ObjectMeta{Name: "root", Namespace: "kcp"}})
			if err != nil || count != tc.want {
				t.Errorf("got %d, %v; want %d", count, err, tc.want)
			}
		})
	}
}

// testServer is a server with a self-signed certificate for example.com.
type testServer struct {
	*httptest.Server
	certificate, key []byte // PEM
}

func newTestServer(t *testing.T, handler http.HandlerFunc) testServer {
	t.Helper()
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	key, err := x509.MarshalPKCS8PrivateKey(server.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return testServer{
		Server:      server,
		certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
		key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
	}
}

// secret is a Secret with a certificate and the key of the server.
func (s testServer) secret(name string, certificate []byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "kcp"}, Data: map[string][]byte{
		corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: s.key,
	}}
}

// newSelfSignedCertificate is an unrelated certificate.
func newSelfSignedCertificate(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"example.com"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
