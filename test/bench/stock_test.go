package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/kubeapiserver"
	"github.com/atoll-dev/atoll/test/programs"
)

// apiServer is a server under comparison: a separate process, reached over TLS as a member of system:masters.
type apiServer struct {
	name string
	// config reaches the API under measurement, base the metrics of the process.
	config, base *rest.Config
	client       *http.Client
	// collect is a URL that triggers a garbage collection of the process, requested with collector.
	collect   string
	collector *http.Client
}

// startServers runs a kube-apiserver and a shard on one etcd, whose responses are delayed, and creates a workspace in the
// shard.
func startServers(b *testing.B, delay time.Duration) []*apiServer {
	b.Helper()
	etcd := startEtcd(b).delayed(b, delay)
	return []*apiServer{startStock(b, etcd), startShard(b, etcd)}
}

// startStock runs stock kube-apiserver with its default admission and RBAC.
func startStock(b *testing.B, etcd *etcdServer) *apiServer {
	b.Helper()
	if err := stockBinary(); err != nil {
		b.Fatal(err)
	}
	ca := shardtesting.NewCA(b, "stock")
	cert, key := ca.Issue(b, "kube-apiserver")
	signing := programs.SigningKey(b, filepath.Join(b.TempDir(), "sa.key"))
	address := programs.FreeAddress(b)
	_, port, _ := net.SplitHostPort(address)
	launch(b, "kube-apiserver",
		"--etcd-servers="+etcd.url, "--etcd-prefix=/stock", "--bind-address=127.0.0.1", "--secure-port="+port, "--tls-cert-file="+cert, "--tls-private-key-file="+key,
		"--client-ca-file="+ca.CertFile, "--authorization-mode=RBAC", "--service-cluster-ip-range=10.0.0.0/24", "--service-account-issuer=https://stock.example.com",
		"--service-account-key-file="+signing, "--service-account-signing-key-file="+signing, "--token-auth-file="+tokenFile(b))
	config := ca.Client(b, &rest.Config{Host: "https://" + address, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAFile: ca.CertFile}}, "bench", "system:masters")
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		b.Fatal(err)
	}
	p := &apiServer{name: "kube-apiserver", config: config, base: config, client: client, collect: config.Host + "/debug/pprof/heap?gc=1", collector: client}
	p.waitReady(b)
	return p
}

// startShard runs a shard and creates a workspace in it.
func startShard(b *testing.B, etcd *etcdServer) *apiServer {
	b.Helper()
	directory, address, profiler := b.TempDir(), programs.FreeAddress(b), programs.FreeAddress(b)
	_, port, _ := net.SplitHostPort(address)
	launch(b, "kcp", "start", "--root-directory="+directory, "--bind-address=127.0.0.1", "--secure-port="+port, "--etcd-servers="+etcd.url, "--etcd-prefix=/shard",
		"--service-account-private-key-file="+programs.SigningKey(b, filepath.Join(b.TempDir(), "sa.key")), "--profiler-address="+profiler,
		"--token-auth-file="+tokenFile(b))
	var base *rest.Config
	eventually(b, "the shard writes its kubeconfig", func(context.Context) error {
		kubeconfig, err := clientcmd.LoadFromFile(filepath.Join(directory, "admin.kubeconfig"))
		if err != nil {
			return err
		}
		base, err = clientcmd.NewNonInteractiveClientConfig(*kubeconfig, "shard-base", &clientcmd.ConfigOverrides{}, nil).ClientConfig()
		if err != nil {
			return err
		}
		base.QPS = -1
		return nil
	})
	client, err := rest.HTTPClientFor(base)
	if err != nil {
		b.Fatal(err)
	}
	p := &apiServer{name: "shard", base: base, client: client, collect: "http://" + profiler + "/debug/pprof/heap?gc=1", collector: http.DefaultClient}
	p.waitReady(b)
	p.config = shardtesting.At(base, newWorkspace(b, base, "root", "bench"))
	return p
}

func newWorkspace(b *testing.B, base *rest.Config, parent, name string) (cluster string) {
	b.Helper()
	c, err := newClusterClient(base)
	if err != nil {
		b.Fatal(err)
	}
	ctx := shardtesting.In(b.Context(), parent)
	workspace := &tenancyv1alpha1.Workspace{}
	workspace.Name, workspace.Spec.Type = name, &tenancyv1alpha1.WorkspaceTypeReference{Name: "universal", Path: "root"}
	eventually(b, "workspace "+name+" is accepted", func(context.Context) error { return c.Create(ctx, workspace) })
	eventually(b, "workspace "+name+" is Ready", func(context.Context) error {
		if err := c.Get(ctx, keyOf(workspace), workspace); err != nil {
			return err
		}
		if workspace.Status.Phase != "Ready" {
			return fmt.Errorf("phase is %q", workspace.Status.Phase)
		}
		return nil
	})
	return workspace.Spec.Cluster
}

func (a *apiServer) waitReady(b *testing.B) {
	b.Helper()
	eventually(b, a.name+" is ready", func(ctx context.Context) error { return kubeapiserver.CheckReady(ctx, a.base) })
}

// heap returns the live heap of the process after a garbage collection, in bytes.
func (a *apiServer) heap(b *testing.B) float64 {
	b.Helper()
	size := math.Inf(1)
	for range 10 { // objects in a sync.Pool survive a first collection
		a.collectGarbage(b)
		last := size
		if size = a.metrics(b, "go_memstats_heap_alloc_bytes")[0]; size > last*0.99 {
			break
		}
	}
	return size
}

func (a *apiServer) collectGarbage(b *testing.B) {
	b.Helper()
	response, err := a.collector.Get(a.collect)
	if err != nil {
		b.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		b.Fatalf("collecting the garbage of %s: %s", a.name, response.Status)
	}
}

// usage is what a process has used since its start.
type usage struct {
	// processor is processor time in seconds, allocated is bytes.
	processor, allocated float64
}

// since returns the difference to an earlier usage.
func (u usage) since(before usage) usage {
	return usage{processor: u.processor - before.processor, allocated: u.allocated - before.allocated}
}

func (a *apiServer) currentUsage(b *testing.B) usage {
	b.Helper()
	values := a.metrics(b, "process_cpu_seconds_total", "go_memstats_alloc_bytes_total")
	return usage{processor: values[0], allocated: values[1]}
}

// metrics returns the values of metrics without labels.
func (a *apiServer) metrics(b *testing.B, names ...string) []float64 {
	b.Helper()
	values, found := make([]float64, len(names)), 0
	for line := range bytes.Lines(getRaw(b, a.base, "/metrics")) {
		name, value, _ := strings.Cut(string(bytes.TrimSpace(line)), " ")
		at := slices.Index(names, name)
		if at < 0 {
			continue
		}
		var err error
		if values[at], err = strconv.ParseFloat(value, 64); err != nil {
			b.Fatal(err)
		}
		found++
	}
	if found != len(names) {
		b.Fatalf("%s does not expose all of %v", a.name, names)
	}
	return values
}
