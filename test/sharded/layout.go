// Package sharded lays out an installation on one machine: a root shard, more shards, a cache server and a front proxy,
// with the certificates, kubeconfigs and flags that the operator would give them. It only describes the processes:
// hack/sharded runs them for developers, package installation for tests.
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
	"github.com/atoll-dev/atoll/test/freeport"
)

// Names and groups in certificates.
const (
	adminName  = "kcp-admin"
	admins     = "system:kcp:admin"
	masters    = "system:masters"
	proxyName  = "kcp-front-proxy"
	shardGroup = "system:kcp:shard"

	// RootShard is the name of the first shard.
	RootShard = "root"
	// CacheServer and FrontProxy are the names of the servers that are not shards.
	CacheServer, FrontProxy = "cache", "proxy"
)

// Ports of a developer's installation: those of kcp, so that its scripts work. Shard n listens on shardPort + n.
const (
	proxyPort = 6443
	shardPort = 6444
	cachePort = 8012
)

// Options configure a layout.
type Options struct {
	// Directory contains all files; it is absolute and exists.
	Directory string
	// Shards are the names of the shards, "root" first.
	Shards []string
	// NoCache omits the cache server: the shards use the one of the root shard.
	NoCache bool
	// FreePorts makes every server listen on a free port instead of a well-known one.
	FreePorts bool
	// Validity of all certificates; 0 means a year.
	Validity time.Duration
	// Hosts are the networks of servers that do not run on the loopback interface.
	Hosts map[string]Host
	// Relays are the addresses, "host:port", at which the other servers reach a server that they do not reach directly: those of relays
	// that run on the loopback interface.
	Relays map[string]string
	// OnPrepared is called with the layout before any process starts, if it is set: for relays.
	OnPrepared func(*Layout)
	// Flags are additional flags of single servers.
	Flags map[string][]string
	// ShardFlags, CacheFlags and ProxyFlags are additional flags of every shard, the cache server and the front proxy.
	ShardFlags, CacheFlags, ProxyFlags []string
	// Regions labels the shards by regions, so that workspaces and partitions can select some.
	Regions bool
}

// Host is the separate network of a server.
type Host struct {
	// Address is the IP address that the server listens on.
	Address string
	// Command precedes the server's own command line, for example "ip netns exec <name>".
	Command []string
}

// Server is one process of the installation.
type Server struct {
	// Name is the name of the shard, CacheServer or FrontProxy.
	Name string
	// Program is the file name of the binary.
	Program string
	// Args are its arguments.
	Args []string
	// URL is its base URL.
	URL string
	// Command precedes the program, if it is set.
	Command []string
}

func (l *Layout) server(name, program string, args []string) Server {
	args = append(args, l.options.Flags[name]...)
	return Server{Name: name, Program: program, Args: args, URL: l.urls[name], Command: l.options.Hosts[name].Command}
}

// Layout is an installation that can be started.
type Layout struct {
	// Servers are in the order of their dependencies. All may be started at once: each waits for its dependencies.
	Servers []Server
	// Kubeconfig is a file with the contexts "base" and "root", an administrator at the front proxy, and "shard-base",
	// system:masters at the root shard.
	Kubeconfig string

	options                   Options
	servers, clients, proxies *testpki.Authority
	urls                      map[string]string
	serverPairs               map[string]testpki.Pair
	clientPairs               map[string]clientPair
}

// clientPair is the certificate with which a server connects to another one.
type clientPair struct {
	testpki.Pair
	authority *testpki.Authority
	name      string
	groups    []string
}

// New writes the files of an installation.
func New(options Options) (*Layout, error) {
	if len(options.Shards) == 0 || options.Shards[0] != RootShard {
		return nil, fmt.Errorf("got the shards %q, expected %q first", options.Shards, RootShard)
	}
	if options.Validity == 0 {
		options.Validity = 365 * 24 * time.Hour
	}
	l := &Layout{options: options, urls: map[string]string{}, serverPairs: map[string]testpki.Pair{}, clientPairs: map[string]clientPair{}}
	for _, step := range []func() error{l.createCertificates, l.assignAddresses, l.buildServers, l.writeAdminKubeconfig} {
		if err := step(); err != nil {
			return nil, fmt.Errorf("laying out an installation in %s: %w", options.Directory, err)
		}
	}
	if options.OnPrepared != nil {
		options.OnPrepared(l)
	}
	return l, nil
}

// URL returns the base URL of a server, by its name.
func (l *Layout) URL(name string) string { return l.urls[name] }

// Shards returns the names of the shards.
func (l *Layout) Shards() []string { return l.options.Shards }

// Client returns the configuration of a client with a certificate, at a URL of the installation.
func (l *Layout) Client(url, name string, groups ...string) (*rest.Config, error) {
	pair, err := l.clients.Issue(name, groups...)
	return l.client(url, pair), err
}

// NewClient is Client with a certificate whose validity starts now.
func (l *Layout) NewClient(url, name string, groups ...string) (*rest.Config, error) {
	pair, err := l.clients.IssueNow(name, groups...)
	return l.client(url, pair), err
}

// ClientFor is Client with a certificate of another validity.
func (l *Layout) ClientFor(validity time.Duration, url, name string, groups ...string) (*rest.Config, error) {
	pair, err := l.clients.IssueFor(validity, name, groups...)
	return l.client(url, pair), err
}

