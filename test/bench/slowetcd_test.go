package bench

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/programs"
)

// etcdDelays are added to each response of etcd, in every comparison with stock: none, and the time that a write takes on
// an etcd of several machines.
var etcdDelays = []time.Duration{0, 5 * time.Millisecond}

// withDelay appends the delay to the name of a figure.
func withDelay(name string, delay time.Duration) string {
	if delay == 0 {
		return name
	}
	return fmt.Sprintf("%s, etcd %s later", name, delay)
}

// delayed returns this etcd with later responses.
func (s *etcdServer) delayed(b *testing.B, delay time.Duration) *etcdServer {
	b.Helper()
	if delay == 0 {
		return s
	}
	relay := programs.NewRelay(b, func() string { return strings.TrimPrefix(s.url, "http://") })
	relay.SetDelay(delay)
	return &etcdServer{url: "http://" + relay.Address(), client: s.client}
}

// slowEtcdClients send requests at once, of one user or of several together.
const slowEtcdClients = 64

// BenchmarkSlowEtcd measures how many config maps one user and several create and read, in workspaces and in a
// kube-apiserver, with an etcd that answers late. Requests wait for etcd and not for processors, so that the number of
// concurrent requests decides.
func BenchmarkSlowEtcd(b *testing.B) {
	recordDuration(b)
	for range b.N {
		for _, delay := range etcdDelays {
			etcd := startEtcd(b).delayed(b, delay)
			stock, shard := startStock(b, etcd), startShard(b, etcd)
			compareLoads(b, "one user", delay, tenants{newTenant(b, shard, "writer")}, tenants{newAdministrator(b, stock, "writer")})
			var ours, theirs tenants
			for i := range quietTenants {
				name := fmt.Sprintf("quiet-%d", i)
				ours, theirs = append(ours, newTenant(b, shard, name)), append(theirs, newAdministrator(b, stock, name))
			}
			compareLoads(b, fmt.Sprintf("%d users", quietTenants), delay, ours, theirs)
		}
	}
}

// compareLoads records the rates of a workspace's and a kube-apiserver's users, who send requests in turn.
func compareLoads(b *testing.B, who string, delay time.Duration, ours, theirs tenants) {
	b.Helper()
	for _, profile := range []loadProfile{{Name: "created", Method: http.MethodPost}, {Name: "read", Method: http.MethodGet}} {
		profile.Workers = slowEtcdClients / len(ours)
		var rates [2][]float64
		for range repetitions {
			for i, all := range []tenants{ours, theirs} {
				rates[i] = append(rates[i], all.rateOf(b, profile))
			}
		}
		workspaces, stock := median(rates[0]), median(rates[1])
		record(withDelay(fmt.Sprintf("config maps %s by %s", profile.Name, who), delay), workspaces, "1/s",
			fmt.Sprintf("stock %.1f; ratio %.2f, goal 0.8; medians of %d; %d clients", stock, workspaces/stock, repetitions, slowEtcdClients))
	}
}

// rateOf returns the rate of requests per second that the server answers to all tenants together.
func (te tenants) rateOf(b *testing.B, profile loadProfile) (total float64) {
	b.Helper()
	var stops []func() (served, refused float64)
	for _, t := range te {
		stops = append(stops, t.startLoad(b, profile))
	}
	time.Sleep(window)
	for _, stop := range stops {
		served, refused := stop()
		if refused > 0 {
			b.Errorf("%.0f requests a second were refused", refused)
		}
		total += served
	}
	return total
}

// slowWorkspaces is the number of workspaces, and of namespaces, of BenchmarkSlowEtcdWorkspaces.
var slowWorkspaces = scaled(1000)

// BenchmarkSlowEtcdWorkspaces measures what waits for several writes in sequence, with an etcd that answers late:
// the creation and the deletion of workspaces, and the controllers of namespaces.
func BenchmarkSlowEtcdWorkspaces(b *testing.B) {
	recordDuration(b)
	for range b.N {
		for _, delay := range etcdDelays {
			shard := shardtesting.StartIn(b, b.TempDir(), startEtcd(b).delayed(b, delay).configure)
			creator := newCreator(b, shard, "root")
			home := creator.create(b, "warm", 10)[0].cluster

			begun := time.Now()
			createNamespaces(b, shard, home, slowWorkspaces)
			record(withDelay("namespaces created until they have a service account", delay), rate(slowWorkspaces, begun), "1/s", fmt.Sprintf("%d writers", writers))

			alone := latencies(creator.create(b, "alone", 1))[0]
			record(withDelay("workspace create to Ready, alone", delay), milliseconds(alone), "ms", "on an idle shard: the writes that wait for each other")
			begun = time.Now()
			workspaces := latencies(creator.create(b, "ws", slowWorkspaces))
			record(withDelay("workspaces created until Ready", delay), rate(slowWorkspaces, begun), "1/s", fmt.Sprintf("goal 60/s; %d writers, %d workspaces", writers, slowWorkspaces))
			record(withDelay("workspace create to Ready p99", delay), milliseconds(quantile(workspaces, 0.99)), "ms", "goal 1000 ms; same run")
			creator.stop()

			begun = time.Now()
			deleteAll(b, shard, "root")
			record(withDelay("workspaces deleted until the last is gone", delay), rate(slowWorkspaces, begun), "1/s", "deletecollection")
			stopShard(b, shard)
		}
	}
}

// createNamespaces creates namespaces and waits until each has its default service account.
func createNamespaces(b *testing.B, shard *shardtesting.Shard, cluster string, n int) {
	b.Helper()
	c, ctx := shard.Client(b, shard.Admin(b)), shardtesting.In(b.Context(), cluster)
	next := make(chan int)
	var failed error
	var running = make(chan error, writers)
	for range writers {
		go func() {
			var err error
			for i := range next {
				if err == nil {
					err = c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n-", i)}})
				}
			}
			running <- err
		}()
	}
	for i := range n {
		next <- i
	}
	close(next)
	for range writers {
		if err := <-running; err != nil {
			failed = err
		}
	}
	if failed != nil {
		b.Fatal(failed)
	}
	eventually(b, "the service accounts exist", func(context.Context) error {
		accounts := &corev1.ServiceAccountList{}
		if err := c.List(ctx, accounts, client.MatchingFields{"metadata.name": "default"}); err != nil {
			return err
		}
		if len(accounts.Items) < n {
			return fmt.Errorf("%d of %d", len(accounts.Items), n)
		}
		return nil
	})
}
