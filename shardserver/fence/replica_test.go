package fence

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/atoll-dev/atoll/internal/etcdtest"
	"github.com/atoll-dev/atoll/logicalcluster"
	kcpcore "github.com/atoll-dev/atoll/shardserver/apis/core"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

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
	leave()
	if f.replica.isRegistered(time.Now().Add(leaseTTL)) {
		t.Error("the registration does not expire with the lease")
	}
	f.replica.mu.Lock()
	f.replica.validUntil = time.Now()
	f.replica.mu.Unlock()
	if _, err := f.Enter(t.Context(), cluster); err == nil {
		t.Error("a replica writes after the end of its lease")
	}
	if _, err := f.Enter(t.Context(), logicalcluster.MustParseName("system:admin")); err != nil {
		t.Errorf("a system logical cluster, which never moves, is refused: %v", err)
	}
	first := f.replica.currentLease()
	if _, err := observer.Revoke(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	keys := func() int64 {
		found, err := observer.Get(context.Background(), "/registry/~", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			t.Fatal(err)
		}
		return found.Count
	}
	for end := time.Now().Add(20 * time.Second); keys() == 0 || !f.replica.isRegistered(time.Now()); time.Sleep(pollInterval) {
		if time.Now().After(end) {
			t.Fatal("the replica does not register again")
		}
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
