package security_test

import (
	"context"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/atoll-dev/atoll/cacheserver"
	cacheoptions "github.com/atoll-dev/atoll/cacheserver/options"
	"github.com/atoll-dev/atoll/internal/writetimeout"
	"github.com/atoll-dev/atoll/proxy"
	proxyoptions "github.com/atoll-dev/atoll/proxy/options"
	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/sharded"
)

// The servers enable all optional feature gates: nobody can attack a disabled feature.
const (
	shardGates = "--feature-gates=WorkspaceAuthentication=true,WorkspaceMounts=true,CacheAPIs=true"
	proxyGates = "--feature-gates=WorkspaceAuthentication=true,WorkspaceMounts=true"
)

// startServers runs an installation with the command lines of a real one, but in this process: after the attacks the
// test reads the etcd of every shard.
func (e *env) startServers(t *testing.T, layoutOptions sharded.Options) {
	t.Helper()
	var err error
	e.directory = t.TempDir()
	layoutOptions.Directory, layoutOptions.FreePorts, layoutOptions.Validity = e.directory, true, time.Hour
	layoutOptions.ShardFlags, layoutOptions.ProxyFlags = []string{shardGates}, []string{proxyGates}
	e.layout, err = sharded.New(layoutOptions)
	must(t, err)
	servers, _, _ := e.layout.CAFiles()
	e.ca, err = os.ReadFile(servers)
	must(t, err)
	e.roots = x509.NewCertPool()
	e.roots.AppendCertsFromPEM(e.ca)
	e.shards = map[string]*shardtesting.Shard{}
	ports := map[string]net.Listener{} // reserved, so that no other process binds them
	for _, server := range e.layout.Servers {
		ports[server.Name], err = net.Listen("tcp", strings.TrimPrefix(server.URL, "https://"))
		must(t, err)
	}
	for _, server := range e.layout.Servers {
		switch server.Name {
		case sharded.CacheServer:
			startCache(t, server, ports[server.Name])
		case sharded.FrontProxy:
			startProxy(t, server, ports[server.Name])
		default:
			e.shards[server.Name] = startShard(t, filepath.Join(e.directory, server.Name), server, ports[server.Name])
		}
	}
	e.proxyURL, e.cacheURL = e.layout.URL(sharded.FrontProxy), e.layout.URL(sharded.CacheServer)
}

// writeTimeouts are short, so that tests need not wait long for them.
var writeTimeouts = writetimeout.Timeouts{Response: 5 * time.Second, Watch: 5 * time.Second}

func startShard(t *testing.T, directory string, server sharded.Server, port net.Listener) *shardtesting.Shard {
	t.Helper()
	return shardtesting.StartIn(t, directory, func(o *options.Options) {
		var sets cliflag.NamedFlagSets
		o.AddFlags(&sets)
		parse(t, sets, server.Args[1:]) // arguments after "start"
		o.BindFreePort, o.SecureServing.Listener, o.WriteTimeouts = false, port, writeTimeouts
	})
}

func startCache(t *testing.T, server sharded.Server, port net.Listener) {
	t.Helper()
	o := cacheoptions.New()
	var sets cliflag.NamedFlagSets
	o.AddFlags(&sets)
	parse(t, sets, server.Args)
	o.EmbeddedEtcd.UnsafeNoFsync, o.SecureServing.Listener = true, port
	o.ServerRun.ShutdownWatchTerminationGracePeriod = 100 * time.Millisecond
	config, err := o.Complete()
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	cache, err := cacheserver.New(ctx, config)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	run(t, ctx, cancel, cache.Run)
}

func startProxy(t *testing.T, server sharded.Server, port net.Listener) {
	t.Helper()
	o := proxyoptions.New()
	flags := pflag.NewFlagSet(server.Name, pflag.ContinueOnError)
	o.AddFlags(flags)
	must(t, flags.Parse(server.Args))
	o.ShutdownTimeout, o.SecureServing.Listener, o.WriteTimeouts = time.Second, port, writeTimeouts
	completed, err := o.Complete()
	must(t, err)
	config, err := proxy.NewConfig(completed)
	must(t, err)
	complete, err := config.Complete()
	must(t, err)
	front, err := proxy.NewServer(complete)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	run(t, ctx, cancel, front.Run)
}

// run runs a server until the test ends.
func run(t *testing.T, ctx context.Context, cancel context.CancelFunc, server func(context.Context) error) {
	ended := make(chan error, 1)
	go func() { ended <- server(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("a server ended with %v", err)
		}
	})
}

func parse(t *testing.T, sets cliflag.NamedFlagSets, args []string) {
	t.Helper()
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, set := range sets.FlagSets {
		flags.AddFlagSet(set)
	}
	must(t, flags.Parse(args))
}
