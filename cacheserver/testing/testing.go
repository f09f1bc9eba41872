// Package testing starts real cache servers inside a test process: real etcd, real chain. Tests use them through
// clients, as shards would.
package testing

import (
	"context"
	"net"
	nethttp "net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/atoll-dev/atoll/cacheserver"
	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/cacheserver/options"
	"github.com/atoll-dev/atoll/internal/testpki"
)

const (
	readyTimeout = time.Minute
	validity     = time.Hour
)

// Cache is a running cache server. Its directory survives Stop, so that it can be started again.
type Cache struct {
	// Directory is its root directory.
	Directory string
	// Address is "https://host:port".
	Address string
	// Server is the server in this process.
	Server *cacheserver.Server

	authority *testpki.Authority
	serving   testpki.Pair
	configure []func(*options.Options)
	tb        testing.TB
	stop      func() error
}

// Start runs a cache server on a free port of the loopback interface and waits until it is ready. It stops with the
// test.
func Start(t testing.TB, configure ...func(*options.Options)) *Cache {
	t.Helper()
	directory := t.TempDir()
	authority, err := testpki.New(directory, "cache", validity)
	if err != nil {
		t.Fatal(err)
	}
	serving, err := authority.Issue("localhost")
	if err != nil {
		t.Fatal(err)
	}
	c := &Cache{Directory: directory, authority: authority, serving: serving, tb: t}
	c.run(t, "127.0.0.1:0", configure...)
	return c
}

// Replica runs another server on the same etcd, which must be external.
func (c *Cache) Replica(t testing.TB, configure ...func(*options.Options)) *Cache {
	t.Helper()
	other := &Cache{Directory: t.TempDir(), authority: c.authority, serving: c.serving, tb: t}
	other.run(t, "127.0.0.1:0", configure...)
	return other
}

// Beside returns the configuration of another server with the certificates of this one, and its address.
func (c *Cache) Beside(t testing.TB, configure ...func(*options.Options)) (config cacheserver.Config, address string) {
	t.Helper()
	other := &Cache{Directory: t.TempDir(), authority: c.authority, serving: c.serving, tb: t}
	return other.config(t, "127.0.0.1:0", configure...), other.Address
}

// Restart runs a stopped server again at the same address and with the same directory. It stops with the test that
// started it first.
func (c *Cache) Restart(t testing.TB) {
	t.Helper()
	c.run(t, c.Address[len("https://"):], c.configure...)
}

// run starts the server at an address, "host:port".
func (c *Cache) run(t testing.TB, address string, configure ...func(*options.Options)) {
	t.Helper()
	c.configure = configure
	config := c.config(t, address, configure...)
	ctx, cancel := context.WithCancel(context.Background())
	server, err := cacheserver.New(ctx, config)
	if err != nil {
		cancel()
		t.Fatalf("creating the cache server: %v", err)
	}
	c.Server = server
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	c.stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	c.tb.Cleanup(c.newCleanup(c.tb, c.stop))
	c.waitReady(t)
}

// config returns the configuration of the server at an address, "host:port".
func (c *Cache) config(t testing.TB, address string, configure ...func(*options.Options)) cacheserver.Config {
	t.Helper()
	listener, port, err := genericoptions.CreateListener("tcp", address, net.ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	c.Address = "https://" + listener.Addr().String()
	o := options.New()
	o.RootDirectory = filepath.Join(c.Directory, "root")
	o.SecureServing.Listener, o.SecureServing.BindPort, o.SecureServing.BindAddress = listener, port, net.IPv4(127, 0, 0, 1)
	o.SecureServing.ServerCert.CertKey.CertFile, o.SecureServing.ServerCert.CertKey.KeyFile = c.serving.CertFile, c.serving.KeyFile
	o.ClientCert.ClientCA = c.authority.CertFile
	o.EmbeddedEtcd.ClientPort, o.EmbeddedEtcd.PeerPort, o.EmbeddedEtcd.WALSizeBytes = 0, 0, 5000
	o.EmbeddedEtcd.UnsafeNoFsync = true
	o.ServerRun.ShutdownWatchTerminationGracePeriod = 100 * time.Millisecond
	for _, change := range configure {
		change(o)
	}
	config, err := o.Complete()
	if err != nil {
		t.Fatalf("completing options: %v", err)
	}
	return config
}

func (c *Cache) newCleanup(t testing.TB, stop func() error) func() {
	return func() {
		if err := stop(); err != nil {
			t.Errorf("stopping the cache server: %v", err)
		}
	}
}

// Stop shuts the server down and returns when everything has ended.
func (c *Cache) Stop() error { return c.stop() }

func (c *Cache) waitReady(t testing.TB) {
	t.Helper()
	http, err := rest.HTTPClientFor(c.Masters(t))
	if err != nil {
		t.Fatal(err)
	}
	defer http.CloseIdleConnections()
	err = wait.PollUntilContextTimeout(context.Background(), 20*time.Millisecond, readyTimeout, true, func(context.Context) (bool, error) {
		response, err := http.Get(c.Address + "/readyz")
		if err != nil {
			return false, nil
		}
		defer response.Body.Close()
		return response.StatusCode == nethttp.StatusOK, nil
	})
	if err != nil {
		t.Fatalf("the cache server did not become ready: %v", err)
	}
}

// User returns the configuration of a client with a certificate.
func (c *Cache) User(t testing.TB, name string, groups ...string) *rest.Config {
	t.Helper()
	pair, err := c.authority.Issue(name, groups...)
	if err != nil {
		t.Fatal(err)
	}
	config := c.Anonymous()
	config.CertFile, config.KeyFile = pair.CertFile, pair.KeyFile
	return config
}

// Anonymous returns the configuration of a client without a certificate.
func (c *Cache) Anonymous() *rest.Config {
	return &rest.Config{Host: c.Address, TLSClientConfig: rest.TLSClientConfig{CAFile: c.authority.CertFile}, QPS: -1}
}

// Masters returns the configuration of a client in system:masters.
func (c *Cache) Masters(t testing.TB) *rest.Config {
	t.Helper()
	return c.User(t, "masters", "system:masters")
}

// Shard returns the configuration of a shard.
func (c *Cache) Shard(t testing.TB, name string) *rest.Config {
	t.Helper()
	return c.User(t, cacheserver.ShardUserPrefix+name, cacheserver.ShardGroup)
}

// Client returns a client of a shard.
func (c *Cache) Client(t testing.TB, shard string) *client.Client {
	t.Helper()
	made, err := client.New(c.Shard(t, shard), shard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(made.CloseIdleConnections)
	return made
}

// Kubeconfig writes a configuration into a file.
func (c *Cache) Kubeconfig(t testing.TB, config *rest.Config) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "cache.kubeconfig")
	const name = "cache"
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: config.Host, CertificateAuthority: config.CAFile}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {ClientCertificate: config.CertFile, ClientKey: config.KeyFile}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	}, file)
	if err != nil {
		t.Fatal(err)
	}
	return file
}
