// Package frontproxy runs front proxies of all kinds before three real shards, and takes away what they stand on: a shard,
// the root shard while they start, the etcd of the shared index.
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

	"github.com/atoll-dev/atoll/shardserver/loopback"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	indextesting "github.com/atoll-dev/atoll/internal/sharedindex/testing"
	"github.com/atoll-dev/atoll/test/installation"
	"github.com/atoll-dev/atoll/test/sharded"
)

const (
	root  = installation.Root
	alpha = installation.Alpha
	beta  = installation.Beta
	proxy = sharded.FrontProxy
)

// binaries is where the programs are, built once.
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

// site is an installation with workspaces on each shard, one of them below one of another shard's.
type site struct {
	*installation.Installation
	t      *testing.T
	client *http.Client
	index  []string // flags of the shared index
	paths  map[string]string
}

func newSite(t *testing.T, etcd *indextesting.Etcd) *site {
	t.Helper()
	s := &site{t: t, index: []string{"--shared-index-etcd-servers=" + strings.Join(etcd.Options().Servers, ",")}}
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

// expect waits until every path is answered with the status of its shard, and 503 with when to come back.
func (s *site) expect(when string, status map[string]int) {
	s.t.Helper()
	for path, shard := range s.paths {
		s.expectPath(when, path, status[shard])
	}
}

func (s *site) expectPath(when, path string, want int) {
	s.t.Helper()
	shardtesting.Eventually(s.t, fmt.Sprintf("%s: %s is %d", when, path, want), func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/clusters/"+path+"/api/v1/namespaces/default", nil)
		if err != nil {
			return err
		}
		answer, err := s.client.Do(req)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		body, _ := io.ReadAll(answer.Body)
		if answer.StatusCode != want || want == http.StatusServiceUnavailable && answer.Header.Get("Retry-After") == "" {
			return fmt.Errorf("%s, Retry-After %q: %.200s", answer.Status, answer.Header.Get("Retry-After"), body)
		}
		return nil
	})
}

// restartProxy ends the proxy and starts it with more flags.
func (s *site) restartProxy(flags ...string) {
	s.t.Helper()
	s.Kill(s.t, proxy)
	s.Restart(s.t, proxy, flags...)
	s.WaitReady(s.t, proxy)
}

var all = map[string]int{root: 200, alpha: 200, beta: 200}

func without(shard string) map[string]int {
	status := map[string]int{root: 200, alpha: 200, beta: 200}
	status[shard] = 503
	return status
}

func TestFrontProxies(t *testing.T) {
	etcd := indextesting.Start(t)
	s := newSite(t, etcd)
	s.expect("everything runs", all)

	s.Kill(t, alpha)
	s.expect("a shard was killed", without(alpha))
	s.restartProxy()
	s.expectPath("a proxy started without a shard", "root:r", 200)
	s.expectPath("a proxy started without a shard", "root:a", 503)
	s.expectPath("a proxy started without a shard", "root:nothing", 403)
	s.Restart(t, alpha)
	s.expect("the shard is back", all)

	s.restartProxy("--shards=beta,alpha")
	s.expectPath("a proxy for some shards", "root:a:b", 200)
	s.expectPath("a proxy for some shards", "root:r", 403)

	s.restartProxy(s.index...)
	s.expect("by the shared index", all)
	s.Kill(t, root)
	s.expect("the root shard was killed", without(root))
	s.restartProxy(s.index...)
	s.expect("a proxy started without the root shard", without(root))
	s.expectPath("a proxy started without the root shard", "root:nothing", 403)
	s.Restart(t, root)
	s.expect("the root shard is back", all)

	s.restartProxy(append([]string{"--shards=root"}, s.index...)...)
	s.expectPath("a proxy for one shard, by the shared index", "root:a:b:r", 200)
	s.expectPath("a proxy for one shard, by the shared index", "root:a:b", 403)

	s.restartProxy(s.index...)
	etcd.Stop()
	s.expect("the etcd of the shared index is down", all)
	etcd.Lose()
	etcd.Again()
	s.expect("it is back without its data", all)
	s.restartProxy(s.index...)
	s.expect("it was filled again", all)
}