func (l *Layout) client(url string, pair testpki.Pair) *rest.Config {
	return &rest.Config{Host: url, QPS: -1, TLSClientConfig: rest.TLSClientConfig{
		CAFile: l.servers.CertFile, CertFile: pair.CertFile, KeyFile: pair.KeyFile,
	}}
}

// ProxyCertificate returns a certificate of the authority that signs the front proxy's client certificate for shards.
// Shards trust it only with the name of the proxy.
func (l *Layout) ProxyCertificate(name string) (testpki.Pair, error) { return l.proxies.Issue(name) }

// ServerCertificate returns a certificate of the authority that signs serving certificates.
func (l *Layout) ServerCertificate(name string) (testpki.Pair, error) { return l.servers.Issue(name) }

// CAFiles returns the certificates of the authorities for servers, for clients, and for front proxies that connect to
// shards.
func (l *Layout) CAFiles() (servers, clients, proxies string) {
	return l.servers.CertFile, l.clients.CertFile, l.proxies.CertFile
}

// Masters returns the configuration of a client in system:masters at a server, which must not be the front proxy.
func (l *Layout) Masters(server string) (*rest.Config, error) {
	return l.Client(l.URL(server), "shard-admin", masters)
}

// Admin returns the configuration of the kcp administrator at the front proxy.
func (l *Layout) Admin() (*rest.Config, error) { return l.Client(l.URL(FrontProxy), adminName, admins) }

func (l *Layout) createCertificates() error {
	directory, err := l.directory("pki")
	if err != nil {
		return err
	}
	for name, authority := range map[string]**testpki.Authority{"servers": &l.servers, "clients": &l.clients, "proxies": &l.proxies} {
		if *authority, err = testpki.New(directory, name, l.options.Validity); err != nil {
			return err
		}
	}
	for _, shard := range l.options.Shards {
		if _, err := os.Stat(l.SigningKey(shard)); err == nil {
			continue // the key of an earlier run: tokens that it signed remain valid
		}
		if err := testpki.WriteSigningKey(l.SigningKey(shard)); err != nil {
			return err
		}
	}
	return nil
}

// SigningKey returns the file of the key with which a shard signs service account tokens. The public key is in the same directory, with
// the suffix ".pub".
func (l *Layout) SigningKey(shard string) string {
	return filepath.Join(l.options.Directory, "pki", shard+"-service-accounts.key")
}

func (l *Layout) assignAddresses() error {
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
	var listeners []net.Listener // open until all are assigned, so that none is assigned twice
	for name, port := range ports {
		listen := func() (net.Listener, error) {
			return net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		}
		if l.options.FreePorts {
			listen = freeport.Listen
		}
		listener, err := listen()
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

func (l *Layout) buildServers() error {
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
	return cmp.Or(l.options.Hosts[name].Address, "127.0.0.1")
}

// directory creates a directory of the installation.
func (l *Layout) directory(name string) (string, error) {
	directory := filepath.Join(l.options.Directory, name)
	return directory, os.MkdirAll(directory, 0o700)
}

// servingFlags returns the flags of the port and the certificate of a server.
func (l *Layout) servingFlags(name string) ([]string, error) {
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

// Reissue replaces the serving certificate of a server, in its files. The new certificate is already expired if valid is negative.
func (l *Layout) Reissue(name string, validity time.Duration) error {
	issued, err := l.servers.IssueFor(validity, name)
	if err != nil {
		return err
	}
	return replace(l.serverPairs[name], issued)
}

// ReissueClient is Reissue for the certificate with which a server connects to another one: of a shard to RootShard or to
// CacheServer, and of FrontProxy to "shards", for requests of users.
func (l *Layout) ReissueClient(name, to string, validity time.Duration) error {
	current, ok := l.clientPairs[connection(name, to)]
	if !ok {
		return fmt.Errorf("%s has no certificate for %s", name, to)
	}
	issued, err := current.authority.IssueFor(validity, current.name, current.groups...)
	if err != nil {
		return err
	}
	return replace(current.Pair, issued)
}

func connection(name, to string) string { return name + " to " + to }

// replace replaces the files of a certificate, the key first: servers read both when one changes, and use the previous certificate until
// both match.
func replace(current, issued testpki.Pair) error {
	return errors.Join(os.Rename(issued.KeyFile, current.KeyFile), os.Rename(issued.CertFile, current.CertFile))
}

// embeddedEtcdFlags returns the flags of an embedded etcd, to which no other process connects. With this curve, handshakes at the start
// take less time than with the default one.
func embeddedEtcdFlags() []string {
	return []string{"--embedded-etcd-client-port=0", "--embedded-etcd-peer-port=0", "--embedded-etcd-wal-size-bytes=1000000", "--embedded-etcd-ecdsa-curve=P-256"}
}

func (l *Layout) cache() (Server, error) {
	flags, err := l.servingFlags(CacheServer)
	if err != nil {
		return Server{}, err
	}
	directory, err := l.directory(CacheServer)
	args := slices.Concat([]string{"--root-directory=" + directory}, flags, embeddedEtcdFlags(), l.options.CacheFlags)
	return l.server(CacheServer, "cache-server", args), err
}
