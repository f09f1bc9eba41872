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

func TestServersThatAreKilled(t *testing.T) {
	s := newSite(t, sharded.Options{})
	s.step(t, "the cache server", s.cacheKilled)
	s.step(t, "the cache server, with all it held", s.cacheEmptied)
	s.step(t, "the root shard", s.rootKilled)
	s.step(t, "the shard of the provider", s.providersShardKilled)
	s.step(t, "the front proxy", s.proxyKilled)
	s.step(t, "everything at once", s.allKilled)
	s.finish()
}

// step runs a part of a test under its own name. Parts build on one another: when one fails, the rest is skipped.
func (s *site) step(t *testing.T, name string, part func(*site)) {
	t.Helper()
	ok := t.Run(name, func(t *testing.T) {
		within := *s
		within.T = t
		part(&within)
	})
	if !ok {
		t.FailNow()
	}
}

// cacheKilled: no request of a tenant fails, shards start without the cache, and pending operations complete when it is
// back.
func (*site) cacheKilled(s *site) {
	before := s.mark()
	s.Kill(s.T, sharded.CacheServer)
	s.serving(before, root, alpha, beta)
	s.workspace("local-without-cache", root)
	s.requestWorkspace("remote-without-cache", beta)
	s.Kill(s.T, beta)
	s.again(beta)
	s.WaitReady(s.T, beta)
	s.recovers(beta)
	s.serving(s.mark(), beta)

	s.again(sharded.CacheServer)
	s.WaitReady(s.T, sharded.CacheServer)
	s.ready("remote-without-cache")
}

// cacheEmptied: shards refill a cache that lost its data, and do not treat missing objects as deleted.
func (*site) cacheEmptied(s *site) {
	before := s.mark()
	s.Kill(s.T, sharded.CacheServer)
	if err := os.RemoveAll(filepath.Join(s.Directory(), sharded.CacheServer, "etcd-server")); err != nil {
		s.Fatal(err)
	}
	s.again(sharded.CacheServer)
	s.WaitReady(s.T, sharded.CacheServer)
	s.serving(before, root, alpha, beta)
	s.bind(s.workspace("after-the-loss", beta)) // needs the export on alpha
	s.serving(before, root, alpha, beta)
}

// rootKilled: the other shards serve, also through the proxy, and one that starts meanwhile serves, too.
func (*site) rootKilled(s *site) {
	before := s.mark()
	s.Kill(s.T, root)
	s.serving(before, alpha, beta)
	s.Kill(s.T, beta)
	s.again(beta)
	s.WaitReady(s.T, beta)
	s.recovers(beta)
	s.serving(s.mark(), alpha, beta)

	s.again(root)
	s.WaitReady(s.T, root)
	s.recovers(root)
	s.workspace("after-root", beta)
}

// providersShardKilled: bound APIs keep working on the other shards, paths of the killed shard return 503, and it comes
// back with all data.
func (*site) providersShardKilled(s *site) {
	before := s.mark()
	s.Kill(s.T, alpha)
	s.serving(before, root, beta)
	shardtesting.Eventually(s.T, "paths of the shard answer 503", func(context.Context) error {
		if err := s.status(s.consumers[alpha]); err == nil || !strings.HasPrefix(err.Error(), "503") {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
	s.requestWorkspace("while-alpha-is-away", alpha)
	s.bind(s.workspace("consumer-of-the-absent", beta))
	s.serving(before, root, beta)

	s.again(alpha)
	s.WaitReady(s.T, alpha)
	s.recovers(alpha)
	s.ready("while-alpha-is-away")
}

// proxyKilled: clients of shards are unaffected; the proxy comes back with its whole index.
func (*site) proxyKilled(s *site) {
	s.Kill(s.T, sharded.FrontProxy)
	for shard, cluster := range s.consumers {
		direct, err := kubernetes.NewForConfig(shardtesting.At(s.Masters(s.T, shard), cluster))
		if err != nil {
			s.Fatal(err)
		}
		if _, err := direct.CoreV1().Namespaces().List(s.Context(), metav1.ListOptions{}); err != nil {
			s.Errorf("asking %s directly: %v", shard, err)
		}
	}
	s.again(sharded.FrontProxy)
	s.WaitReady(s.T, sharded.FrontProxy)
	s.recovers(root, alpha, beta)
}

// allKilled: a power failure. All servers start at once, in no order.
func (*site) allKilled(s *site) {
	all := []string{sharded.FrontProxy, beta, alpha, root, sharded.CacheServer}
	for _, name := range all {
		s.Kill(s.T, name)
	}
	for _, name := range all {
		s.again(name)
	}
	for _, name := range all {
		s.WaitReady(s.T, name)
	}
	s.recovers(root, alpha, beta)
	s.bind(s.workspace("after-everything", alpha))
}
