package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/sharded"
)

// readyWithin is the time in which a shard is ready after its start, if its etcd runs and the machine is not busy.
const readyWithin = 5 * time.Second

// processFaults is an installation in which alpha and beta each have their own etcd, so that a shard can be killed alone.
type processFaults struct {
	*env
	// etcd is the only member of the etcd of alpha, on a disk that can be filled.
	etcd *etcdMember
	disk *disk
	// stores are the URLs of etcd by shard.
	stores map[string]string
}

// TestProcessFaults has several faults in one installation, because it takes longer to start than most of them.
func TestProcessFaults(t *testing.T) {
	f := &processFaults{disk: newDisk(t)}
	members, alphaURL := startEtcd(t, f.disk.directory, "etcd-alpha")
	_, betaURL := startEtcd(t, t.TempDir(), "etcd-beta")
	f.etcd, f.stores = members[0], map[string]string{alpha: alphaURL, beta: betaURL}
	f.env = newEnv(t, sharded.Options{Validity: 12 * time.Hour, Flags: map[string][]string{
		alpha: {"--etcd-servers=" + alphaURL}, beta: {"--etcd-servers=" + betaURL, "--enable-leader-election"},
	}})
	f.fault(t, "a shard is killed again and again", f.testShardKilled)
	f.fault(t, "two shards are killed at once", f.testPairKilled)
	f.fault(t, "a shard is killed while its workspaces are deleted", f.testKilledDuringDeletion)
	f.fault(t, "the disk of an etcd is full", f.testFullDisk)
	f.fault(t, "the clock of a shard jumps", f.testClockJumps)
	f.fault(t, "a user does not read responses", f.testUnreadResponses)
	f.fault(t, "the cache server is away", f.testCacheOutage)
	f.finish()
}

// fault runs the test of a fault under its own name, with counts and times in its log. No fault builds on another.
func (f *processFaults) fault(t *testing.T, name string, part func(*processFaults)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		began := time.Now()
		within, environment := *f, *f.env
		environment.T, within.env = t, &environment
		part(&within)
		t.Logf("took %s", time.Since(began).Round(time.Second))
	})
}

// comparesTimes returns whether the test compares times: in its full form, unless other programs keep the machine busy.
func (f *processFaults) comparesTimes() bool {
	f.Helper()
	if !isFull() {
		return false
	}
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return true
	}
	var load float64
	_, err = fmt.Sscan(string(text), &load)
	const perProcessor = 2
	if busy := perProcessor * float64(runtime.NumCPU()); err == nil && load > busy {
		f.Logf("times are not compared: the load of the machine is %.0f, with %d processors", load, runtime.NumCPU())
		return false
	}
	return true
}

// start starts shards that have ended, all at once, waits until they are ready, and returns the longest time from the
// start of a process until it was ready.
func (f *processFaults) start(shards ...string) time.Duration {
	f.Helper()
	began := time.Now()
	for _, shard := range shards {
		f.restart(shard)
	}
	for _, shard := range shards {
		f.WaitReady(f.T, shard)
	}
	return time.Since(began)
}

// checkReadyTimes logs how long starts took, and compares them with readyWithin.
func (f *processFaults) checkReadyTimes(times []time.Duration) {
	f.Helper()
	f.Logf("ready after %s", summary(times))
	if slowest := slices.Max(times); f.comparesTimes() && slowest > readyWithin {
		f.Errorf("a shard was ready %s after its start, want at most %s", slowest, readyWithin)
	}
}

func summary(times []time.Duration) string {
	times = slices.Sorted(slices.Values(times))
	return fmt.Sprintf("%s at the median, %s at most", times[len(times)/2].Round(time.Millisecond), times[len(times)-1].Round(time.Millisecond))
}

// testShardKilled kills a shard at any moment while several clients write to it, and compares the acknowledged writes with the stored
// objects after each start.
func (*processFaults) testShardKilled(f *processFaults) {
	const writers = 4
	all := []*writer{f.writers[alpha]}
	for n := range writers {
		all = append(all, f.startWriter(f.consumers[alpha], fmt.Sprint("killed-", n)))
	}
	count := func() (n int) {
		for _, w := range all {
			n += w.acknowledgedCount()
		}
		return n
	}
	rounds := scaled(3, 20)
	var times []time.Duration
	compared := 0
	for range rounds {
		from := count()
		enough := from + 20 + rand.IntN(100)
		shardtesting.Eventually(f.T, "writes are acknowledged", func(context.Context) error {
			if now := count(); now < enough {
				return fmt.Errorf("%d of %d; last failure: %v", now-from, enough-from, all[0].lastFailure())
			}
			return nil
		})
		f.Kill(f.T, alpha)
		times = append(times, f.start(alpha))
		compared = f.checkAcknowledged(all...)
	}
	f.Logf("%d rounds, %d acknowledged writes compared", rounds, compared)
	f.checkReadyTimes(times)
}

