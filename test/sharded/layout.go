// Package sharded lays out an installation on one machine: a root shard, more shards, a cache server and a front proxy,
// with the certificates, kubeconfigs and flags that the operator would give them. It says what is to run; who runs it is
// the business of others: hack/sharded for developers, package installation for tests.
package sharded

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"k8s.io/client-go/rest"

	"github.com/atoll-dev/atoll/internal/testpki"
)

// Names and groups in certificates.
const (
	adminName  = "kcp-admin"
	admins     = "system:kcp:admin"
	masters    = "system:masters"
	proxyName  = "kcp-front-proxy"
	shardGroup = "system:kcp:shard"
	// outsideAdmins may read what a shard needs of logical clusters elsewhere, through the front proxy.
	outsideAdmins = "system:kcp:external-logical-cluster-admin"

	// RootShard is the name of the first shard.
	RootShard = "root"
	// CacheServer and FrontProxy are the names of the servers that are no shards.
	CacheServer, FrontProxy = "cache", "proxy"
)

// Ports of a developer's installation: those of kcp's own, so that its scripts work. Shard n listens on shardPort + n.
const (
	proxyPort = 6443
	shardPort = 6444
	cachePort = 8012
)

// Options say what is wanted.
type Options struct {
	// Directory holds everything; it is absolute and exists.
	Directory string
	// Shards are the names of the shards, "root" first.
	Shards []string
	// NoCache leaves the cache server out: the root shard's own is used.
	NoCache bool
	// FreePorts has every server listen where nobody does, instead of on well-known ports.
	FreePorts bool
	// Validity of all certificates; 0 means a year.
	Validity time.Duration
	// Places are where servers run that do not run on the loopback interface.
	Places map[string]Place
	// Via are the addresses, "host:port", by which servers are reached by the others, if not directly: those of relays
	// that run on the loopback interface.
	Via map[string]string
	// Prepared is called with the layout before anything runs, if it is set: for relays.
	Prepared func(*Layout)
	// Flags are added to those of single servers.
	Flags map[string][]string
	// ShardFlags, CacheFlags and ProxyFlags are added to those of every shard, the cache server and the front proxy.
	ShardFlags, CacheFlags, ProxyFlags []string
}

// Place is a network of its own.
type Place struct {
	// Address is the IP address that the server listens on.
	Address string
	// Command is put before the server's own command line, as "ip netns exec <name>" is.
	Command []string
}

// Server is one process of the installation.
type Server struct {
	// Name is that of the shard, CacheServer or FrontProxy.
	Name string
	// Program is the file name of the binary.
	Program string
	// Args are its arguments.
	Args []string
	// URL is where it listens.
	URL string
	// Command is put before the program, if there is one.
	Command []string
}

func (l *Layout) server(name, program string, args []string) Server {
	args = append(args, l.options.Flags[name]...)
	return Server{Name: name, Program: program, Args: args, URL: l.urls[name], Command: l.options.Places[name].Command}
}

// Layout is an installation that can be started.
type Layout struct {
	// Servers are in the order of their dependencies. All may be started at once: each waits for what it needs.
	Servers []Server
	// Kubeconfig is a file with the contexts "base" and "root", an administrator at the front proxy, and "shard-base",
	// system:masters at the root shard.
	Kubeconfig string

	options                   Options
	servers, clients, proxies *testpki.Authority
	urls                      map[string]string
	serverPairs               map[string]testpki.Pair
	signingKey                string
}

// New writes the files of an installation.
func New(options Options) (*Layout, error) {
	if len(options.Shards) == 0 || options.Shards[0] != RootShard {
		return nil, fmt.Errorf("got the shards %q, expected %q first", options.Shards, RootShard)
	}
	if options.Validity == 0 {
		options.Validity = 365 * 24 * time.Hour
	}
	l := &Layout{options: options, urls: map[string]string{}, serverPairs: map[string]testpki.Pair{}}
	for _, step := range []func() error{l.certificates, l.addresses, l.describe, l.writeKubeconfig} {
		if err := step(); err != nil {
			return nil, fmt.Errorf("laying out an installation in %s: %w", options.Directory, err)
		}
	}
	if options.Prepared != nil {
		options.Prepared(l)
	}
	return l, nil
}

// URL returns where a server listens, by its name.
func (l *Layout) URL(name string) string { return l.urls[name] }

// Shards returns the names of the shards.
func (l *Layout) Shards() []string { return l.options.Shards }

// Client returns the configuration of a client with a certificate, at a URL of the installation.
func (l *Layout) Client(url, name string, groups ...string) (*rest.Config, error) {
	pair, err := l.clients.Issue(name, groups...)
	return l.client(url, pair), err
}

// NewClient is Client with a certificate that is valid from this moment on.
func (l *Layout) NewClient(url, name string, groups ...string) (*rest.Config, error) {
	pair, err := l.clients.IssueNow(name, groups...)
	return l.client(url, pair), err
}

func (l *Layout) client(url string, pair testpki.Pair) *rest.Config {
	return &rest.Config{Host: url, QPS: -1, TLSClientConfig: rest.TLSClientConfig{
		CAFile: l.servers.CertFile, CertFile: pair.CertFile, KeyFile: pair.KeyFile,
	}}
}

