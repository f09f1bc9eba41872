// Package frontproxy tests front proxies in all configurations with three real shards, and with failures: of a shard,
// of the root shard while a proxy starts, and of the etcd of the shared index.
package frontproxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	indextesting "github.com/atoll-dev/atoll/internal/sharedindex/testing"
	"github.com/atoll-dev/atoll/shardserver/loopback"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
	"github.com/atoll-dev/atoll/test/sharded"
)

const (
	root  = installation.Root
	alpha = installation.Alpha
	beta  = installation.Beta
	proxy = sharded.FrontProxy
)

// binaries is the directory of the programs, which are built once.
var binaries string

func TestMain(m *testing.M) {
	directory, err := os.MkdirTemp("", "frontproxy-")
	if err == nil {
		err = installation.Build(context.Background(), "../..", directory)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binaries = directory
	code := m.Run()
	os.RemoveAll(directory)
	os.Exit(code)
}

// env is an installation with workspaces on each shard, some of them below a workspace on another shard.
type env struct {
	*installation.Installation
	t      *testing.T
	client *http.Client
	index  []string          // flags of the shared index
	paths  map[string]string // path to the shard of the workspace
}

func newEnv(t *testing.T, etcd *indextesting.Etcd) *env {
	t.Helper()
	s := &env{t: t, index: []string{"--shared-index-etcd-servers=" + strings.Join(etcd.Options().Servers, ",")}}
	s.Installation = installation.StartWith(t, binaries, sharded.Options{Shards: []string{root, alpha, beta}, ShardFlags: s.index})
	config := rest.CopyConfig(s.Admin(t, "root"))
	config.Host = s.URL
	c, err := loopback.NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	if s.client, err = rest.HTTPClientFor(config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.client.CloseIdleConnections)
	s.paths = map[string]string{"root:r": root, "root:a": alpha, "root:a:b": beta, "root:a:b:r": root}
	clusters := map[string]string{"root": "root"}
	for _, path := range []string{"root:r", "root:a", "root:a:b", "root:a:b:r"} {
		at := strings.LastIndex(path, ":")
		w := shardtesting.NewWorkspace(t, c, clusters[path[:at]], path[at+1:], shardtesting.OnShard(s.paths[path]))
		clusters[path] = w.Spec.Cluster
	}
	return s
}

// expect waits until a request for each path returns the status of its shard, 503 with Retry-After.
func (e *env) expect(when string, status map[string]int) {
	e.t.Helper()
	for path, shard := range e.paths {
		e.expectPath(when, path, status[shard])
	}
}

func (e *env) expectPath(when, path string, want int) {
	e.t.Helper()
	shardtesting.Eventually(e.t, fmt.Sprintf("%s: %s is %d", when, path, want), func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.URL+"/clusters/"+path+"/api/v1/namespaces/default", nil)
		if err != nil {
			return err
		}
		res, err := e.client.Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		body, _ := io.ReadAll(res.Body)
		if res.StatusCode != want || want == http.StatusServiceUnavailable && res.Header.Get("Retry-After") == "" {
			return fmt.Errorf("%s, Retry-After %q: %.200s", res.Status, res.Header.Get("Retry-After"), body)
		}
		return nil
	})
}

// restartProxy restarts the proxy with additional flags.
func (e *env) restartProxy(flags ...string) {
	e.t.Helper()
	e.Kill(e.t, proxy)
	e.Restart(e.t, proxy, flags...)
	e.WaitReady(e.t, proxy)
}

var allAvailable = map[string]int{root: 200, alpha: 200, beta: 200}

func availableExcept(shard string) map[string]int {
	status := map[string]int{root: 200, alpha: 200, beta: 200}
	status[shard] = 503
	return status
}

func TestFrontProxies(t *testing.T) {
	etcd := indextesting.Start(t)
	s := newEnv(t, etcd)
	s.expect("all servers are running", allAvailable)

	s.Kill(t, alpha)
	s.expect("a shard was killed", availableExcept(alpha))
	s.restartProxy()
	s.expectPath("a proxy started without a shard", "root:r", 200)
	s.expectPath("a proxy started without a shard", "root:a", 503)
	s.expectPath("a proxy started without a shard", "root:unknown", 403)
	s.Restart(t, alpha)
	s.expect("the shard was restarted", allAvailable)

	s.restartProxy("--shards=beta,alpha")
	s.expectPath("a proxy with --shards", "root:a:b", 200)
	s.expectPath("a proxy with --shards", "root:r", 403)

	s.restartProxy(s.index...)
	s.expect("a proxy with the shared index", allAvailable)
	s.Kill(t, root)
	s.expect("the root shard was killed", availableExcept(root))
	s.restartProxy(s.index...)
	s.expect("a proxy started without the root shard", availableExcept(root))
	s.expectPath("a proxy started without the root shard", "root:unknown", 403)
	s.Restart(t, root)
	s.expect("the root shard was restarted", allAvailable)

	s.restartProxy(append([]string{"--shards=root"}, s.index...)...)
	s.expectPath("a proxy with --shards and the shared index", "root:a:b:r", 200)
	s.expectPath("a proxy with --shards and the shared index", "root:a:b", 403)

	s.restartProxy(s.index...)
	etcd.Stop()
	s.expect("the etcd of the shared index is down", allAvailable)
	etcd.DeleteData()
	etcd.Restart()
	s.expect("the etcd was restarted without data", allAvailable)
	s.restartProxy(s.index...)
	s.expect("the index was published again", allAvailable)
}