// testPairKilled kills two of three shards together. Afterwards, workspaces can bind APIs across shards, and earlier bindings work.
func (*processFaults) testPairKilled(f *processFaults) {
	pairs, rounds := [][]string{{root, alpha}, {alpha, beta}, {root, beta}}, scaled(1, 15)
	var times, recoveries []time.Duration
	compared := 0
	for n := range rounds {
		pair := pairs[n%len(pairs)]
		for _, shard := range pair {
			f.Kill(f.T, shard)
		}
		times = append(times, f.start(pair...))
		ready := time.Now()
		f.waitForRecovery(f.Shards()...)
		recoveries = append(recoveries, time.Since(ready))
		compared = 0
		for _, shard := range f.Shards() {
			compared += f.checkAcknowledged(f.writers[shard])
			if err := f.createWidget(f.Context(), f.consumers[shard], fmt.Sprint("after-pair-", n)); err != nil {
				f.Errorf("writing an object that was bound before, on %s: %v", shard, err)
			}
		}
		consumer := f.createWorkspace(fmt.Sprint("after-pair-", n), beta) // needs the export on alpha, and root
		f.bind(consumer)
		if err := f.createWidget(f.Context(), consumer, "bound-after"); err != nil {
			f.Errorf("writing a newly bound object: %v", err)
		}
	}
	f.Logf("%d pairs killed, %d acknowledged writes compared, and a new binding across shards each time", rounds, compared)
	f.Logf("both ready after %s; writes through the front proxy succeed %s later", summary(times), summary(recoveries))
}

// testKilledDuringDeletion deletes workspaces that have content and a binding, and kills their shard three times meanwhile. None
// is stuck, and etcd has no key of them afterwards.
func (*processFaults) testKilledDuringDeletion(f *processFaults) {
	const kills = 3
	p := f.newPlacements("deleted", scaled(12, 120))
	p.shard = alpha
	p.create(func() {})
	p.waitUntilReady()
	clusters := p.fill()
	if keys := f.countKeys(alpha, clusters); keys < 10*p.count {
		f.Fatalf("etcd has %d keys of %d workspaces", keys, p.count)
	}
	var deleted atomic.Int64
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.delete(func() { deleted.Add(1) })
	}()
	for n := range kills {
		moment := int64(p.count * (n + 1) / (kills + 1))
		p.eventually("deletions are acknowledged", func(context.Context) error {
			if now := deleted.Load(); now < moment {
				return fmt.Errorf("%d of %d", now, moment)
			}
			return nil
		})
		f.Kill(f.T, alpha)
		f.start(alpha)
	}
	<-ended
	began := time.Now()
	p.waitUntilDeleted()
	f.Logf("%d workspaces, killed %d times, the last was gone %s after all deletions were acknowledged", p.count, kills, time.Since(began).Round(time.Second))
	for shard := range f.stores {
		p.eventually("etcd of "+shard+" has no key of deleted workspaces", func(context.Context) error {
			if keys := f.countKeys(shard, clusters); keys > 0 {
				return fmt.Errorf("%d", keys)
			}
			return nil
		})
	}
}

// fill creates objects and a binding in each workspace, and returns their logical clusters.
func (p *placements) fill() []string {
	p.Helper()
	found, err := p.clusters(p.Context())
	if err != nil {
		p.Fatal(err)
	}
	var clusters []string
	for _, locations := range found {
		cluster, _, _ := strings.Cut(locations[0], " ")
		clusters = append(clusters, cluster)
		p.bind(cluster)
		ctx := shardtesting.In(p.Context(), cluster)
		for n := range 3 {
			object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: fmt.Sprint("content-", n)}}
			if err := p.admin.Create(ctx, object); err != nil {
				p.Fatal(err)
			}
			if err := p.createWidget(p.Context(), cluster, object.Name); err != nil {
				p.Fatal(err)
			}
		}
	}
	return clusters
}

// countKeys returns how many keys in the etcd of a shard contain the name of one of the logical clusters.
func (f *processFaults) countKeys(shard string, clusters []string) int {
	f.Helper()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{f.stores[shard]}, Logger: zap.NewNop()})
	if err != nil {
		f.Fatal(err)
	}
	defer etcd.Close()
	all, err := etcd.Get(f.Context(), "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		f.Fatal(err)
	}
	searched := map[string]bool{}
	for _, cluster := range clusters {
		searched[cluster] = true
	}
	count := 0
	for _, kv := range all.Kvs {
		if slices.ContainsFunc(strings.Split(string(kv.Key), "/"), func(segment string) bool { return searched[segment] }) {
			count++
		}
	}
	return count
}