// ProxyCertificate returns a certificate like that by which the front proxy tells shards who the user is. Shards believe
// it under the name of the proxy alone.
func (l *Layout) ProxyCertificate(name string) (testpki.Pair, error) { return l.proxies.Issue(name) }

// CAFiles are the certificates of the authorities of servers, of clients, and of front proxies towards shards.
func (l *Layout) CAFiles() (servers, clients, proxies string) {
	return l.servers.CertFile, l.clients.CertFile, l.proxies.CertFile
}

// Masters returns the configuration of a client in system:masters at a server, which must not be the front proxy.
func (l *Layout) Masters(server string) (*rest.Config, error) {
	return l.Client(l.URL(server), "shard-admin", masters)
}

// Admin returns the configuration of kcp's administrator at the front proxy.
func (l *Layout) Admin() (*rest.Config, error) { return l.Client(l.URL(FrontProxy), adminName, admins) }

func (l *Layout) certificates() error {
	directory, err := l.directory("pki")
	if err != nil {
		return err
	}
	for name, authority := range map[string]**testpki.Authority{"servers": &l.servers, "clients": &l.clients, "proxies": &l.proxies} {
		if *authority, err = testpki.New(directory, name, l.options.Validity); err != nil {
			return err
		}
	}
	l.signingKey = filepath.Join(directory, "service-accounts.key")
	if _, err := os.Stat(l.signingKey); err == nil {
		return nil // that of an earlier run: tokens that it signed stay valid
	}
	return testpki.SigningKey(l.signingKey)
}

func (l *Layout) addresses() error {
	ports := map[string]int{FrontProxy: proxyPort}
	if !l.options.NoCache {
		ports[CacheServer] = cachePort
	}
	for i, shard := range l.options.Shards {
		if _, taken := ports[shard]; taken {
			return fmt.Errorf("got the shard %q twice, or with the name of another server", shard)
		}
		ports[shard] = shardPort + i
	}
	var listeners []net.Listener // open until all have one, so that none is given twice
	for name, port := range ports {
		if l.options.FreePorts {
			port = 0
		}
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			return fmt.Errorf("the address of %s is not free: %w", name, err)
		}
		listeners = append(listeners, listener)
		l.urls[name] = "https://" + net.JoinHostPort(l.address(name), strconv.Itoa(listener.Addr().(*net.TCPAddr).Port))
	}
	var errs []error
	for _, listener := range listeners {
		errs = append(errs, listener.Close())
	}
	return errors.Join(errs...)
}

func (l *Layout) describe() error {
	if !l.options.NoCache {
		cache, err := l.cache()
		if err != nil {
			return err
		}
		l.Servers = append(l.Servers, cache)
	}
	for _, name := range l.options.Shards {
		shard, err := l.shard(name)
		if err != nil {
			return err
		}
		l.Servers = append(l.Servers, shard)
	}
	proxy, err := l.proxy()
	l.Servers = append(l.Servers, proxy)
	return err
}

// address returns the IP address of a server.
func (l *Layout) address(name string) string {
	return cmp.Or(l.options.Places[name].Address, "127.0.0.1")
}

// directory makes a directory of the installation.
func (l *Layout) directory(name string) (string, error) {
	directory := filepath.Join(l.options.Directory, name)
	return directory, os.MkdirAll(directory, 0o700)
}

// serving returns the flags of the port and the certificate of a server.
func (l *Layout) serving(name string) ([]string, error) {
	pair, err := l.servers.IssueAt(net.ParseIP(l.address(name)), name)
	if err != nil {
		return nil, err
	}
	l.serverPairs[name] = pair
	_, port, err := net.SplitHostPort(l.urls[name][len("https://"):])
	return []string{
		"--bind-address=" + l.address(name), "--secure-port=" + port, "--tls-cert-file=" + pair.CertFile, "--tls-private-key-file=" + pair.KeyFile,
		"--client-ca-file=" + l.clients.CertFile,
	}, err
}

// Reissue replaces the serving certificate of a server, in the files that it has. It has expired already if valid is
// negative.
func (l *Layout) Reissue(name string, valid time.Duration) error {
	issued, err := l.servers.IssueFor(valid, name)
	if err != nil {
		return err
	}
	had := l.serverPairs[name]
	return errors.Join(os.Rename(issued.KeyFile, had.KeyFile), os.Rename(issued.CertFile, had.CertFile))
}

// embeddedEtcd are the flags of an etcd in the process, which nobody else has to find.
func embeddedEtcd() []string {
	return []string{"--embedded-etcd-client-port=0", "--embedded-etcd-peer-port=0", "--embedded-etcd-wal-size-bytes=1000000"}
}

func (l *Layout) cache() (Server, error) {
	flags, err := l.serving(CacheServer)
	if err != nil {
		return Server{}, err
	}
	directory, err := l.directory(CacheServer)
	args := slices.Concat([]string{"--root-directory=" + directory}, flags, embeddedEtcd(), l.options.CacheFlags)
	return l.server(CacheServer, "cache-server", args), err
}
