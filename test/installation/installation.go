// Package installation runs a shard and a front proxy for tests as operators run them: the real binaries, certificates
// and flags like those of the operator, a tenant who comes through the proxy. Tests of many requests through the whole
// stack begin here; what can be seen at a shard alone uses shardserver/testing, which starts faster.
package installation

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/programs"
)

// Names in certificates, as the operator gives them.
const (
	proxyName = "kcp-front-proxy"
	adminName = "kcp-admin"
	masters   = "system:masters"
	admins    = "system:kcp:admin"
)

// Installation is a running root shard behind a running front proxy.
type Installation struct {
	// URL is where users reach the front proxy.
	URL string
	// Shard is the base URL of the shard, for tests of what the proxy adds.
	Shard string

	directory                 string
	servers, clients, proxies *shardtesting.CA
}

// Build compiles the binaries into a directory. root is the path of the module's root from the working directory.
func Build(ctx context.Context, root, directory string) error {
	return programs.Build(ctx, root, directory, "./cmd/kcp", "./cmd/kcp-front-proxy")
}

// Start runs the binaries in the directory bin until the test ends. Additional flags go to the shard.
func Start(t testing.TB, bin string, shardFlags ...string) *Installation {
	t.Helper()
	i := &Installation{
		URL: "https://" + programs.FreeAddress(t), Shard: "https://" + programs.FreeAddress(t), directory: t.TempDir(),
		servers: shardtesting.NewCA(t, "servers"), clients: shardtesting.NewCA(t, "clients"), proxies: shardtesting.NewCA(t, "proxies"),
	}
	key := programs.SigningKey(t, filepath.Join(i.directory, "service-accounts.key"))
	i.run(t, i.Shard, filepath.Join(bin, "kcp"), append(i.shardFlags(t, key), shardFlags...))
	i.run(t, i.URL, filepath.Join(bin, proxyName), i.proxyFlags(t, key))
	return i
}

// Admin returns a client configuration of kcp's administrator at the front proxy, for the logical cluster at a path.
func (i *Installation) Admin(t testing.TB, path string) *rest.Config {
	return shardtesting.At(i.client(t, i.URL, adminName, admins), path)
}

// User returns a client configuration of somebody at the front proxy, for the logical cluster at a path.
func (i *Installation) User(t testing.TB, path, name string, groups ...string) *rest.Config {
	return shardtesting.At(i.client(t, i.URL, name, groups...), path)
}

func (i *Installation) client(t testing.TB, url, name string, groups ...string) *rest.Config {
	t.Helper()
	base := &rest.Config{Host: url, TLSClientConfig: rest.TLSClientConfig{CAFile: i.servers.CertFile}, QPS: -1}
	return i.clients.Client(t, base, name, groups...)
}

// requestHeader are the headers in which the proxy hands on the user.
var requestHeader = []string{
	"--requestheader-allowed-names=" + proxyName, "--requestheader-username-headers=X-Remote-User",
	"--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
}

func (i *Installation) shardFlags(t testing.TB, key string) []string {
	cert, certKey := i.servers.Issue(t, "shard")
	return append([]string{
		"start", "--root-directory=" + filepath.Join(i.directory, "kcp"),
		"--bind-address=127.0.0.1", "--secure-port=" + port(i.Shard), "--tls-cert-file=" + cert, "--tls-private-key-file=" + certKey,
		"--embedded-etcd-client-port=0", "--embedded-etcd-peer-port=0", "--embedded-etcd-wal-size-bytes=1000000",
		"--client-ca-file=" + i.clients.CertFile, "--root-ca-file=" + i.servers.CertFile,
		"--service-account-private-key-file=" + key, "--service-account-key-file=" + key,
		"--shard-base-url=" + i.Shard, "--shard-external-url=" + i.URL,
		"--requestheader-client-ca-file=" + i.proxies.CertFile,
	}, requestHeader...)
}

func (i *Installation) proxyFlags(t testing.TB, key string) []string {
	cert, certKey := i.servers.Issue(t, "proxy")
	headerCert, headerKey := i.proxies.Issue(t, proxyName)
	mapping := filepath.Join(i.directory, "mapping.yaml")
	entry := fmt.Sprintf("backend: %s, backend_server_ca: %s, proxy_client_cert: %s, proxy_client_key: %s", i.Shard, i.servers.CertFile, headerCert, headerKey)
	if err := os.WriteFile(mapping, fmt.Appendf(nil, "- {path: /clusters/, %s}\n- {path: /services/, %s}\n", entry, entry), 0o600); err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(i.directory, "proxy.kubeconfig")
	WriteKubeconfig(t, i.client(t, i.Shard, "proxy", masters), kubeconfig)
	return []string{
		"--bind-address=127.0.0.1", "--secure-port=" + port(i.URL), "--tls-cert-file=" + cert, "--tls-private-key-file=" + certKey,
		"--mapping-file=" + mapping, "--root-kubeconfig=" + kubeconfig, "--shards-kubeconfig=" + kubeconfig, "--root-directory=" + i.directory,
		"--client-ca-file=" + i.clients.CertFile, "--service-account-key-file=" + key, "--service-account-lookup=false",
	}
}

// WriteKubeconfig writes a client configuration as a file for programs that want one.
func WriteKubeconfig(t testing.TB, config *rest.Config, file string) {
	t.Helper()
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		CurrentContext: "workspace",
		Clusters:       map[string]*clientcmdapi.Cluster{"workspace": {Server: config.Host, CertificateAuthority: config.CAFile}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"user": {ClientCertificate: config.CertFile, ClientKey: config.KeyFile}},
		Contexts:       map[string]*clientcmdapi.Context{"workspace": {Cluster: "workspace", AuthInfo: "user"}},
	}, file)
	if err != nil {
		t.Fatal(err)
	}
}

func port(url string) string {
	_, port, _ := net.SplitHostPort(url[len("https://"):])
	return port
}

// readyTimeout is generous because tests share two cores.
const readyTimeout = 2 * time.Minute

// run runs a server until the test ends and waits until it is ready at its address.
func (i *Installation) run(t testing.TB, url, program string, flags []string) {
	t.Helper()
	p := programs.Start(t, i.directory, program, flags...)
	t.Cleanup(func() { p.Stop(t) })
	client, err := rest.HTTPClientFor(i.client(t, url, adminName, admins))
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
	defer cancel()
	for last := error(nil); ; {
		select {
		case <-p.Exited():
			t.Fatalf("%s ended before it was ready:\n%s", p.Name, p.Tail())
		case <-ctx.Done():
			t.Fatalf("%s did not become ready: %v\n%s", p.Name, last, p.Tail())
		case <-time.After(20 * time.Millisecond): // between polls
		}
		last = ready(ctx, client, url)
		if last == nil {
			return
		}
	}
}

func ready(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("/readyz answers %s", response.Status)
	}
	return nil
}
