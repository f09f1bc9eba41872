package bench

import (
	"context"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/atoll-dev/atoll/shardserver/options"
	"github.com/atoll-dev/atoll/test/programs"
)

// programsVariable names the directory of the programs that the processes of one run share.
const programsVariable = "BENCH_PROGRAMS"

// binaries builds the programs that all benchmarks run as separate processes, once.
var binaries = sync.OnceValues(func() (string, error) {
	directory := os.Getenv(programsVariable)
	if directory == "" {
		var err error
		if directory, err = os.MkdirTemp("", "bench-"); err != nil {
			return "", err
		}
		binaryDirectory = directory
	}
	return directory, build("../..", directory, "./cmd/etcd", "./cmd/kcp")
})

// installationBinaries returns the directory with all programs of an installation.
func installationBinaries(b *testing.B) string {
	b.Helper()
	directory, err := binaries()
	if err == nil {
		err = build("../..", directory, "./cmd/kcp-front-proxy", "./cmd/cache-server")
	}
	if err != nil {
		b.Fatal(err)
	}
	return directory
}

// stockBinary builds kube-apiserver into the same directory, once.
var stockBinary = sync.OnceValue(func() error {
	directory, err := binaries()
	if err != nil {
		return err
	}
	return build("../../hack/devcluster", directory, "k8s.io/kubernetes/cmd/kube-apiserver")
})

var binaryDirectory string // removed by TestMain

// build builds the programs of a module that do not exist yet.
func build(module, into string, packages ...string) error {
	packages = slices.DeleteFunc(packages, func(program string) bool {
		_, err := os.Stat(filepath.Join(into, path.Base(program)))
		return err == nil
	})
	if len(packages) == 0 {
		return nil
	}
	return programs.Build(context.Background(), module, into, packages...)
}

// launch runs a program until the benchmark ends.
func launch(b *testing.B, program string, args ...string) {
	b.Helper()
	directory, err := binaries()
	if err != nil {
		b.Fatal(err)
	}
	program = filepath.Join(directory, program)
	if lowServerPriority {
		program, args = "nice", append([]string{"-n", "10", program}, args...)
	}
	programs.Start(b, b.TempDir(), program, args...)
}

// lowServerPriority makes launched programs run with a lower priority than this process.
var lowServerPriority bool

// lowerServerPriority gives this process a higher priority than the programs that a benchmark launches from now on.
func lowerServerPriority(b *testing.B) {
	lowServerPriority = true
	b.Cleanup(func() { lowServerPriority = false })
}

// etcdServer is an etcd in a separate process, so that its memory is not included in that of the shard.
type etcdServer struct {
	url    string
	client *clientv3.Client
}

func startEtcd(b *testing.B) *etcdServer {
	b.Helper()
	s := &etcdServer{url: "http://" + programs.FreeAddress(b)}
	peer := "http://" + programs.FreeAddress(b)
	launch(b, "etcd", "--data-dir=data", "--unsafe-no-fsync", "--log-level=error", "--quota-backend-bytes=8589934592",
		"--listen-client-urls="+s.url, "--advertise-client-urls="+s.url, "--listen-peer-urls="+peer,
		"--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer)
	var err error
	if s.client, err = clientv3.New(clientv3.Config{Endpoints: []string{s.url}}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.client.Close() })
	eventually(b, "etcd is healthy", func(ctx context.Context) error {
		_, err := s.client.Get(ctx, "x")
		return err
	})
	return s
}

// configure makes a shard store its objects here. Histories of etcd and of the shard are pruned as in production, but
// after one minute instead of ten.
func (s *etcdServer) configure(o *options.Options) {
	o.Etcd.StorageConfig.CompactionInterval = 30 * time.Second
	o.Etcd.StorageConfig.Transport.ServerList = []string{s.url}
	o.Etcd.StorageConfig.Transport.TrustedCAFile = ""
}

// etcdUsage is what etcd stores and has executed.
type etcdUsage struct {
	keys, bytes int64
	// writes counts transactions that changed something (the revision).
	writes int64
}

func (s *etcdServer) measure(b *testing.B) etcdUsage {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	count, err := s.client.Get(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithCountOnly())
	if err != nil {
		b.Fatal(err)
	}
	// After the compaction the database holds the current keys and values and etcd's indexes of them.
	if _, err := s.client.Compact(ctx, count.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		b.Fatal(err)
	}
	status, err := s.client.Status(ctx, s.url)
	if err != nil {
		b.Fatal(err)
	}
	return etcdUsage{keys: count.Count, writes: count.Header.Revision, bytes: status.DbSizeInUse}
}

func eventually(b *testing.B, what string, condition func(context.Context) error) {
	b.Helper()
	last := context.DeadlineExceeded
	err := wait.PollUntilContextTimeout(b.Context(), 50*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		last = condition(ctx)
		return last == nil, nil
	})
	if err != nil {
		b.Fatalf("%s: %v", what, last)
	}
}
