package fence

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"

	"github.com/atoll-dev/atoll/internal/etcdtest"
	"github.com/atoll-dev/atoll/internal/movestate"
	"github.com/atoll-dev/atoll/logicalcluster"
	kcpcore "github.com/atoll-dev/atoll/shardserver/apis/core"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// expire lets the replica believe that its lease is over.
func (r *replica) expire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.validUntil = time.Now()
}

// write creates an object in a storage behind the guard; meanwhile runs while etcd stores it.
func write(t *testing.T, guard storage.Guard, cluster logicalcluster.Name, meanwhile func()) error {
	t.Helper()
	stock := func(*storagebackend.ConfigForResource, string, func(runtime.Object) (string, error), func() runtime.Object, func() runtime.Object,
		apistorage.AttrFunc, apistorage.IndexerFuncs, *cache.Indexers) (apistorage.Interface, factory.DestroyFunc, error) {
		return slowStorage{meanwhile: meanwhile}, func() {}, nil
	}
	guarded, _, err := storage.WithGuard(stock, guard)(&storagebackend.ConfigForResource{}, "/configmaps", nil, nil, nil, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return guarded.Create(logicalcluster.With(t.Context(), cluster), "/configmaps/default/a", &corev1.ConfigMap{}, nil, 0)
}

// slowStorage is a storage whose writes succeed when meanwhile has ended.
type slowStorage struct {
	apistorage.Interface
	meanwhile func()
}

func (s slowStorage) Create(context.Context, string, runtime.Object, runtime.Object, uint64) error {
	s.meanwhile()
	return nil
}

// TestPauseWithDeadReplica: a replica that has ended, and whose lease has not expired, delays a pause for PauseTimeout, and the next one
// not at all.
func TestPauseWithDeadReplica(t *testing.T) {
	server := etcdtest.Start(t)
	f, err := Start(t.Context(), Config{Registry: storage.NewRegistry(kcpcore.Locality), Etcd: etcdtest.NewClient(t, server), Prefix: "/registry"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	cluster := logicalcluster.MustParseName("abc")
	acks, paused := newAcknowledgements(f.replica), map[logicalcluster.Name]int64{cluster: 7}
	acks.add(t.Context(), acks.missing(paused), paused)
	if err := f.Pause(t.Context(), cluster, 7); err != nil {
		t.Fatal(err)
	}
	dead := newReplica(etcdtest.NewClient(t, server), "/registry", &revisions{})
	if err := dead.register(t.Context()); err != nil {
		t.Fatal(err)
	}
	started := time.Now()
	if err := f.Pause(t.Context(), cluster, 7); err == nil || !strings.Contains(err.Error(), dead.id) {
		t.Errorf("the pause returns %v", err)
	}
	if took := time.Since(started); took >= LeaseTTL {
		t.Errorf("writes were refused for %s", took)
	}
	dead.revoke()
	if err := f.Pause(t.Context(), cluster, 7); err != nil {
		t.Errorf("the replica has no lease, and the pause returns %v", err)
	}
}

// TestLeaveComesBeforeAcknowledgement: the shard hands over nothing of a logical cluster that has moved away before each replica has left it. A
// pause of writes leaves nothing.
func TestLeaveComesBeforeAcknowledgement(t *testing.T) {
	server := etcdtest.Start(t)
	observer := etcdtest.NewClient(t, server)
	away, paused := logicalcluster.MustParseName("away"), logicalcluster.MustParseName("paused")
	var left sync.Map // what is left may be left again: after a lost lease, or an answer of etcd that came too late
	f, err := Start(t.Context(), Config{
		Registry: storage.NewRegistry(kcpcore.Locality), Etcd: etcdtest.NewClient(t, server), Prefix: "/registry",
		Leave: func(_ context.Context, clusters []logicalcluster.Name) {
			for _, cluster := range clusters {
				if _, again := left.LoadOrStore(cluster, true); again {
					continue
				}
				found, err := observer.Get(t.Context(), "/registry/~paused/"+cluster.String()+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
				if err != nil || found.Count > 0 {
					t.Errorf("%s is acknowledged before it is left: %v, %v", cluster, found, err)
				}
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	f.states.set(away, moving{state: movestate.MovedAway, epoch: 1, revision: 7})
	f.states.set(paused, moving{state: movestate.WritesPaused, revision: 7})
	ctx, cancel := context.WithCancel(t.Context())
	acknowledging := make(chan struct{})
	go func() {
		defer close(acknowledging)
		f.acknowledge(ctx)
	}()
	for _, cluster := range []logicalcluster.Name{away, paused} {
		err := wait.PollUntilContextTimeout(t.Context(), pollInterval, time.Minute, true, func(ctx context.Context) (bool, error) {
			return f.Pause(ctx, cluster, 7) == nil, nil
		})
		if err != nil {
			t.Fatalf("%s is not acknowledged: %v", cluster, err)
		}
	}
	cancel()
	<-acknowledging
	if _, isLeft := left.Load(away); !isLeft {
		t.Errorf("%s has moved away, and is not left", away)
	}
	if _, isLeft := left.Load(paused); isLeft {
		t.Errorf("%s is left, although it is only paused", paused)
	}
}

// slowLease is etcd that does not answer the first request for a lease in time.
type slowLease struct {
	clientv3.Lease
	asked bool
}

func (s *slowLease) Grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	if !s.asked {
		s.asked = true
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.Lease.Grant(ctx, ttl)
}

// TestStartWithSlowEtcd: a process does not end because etcd is slow while it starts.
func TestStartWithSlowEtcd(t *testing.T) {
	etcd := etcdtest.NewClient(t, etcdtest.Start(t))
	etcd.Lease = &slowLease{Lease: etcd.Lease}
	f, err := Start(t.Context(), Config{Registry: storage.NewRegistry(kcpcore.Locality), Etcd: etcd, Prefix: "/registry"})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// TestReplicaRegistersAgain takes the lease of a replica away. The replica refuses writes when it cannot have one, and
// leaves neither keys nor goroutines at the end.
func TestReplicaRegistersAgain(t *testing.T) {
	server := etcdtest.Start(t)
	etcd, observer := etcdtest.NewClient(t, server), etcdtest.NewClient(t, server)
	if _, err := observer.Get(t.Context(), "x"); err != nil { // its goroutines are no leak
		t.Fatal(err)
	}
	before := goleak.IgnoreCurrent()
	f, err := Start(t.Context(), Config{Registry: storage.NewRegistry(kcpcore.Locality), Etcd: etcd, Prefix: "/registry"})
	if err != nil {
		t.Fatal(err)
	}
	cluster := logicalcluster.MustParseName("abc")
	leave, err := f.Enter(t.Context(), cluster)
	if err != nil {
		t.Fatal(err)
	}
	if err := leave(); err != nil {
		t.Error(err)
	}
	if _, valid := f.replica.validLease(time.Now().Add(LeaseTTL)); valid {
		t.Error("the registration does not expire with the lease")
	}
	stalled := write(t, f, cluster, func() { f.replica.expire() })
	if !apierrors.IsTimeout(stalled) {
		t.Errorf("a write that ends after the lease is acknowledged: %v", stalled)
	}
	if _, err := f.Enter(t.Context(), cluster); err == nil {
		t.Error("a replica writes after the end of its lease")
	}
	if _, err := f.Enter(t.Context(), logicalcluster.MustParseName("system:admin")); err != nil {
		t.Errorf("a system logical cluster, which never moves, is refused: %v", err)
	}
	revoke := func() {
		if _, err := observer.Revoke(t.Context(), f.replica.currentLease()); err != nil {
			t.Fatal(err)
		}
	}
	revoke()
	keys := func() int64 {
		found, err := observer.Get(context.Background(), "/registry/~", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			t.Fatal(err)
		}
		return found.Count
	}
	registeredAgain := func() {
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(pollInterval) {
			if _, valid := f.replica.validLease(time.Now()); valid && keys() > 0 {
				return
			}
			if time.Now().After(end) {
				t.Fatal("the replica does not register again")
			}
		}
	}
	registeredAgain()
	if err := write(t, f, cluster, func() {}); err != nil {
		t.Errorf("a write after that: %v", err)
	}
	between := write(t, f, cluster, func() {
		f.replica.expire()
		revoke()
		registeredAgain()
	})
	if !apierrors.IsTimeout(between) {
		t.Errorf("a write that began under an earlier lease is acknowledged: %v", between)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if got := keys(); got != 0 {
		t.Errorf("%d keys remain", got)
	}
	goleak.VerifyNone(t, before, goleak.IgnoreTopFunction("google.golang.org/grpc/internal/transport.(*http2Server).keepalive"),
		goleak.IgnoreAnyFunction("google.golang.org/grpc/internal/transport.(*http2Server).HandleStreams"))
}
