package faults

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
	"github.com/atoll-dev/atoll/test/sharded"
)

const (
	root  = installation.Root
	alpha = installation.Alpha
	beta  = installation.Beta
)

func TestServersKilled(t *testing.T) {
	s := newEnv(t, sharded.Options{})
	s.step(t, "the cache server", s.testCacheKilled)
	s.step(t, "the cache server with its data", s.testCacheEmptied)
	s.step(t, "the root shard", s.testRootKilled)
	s.step(t, "the shard of the provider", s.testProviderShardKilled)
	s.step(t, "the front proxy", s.testProxyKilled)
	s.step(t, "all servers", s.testAllKilled)
	s.finish()
}

// step runs a part of a test under its own name. Parts build on one another: when one fails, the rest is skipped.
func (e *env) step(t *testing.T, name string, part func(*env)) {
	t.Helper()
	ok := t.Run(name, func(t *testing.T) {
		within := *e
		within.T = t
		part(&within)
	})
	if !ok {
		t.FailNow()
	}
}

// testCacheKilled checks that no request of a tenant fails, shards start without the cache, and pending operations
// complete when it is available again.
func (*env) testCacheKilled(s *env) {
	before := s.countFailures()
	s.Kill(s.T, sharded.CacheServer)
	s.expectServing(before, root, alpha, beta)
	s.createWorkspace("local-without-cache", root)
	s.requestWorkspace("remote-without-cache", beta)
	s.Kill(s.T, beta)
	s.restart(beta)
	s.WaitReady(s.T, beta)
	s.waitForRecovery(beta)
	s.expectServing(s.countFailures(), beta)

	s.restart(sharded.CacheServer)
	s.WaitReady(s.T, sharded.CacheServer)
	s.waitReady("remote-without-cache")
}

// testCacheEmptied checks that shards refill a cache without data, and do not treat missing objects as deleted.
func (*env) testCacheEmptied(s *env) {
	before := s.countFailures()
	s.Kill(s.T, sharded.CacheServer)
	s.emptyCache()
	s.restart(sharded.CacheServer)
	s.WaitReady(s.T, sharded.CacheServer)
	s.expectServing(before, root, alpha, beta)
	s.bind(s.createWorkspace("after-the-loss", beta)) // needs the export on alpha
	s.expectServing(before, root, alpha, beta)
}

// emptyCache removes the data of the cache server, which must not run.
func (e *env) emptyCache() {
	e.Helper()
	if err := os.RemoveAll(filepath.Join(e.Directory(), sharded.CacheServer, "etcd-server")); err != nil {
		e.Fatal(err)
	}
}

// testRootKilled checks that the other shards serve, also through the proxy, and that a shard can start meanwhile.
func (*env) testRootKilled(s *env) {
	before := s.countFailures()
	s.Kill(s.T, root)
	s.expectServing(before, alpha, beta)
	s.Kill(s.T, beta)
	s.restart(beta)
	s.WaitReady(s.T, beta)
	s.waitForRecovery(beta)
	s.expectServing(s.countFailures(), alpha, beta)

	s.restart(root)
	s.WaitReady(s.T, root)
	s.waitForRecovery(root)
	s.createWorkspace("after-root", beta)
}

// testProviderShardKilled checks that bound APIs keep working on the other shards, paths of the killed shard return
// 503, and that it recovers with all data.
func (*env) testProviderShardKilled(s *env) {
	before := s.countFailures()
	s.Kill(s.T, alpha)
	s.expectServing(before, root, beta)
	shardtesting.Eventually(s.T, "paths of the shard return 503", func(context.Context) error {
		if err := s.checkStatus(s.consumers[alpha]); err == nil || !strings.HasPrefix(err.Error(), "503") {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
	s.requestWorkspace("while-alpha-is-away", alpha)
	s.bind(s.createWorkspace("consumer-of-the-absent", beta))
	s.expectServing(before, root, beta)

	s.restart(alpha)
	s.WaitReady(s.T, alpha)
	s.waitForRecovery(alpha)
	s.waitReady("while-alpha-is-away")
}

// testProxyKilled checks that clients of shards are unaffected, and that the proxy recovers with a complete index.
func (*env) testProxyKilled(s *env) {
	s.Kill(s.T, sharded.FrontProxy)
	for shard, cluster := range s.consumers {
		shardClient, err := kubernetes.NewForConfig(shardtesting.At(s.Masters(s.T, shard), cluster))
		if err != nil {
			s.Fatal(err)
		}
		if _, err := shardClient.CoreV1().Namespaces().List(s.Context(), metav1.ListOptions{}); err != nil {
			s.Errorf("request to %s: %v", shard, err)
		}
	}
	s.restart(sharded.FrontProxy)
	s.WaitReady(s.T, sharded.FrontProxy)
	s.waitForRecovery(root, alpha, beta)
}

// testAllKilled simulates a power failure after which the cache is empty: all servers start concurrently, in any order. No shard has what others
// request from it or report to it, and each needs that of the others.
func (*env) testAllKilled(s *env) {
	all := []string{sharded.FrontProxy, beta, alpha, root, sharded.CacheServer}
	for _, name := range all {
		s.Kill(s.T, name)
	}
	s.emptyCache()
	for _, name := range all {
		s.restart(name)
	}
	for _, name := range all {
		s.WaitReady(s.T, name)
	}
	s.waitForRecovery(root, alpha, beta)
	s.bind(s.createWorkspace("after-everything", alpha))
}
