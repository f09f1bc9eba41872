// Package installation runs an installation for tests as operators run it: the real binaries, certificates and flags like those of the
// operator, a tenant who connects through the proxy. It has three shards and a cache server, because more than one shard is the normal
// case. Tests of many requests through the whole stack start here; behaviour of a single shard is tested with shardserver/testing, which
// starts faster.
package installation

import (
	"cmp"
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/programs"
	"github.com/atoll-dev/atoll/test/sharded"
)

// Names in certificates, as the operator sets them.
const (
	adminName = "kcp-admin"
	masters   = "system:masters"
	admins    = "system:kcp:admin"
)

// Names of the shards.
const (
	Root  = sharded.RootShard
	Alpha = "alpha"
	Beta  = "beta"
)

// Installation is a number of running shards behind a running front proxy.
type Installation struct {
	// URL is the URL of the front proxy.
	URL string
	// Shard is the base URL of the root shard.
	Shard string

	binaries, directory string
	layout              *sharded.Layout

	mu        sync.Mutex
	processes map[string]*programs.Process
}

// Build compiles the binaries, and more packages, into a directory. root is the path of the module's root from the working directory.
func Build(ctx context.Context, root, directory string, more ...string) error {
	return programs.Build(ctx, root, directory, append([]string{"./cmd/kcp", "./cmd/kcp-front-proxy", "./cmd/cache-server"}, more...)...)
}

// Start runs three shards, a cache server and a front proxy from the binaries in the directory bin until the test ends.
// Additional flags are passed to every shard.
func Start(t testing.TB, bin string, shardFlags ...string) *Installation {
	t.Helper()
	return StartWith(t, bin, sharded.Options{Shards: []string{Root, Alpha, Beta}, ShardFlags: shardFlags})
}

// StartWith runs an installation with the given options, in a directory and on ports of the test. Certificates are valid for
// an hour unless the options say otherwise.
func StartWith(t testing.TB, bin string, options sharded.Options) *Installation {
	t.Helper()
	options.Directory, options.FreePorts, options.Validity = t.TempDir(), true, cmp.Or(options.Validity, time.Hour)
	layout, err := sharded.New(options)
	if err != nil {
		t.Fatal(err)
	}
	i := &Installation{
		URL: layout.URL(sharded.FrontProxy), Shard: layout.URL(Root),
		binaries: bin, directory: options.Directory, layout: layout, processes: map[string]*programs.Process{},
	}
	for _, server := range layout.Servers {
		i.run(t, server)
	}
	for _, server := range layout.Servers {
		i.WaitReady(t, server.Name)
	}
	return i
}

// Shards returns the names of the shards.
func (i *Installation) Shards() []string { return i.layout.Shards() }

// ServerURL returns the URL of a shard, of sharded.CacheServer or of sharded.FrontProxy.
func (i *Installation) ServerURL(name string) string { return i.layout.URL(name) }

// newLookup returns a function that looks up the location of a logical cluster, empty if no shard has it.
func (i *Installation) newLookup(t testing.TB) func(path string) location {
	t.Helper()
	admin, err := rest.HTTPClientFor(i.client(t, i.URL, adminName, admins))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.CloseIdleConnections)
	return func(path string) location {
		response, err := admin.Get(i.URL + "/clusters/" + path + "/apis/core.kcp.io/v1alpha1/logicalclusters/" + corev1alpha1.LogicalClusterName)
		if err != nil {
			return location{}
		}
		defer response.Body.Close()
		cluster := &corev1alpha1.LogicalCluster{}
		if err := json.NewDecoder(response.Body).Decode(cluster); err != nil {
			return location{}
		}
		return location{cluster.Annotations[corev1alpha1.ShardAnnotationKey], logicalcluster.Of(cluster).String()}
	}
}

// Admin returns a client configuration of the kcp administrator at the front proxy, for the logical cluster at a path.
func (i *Installation) Admin(t testing.TB, path string) *rest.Config {
	return shardtesting.At(i.client(t, i.URL, adminName, admins), path)
}

// User returns a client configuration of a user at the front proxy, for the logical cluster at a path.
func (i *Installation) User(t testing.TB, path, name string, groups ...string) *rest.Config {
	return shardtesting.At(i.client(t, i.URL, name, groups...), path)
}

// Masters returns a client configuration of a member of system:masters at a server, at its bare URL.
func (i *Installation) Masters(t testing.TB, server string) *rest.Config {
	return i.client(t, i.ServerURL(server), "shard-admin", masters)
}

func (i *Installation) client(t testing.TB, url, name string, groups ...string) *rest.Config {
	t.Helper()
	config, err := i.layout.Client(url, name, groups...)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// WriteKubeconfig writes a client configuration to a file, for programs that need one.
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

// Layout returns the layout of the installation.
func (i *Installation) Layout() *sharded.Layout { return i.layout }

// Directory returns the data directory, which has one subdirectory per server.
func (i *Installation) Directory() string { return i.directory }
