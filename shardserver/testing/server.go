// Package testing starts shards inside a test process, with a real etcd, the complete handler chain and all
// controllers. Tests access them through clients, as users do.
package testing

import (
	"context"
	"math"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/keyutil"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/embeddedcache"
	"github.com/atoll-dev/atoll/internal/etcdtest"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver"
	"github.com/atoll-dev/atoll/shardserver/authentication/adminauth"
	"github.com/atoll-dev/atoll/shardserver/loopback"
	"github.com/atoll-dev/atoll/shardserver/options"
)

// readyTimeout bounds the wait for /readyz. It is long because tests share few cores.
const readyTimeout = 2 * time.Minute

// Shard is a running shard. Its directory survives Stop, so that it can be started again.
type Shard struct {
	// Server is the server in this process.
	Server *shardserver.Server
	// Directory is its root directory.
	Directory string

	stop func() error
}

// Start runs a shard on a free port of the loopback interface and waits until it is ready. It stops at the end of the
// test.
func Start(t testing.TB, configure ...func(*options.Options)) *Shard {
	t.Helper()
	return StartIn(t, t.TempDir(), configure...)
}

// StartIn is Start with the root directory of an earlier run.
func StartIn(t testing.TB, directory string, configure ...func(*options.Options)) *Shard {
	t.Helper()
	completed, err := Options(t, directory, configure...).Complete()
	if err != nil {
		t.Fatalf("completing options: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	server, err := shardserver.New(ctx, completed, embeddedcache.New)
	if err != nil {
		cancel()
		t.Fatalf("creating the shard: %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	shard := &Shard{Server: server, Directory: directory}
	shard.stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() {
		if err := shard.Stop(); err != nil {
			t.Errorf("stopping the shard: %v", err)
		}
	})
	shard.waitReady(t, ended)
	return shard
}

// Options returns the options of a shard that Start starts.
func Options(t testing.TB, directory string, configure ...func(*options.Options)) *options.Options {
	t.Helper()
	ensureSigningKey(t, directory)
	opts := options.New(directory)
	opts.SecureServing.BindAddress = net.IPv4(127, 0, 0, 1)
	opts.SecureServing.BindPort = 0
	opts.BindFreePort = true
	opts.EmbeddedEtcd.ClientPort, opts.EmbeddedEtcd.PeerPort = 0, 0
	opts.EmbeddedEtcd.WALSizeBytes = 5000
	opts.EmbeddedEtcd.ECDSACurve = etcdtest.Curve
	opts.EmbeddedEtcd.UnsafeNoFsync = true
	opts.BatteriesIncluded = []string{"+user"}
	opts.UsageInterval = time.Hour // tests compare the keys of etcd
	for _, change := range configure {
		change(opts)
	}
	return opts
}

// ensureSigningKey creates a small signing key, because generating the default one of 4096 bits is slow.
func ensureSigningKey(t testing.TB, directory string) {
	t.Helper()
	file := filepath.Join(directory, "sa.key")
	if _, err := os.Stat(file); err == nil {
		return
	}
	if err := os.MkdirAll(directory, 0o700); err != nil {
		t.Fatal(err)
	}
	encoded, err := keyutil.MarshalPrivateKeyToPEM(newKey(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, encoded, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Stop shuts the shard down gracefully and returns when it has stopped.
func (s *Shard) Stop() error { return s.stop() }

func (s *Shard) waitReady(t testing.TB, ended chan error) {
	t.Helper()
	clients := s.Kubernetes(t, s.Masters(t))
	var last string
	err := wait.PollUntilContextTimeout(context.Background(), 20*time.Millisecond, readyTimeout, true, func(ctx context.Context) (bool, error) {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("the shard ended before it was ready: %v", err)
		default:
		}
		body, err := clients.Discovery().RESTClient().Get().AbsPath("/readyz").Param("verbose", "").DoRaw(ctx)
		last = string(body)
		return err == nil, nil
	})
	if err != nil {
		t.Fatalf("the shard did not become ready: %v\n%s", err, last)
	}
}

// Masters returns the configuration of a client in system:masters, at the shard's base URL.
func (s *Shard) Masters(t testing.TB) *rest.Config { return s.config(t, "shard-base") }

// Admin returns the configuration of a client in system:kcp:admin, at the shard's base URL.
func (s *Shard) Admin(t testing.TB) *rest.Config { return s.config(t, "base") }

// User returns the configuration of a user without groups, at the shard's base URL.
func (s *Shard) User(t testing.TB) *rest.Config {
	config := s.config(t, adminauth.PlainUser)
	config.Host = s.Masters(t).Host
	return config
}

func (s *Shard) config(t testing.TB, contextName string) *rest.Config {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(s.Directory, "admin.kubeconfig"))
	if err != nil {
		t.Fatalf("reading the admin kubeconfig: %v", err)
	}
	kubeconfig, err := clientcmd.Load(raw)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.NewNonInteractiveClientConfig(*kubeconfig, contextName, &clientcmd.ConfigOverrides{}, nil).ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	config.QPS, config.Burst = -1, 0
	return config
}

// Client returns a typed client whose requests go to the logical cluster of their context (see In).
func (s *Shard) Client(t testing.TB, config *rest.Config) client.Client {
	t.Helper()
	c, err := loopback.NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Kubernetes returns a clientset for the URL of the configuration.
func (s *Shard) Kubernetes(t testing.TB, config *rest.Config) kubernetes.Interface {
	t.Helper()
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return clientset
}

// At returns a copy of the configuration with the URL of a logical cluster, given by name or path, or "*".
func At(config *rest.Config, path string) *rest.Config {
	at := rest.CopyConfig(config)
	at.Host += "/clusters/" + path
	return at
}

// In returns a context for a Client's requests to a logical cluster.
func In(ctx context.Context, cluster string) context.Context {
	return logicalcluster.With(ctx, logicalcluster.MustParseName(cluster))
}

// Eventually is EventuallyWithin a minute.
func Eventually(t testing.TB, what string, condition func(context.Context) error) {
	t.Helper()
	EventuallyWithin(t, time.Minute, what, condition)
}

// EventuallyWithin polls until the condition returns nil, and fails the test with its last error at the timeout. It polls less often with
// time: conditions are requests, which would compete with what they wait for.
func EventuallyWithin(t testing.TB, timeout time.Duration, what string, condition func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	last := context.DeadlineExceeded
	backoff := wait.Backoff{Duration: 10 * time.Millisecond, Factor: 1.3, Steps: math.MaxInt32, Cap: time.Second}
	err := backoff.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		last = condition(ctx)
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%s within %s: %v", what, timeout, last)
	}
}
