package migration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/internal/etcdtest"
	"github.com/atoll-dev/atoll/internal/workspacerestore"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/transfer"
)

const (
	clusterStorage   = "/core.kcp.io/logicalclusters/customresources"
	workspaceStorage = "/tenancy.kcp.io/workspaces/customresources"
	configMapStorage = "/core/configmaps"
	restoredPrefix   = "/registry"
	restoredParent   = "parent"
	restoredName     = "team"
)

// newReplica returns what one replica of a shard does for restores, with its client of etcd.
func newReplica(client *clientv3.Client) *restoringService {
	registry := storage.NewRegistry(storage.Locality{})
	for prefix, resource := range map[string]schema.GroupResource{clusterStorage: logicalClusters, workspaceStorage: workspaces} {
		registry.Add(&storage.Resource{GVR: resource.WithVersion("v1alpha1"), Prefix: prefix})
	}
	storages := func(context.Context) ([]string, error) {
		return []string{clusterStorage, workspaceStorage, configMapStorage}, nil
	}
	cfg := Config{Shard: "alpha", Registry: registry, Etcd: client, Prefix: restoredPrefix}
	stored := &storedClusters{etcd: client, registry: registry, prefix: restoredPrefix, transformer: identity.NewEncryptCheckTransformer()}
	keys := transfer.New(transfer.Config{Client: client, Prefix: restoredPrefix, Storages: storages, Scan: storages})
	read := newReader(registry, true)
	return newRestoringService(cfg, read, stored, keys, &destinationService{cfg: cfg, reader: read, stored: stored, transfer: keys})
}

// putCluster stores a LogicalCluster.
func putCluster(t *testing.T, r *restoringService, name, uid string) {
	t.Helper()
	object := fmt.Sprintf(`{"apiVersion":"core.kcp.io/v1alpha1","kind":"LogicalCluster","metadata":{"name":"cluster","uid":%q}}`, uid)
	if _, err := r.cfg.Etcd.Put(t.Context(), restoredPrefix+clusterStorage+"/"+name+"/"+corev1alpha1.LogicalClusterName, object); err != nil {
		t.Fatal(err)
	}
}

// newIncoming stores a request, and returns it as a replica serves it.
func newIncoming(t *testing.T, r *restoringService, cluster string) *incomingRestore {
	t.Helper()
	lease, err := r.cfg.Etcd.Grant(t.Context(), 600)
	if err != nil {
		t.Fatal(err)
	}
	in := &incomingRestore{restoringService: r, lease: lease.ID, Request: workspacerestore.Request{
		ID: workspacerestore.IDPrefix + "1", Path: "root:acme:team", LogicalCluster: cluster, Parent: restoredParent, ParentUID: "uid",
		WorkspaceKey: restoredPrefix + workspaceStorage + "/" + restoredParent + "/" + restoredName + cluster, Complete: true,
	}}
	content, err := json.Marshal(in.Request)
	if err != nil {
		t.Fatal(err)
	}
	written, err := r.cfg.Etcd.Put(t.Context(), r.keys.Request(), string(content), clientv3.WithLease(lease.ID))
	if err != nil {
		t.Fatal(err)
	}
	in.revision = written.Header.Revision
	in.cluster, in.parent = logicalcluster.MustParseName(cluster), logicalcluster.MustParseName(restoredParent)
	return in
}

// openForTest opens a copy, as the last step of an attempt does.
func (i *incomingRestore) openForTest(ctx context.Context, fence []clientv3.Cmp) error {
	return i.open(ctx, fence, &restoredContent{cluster: map[string]any{"metadata": map[string]any{"name": "cluster"}}, workspace: map[string]any{"metadata": map[string]any{"name": restoredName}}})
}

// spied is a client of etcd that calls a function after each write that it has made.
type spied struct {
	clientv3.KV
	after func()
}

func (s *spied) Delete(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.DeleteResponse, error) {
	response, err := s.KV.Delete(ctx, key, opts...)
	s.after()
	return response, err
}

func (s *spied) Txn(ctx context.Context) clientv3.Txn { return &spiedTxn{s.KV.Txn(ctx), s} }

type spiedTxn struct {
	clientv3.Txn
	steps *spied
}

func (s *spiedTxn) If(conditions ...clientv3.Cmp) clientv3.Txn {
	s.Txn = s.Txn.If(conditions...)
	return s
}

func (s *spiedTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	s.Txn = s.Txn.Then(ops...)
	return s
}

func (s *spiedTxn) Commit() (*clientv3.TxnResponse, error) {
	response, err := s.Txn.Commit()
	s.steps.after()
	return response, err
}

// TestRestoreTwoLeaders: a replica that has copied a workspace continues after another one has begun to remove the copy, at each of its steps. The
// workspace never opens without its content.
func TestRestoreTwoLeaders(t *testing.T) {
	client := etcdtest.NewClient(t, etcdtest.Start(t))
	const objects = 3
	opened, steadfast := 0, 0
	for step := range 10 {
		first := newReplica(client)
		putCluster(t, first, restoredParent, "uid")
		cluster := fmt.Sprintf("cluster%d", step)
		in := newIncoming(t, first, cluster)
		claimed, err := in.claim(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var entries []transfer.Entry
		for n := range objects {
			entries = append(entries, transfer.Entry{Version: transfer.Version{Key: transfer.Key{Resource: configMapStorage, Name: fmt.Sprintf("default/%d", n)}, ModRevision: 1}, Value: []byte("{}")})
		}
		writer := in.transfer.NewWriter(claimed.Incoming, claimed.fence)
		if err := writer.Store(t.Context(), entries); err != nil {
			t.Fatal(err)
		}

		at, failed := 0, errors.New("not tried")
		try := func() {
			if at == step {
				failed = in.openForTest(t.Context(), claimed.fence)
				if storing := writer.Store(t.Context(), entries[:1]); failed != nil && !errors.Is(storing, transfer.ErrFenced) {
					t.Errorf("step %d: a late write: %v", step, storing)
				}
			}
			at++
		}
		try()
		other := clientv3.NewCtxClient(t.Context())
		other.KV, other.Lease, other.Watcher = &spied{client.KV, try}, client.Lease, client.Watcher
		second := newReplica(other)
		claims, err := client.Get(t.Context(), second.keys.Claims(), clientv3.WithPrefix())
		if err != nil || len(claims.Kvs) != 1 {
			t.Fatalf("%v: the claims are %v", err, claims)
		}
		if err := second.clean(t.Context(), claims.Kvs[0]); err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
		if at <= step {
			steadfast++ // there are fewer steps
		}
		want := 0
		if failed == nil {
			opened, want = opened+1, objects+1
		}
		versions, _, err := second.transfer.Manifest(t.Context(), in.cluster)
		if err != nil || len(versions) != want {
			t.Errorf("step %d: %v: opened %t with the keys %v", step, err, failed == nil, versions)
		}
		for _, prefix := range []string{"/~restoring/claims/", "/~restoring/opening/", "/~incoming/"} {
			left, err := client.Get(t.Context(), restoredPrefix+prefix, clientv3.WithPrefix())
			if err != nil || len(left.Kvs) > 0 {
				t.Errorf("step %d: %v: left %v", step, err, left)
			}
		}
	}
	if opened != 1 || steadfast == 0 {
		t.Errorf("opened %d of 10, all steps were seen: %t", opened, steadfast > 0)
	}
}

// TestRestoreAttempts: two replicas that serve one request never write for the same attempt, and one that has been slow removes nothing of the other.
func TestRestoreAttempts(t *testing.T) {
	client := etcdtest.NewClient(t, etcdtest.Start(t))
	replica := newReplica(client)
	putCluster(t, replica, restoredParent, "uid")
	in := newIncoming(t, replica, "team")
	first, err := in.claim(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in.claim(t.Context()); err == nil {
		t.Error("a claim replaces another one")
	}
	claimed := func() *clientv3.GetResponse {
		t.Helper()
		found, err := client.Get(t.Context(), replica.keys.Claim("team"))
		if err != nil || len(found.Kvs) != 1 {
			t.Fatalf("%v: the claim is %v", err, found)
		}
		return found
	}
	slow := claimed().Kvs[0]
	if err := replica.clean(t.Context(), slow); err != nil {
		t.Fatal(err)
	}
	second, err := in.claim(t.Context())
	if err != nil || second.UID == first.UID || !strings.HasPrefix(string(second.UID), in.ID+"-") {
		t.Fatalf("%v: the attempts are %q and %q", err, first.UID, second.UID)
	}
	entry := transfer.Entry{Version: transfer.Version{Key: transfer.Key{Resource: configMapStorage, Name: "default/one"}, ModRevision: 1}, Value: []byte("{}")}
	if err := in.transfer.NewWriter(second.Incoming, second.fence).Store(t.Context(), []transfer.Entry{entry}); err != nil {
		t.Fatal(err)
	}
	if err := replica.clean(t.Context(), slow); err == nil {
		t.Error("the attempt of another replica was cleaned")
	}
	if got := string(claimed().Kvs[0].Value); got != string(second.UID) {
		t.Errorf("the claim is %q", got)
	}
	if err := in.openForTest(t.Context(), first.fence); err == nil {
		t.Error("the first attempt opens the copy of the second")
	}
	if err := in.openForTest(t.Context(), second.fence); err != nil {
		t.Error(err)
	}
	versions, _, err := replica.transfer.Manifest(t.Context(), in.cluster)
	if err != nil || !slices.ContainsFunc(versions, func(v transfer.Version) bool { return v.Key == entry.Key }) {
		t.Errorf("%v: the keys are %v", err, versions)
	}
}

// TestRestoreBlockedClaim: a claim that cannot be cleaned keeps only its own logical cluster from being restored.
func TestRestoreBlockedClaim(t *testing.T) {
	client := etcdtest.NewClient(t, etcdtest.Start(t))
	replica := newReplica(client)
	replica.cfg.Held = func() bool { return true } // the request is refused with this reason
	if _, err := client.Put(t.Context(), replica.keys.Claim("blocked"), "not a UID/"); err != nil {
		t.Fatal(err)
	}
	for cluster, want := range map[string]workspacerestore.State{"blocked": workspacerestore.Waiting, "other": workspacerestore.Failed} {
		in := newIncoming(t, replica, cluster)
		if err := replica.serve(t.Context()); err == nil || !strings.Contains(err.Error(), "UID of the migration is invalid") {
			t.Errorf("%s: the error is %v", cluster, err)
		}
		if report, err := in.reported(t.Context()); err != nil || report.State != want || report.Message == "" {
			t.Errorf("%s: %v: the report is %+v", cluster, err, report)
		}
		if _, err := client.Delete(t.Context(), replica.keys.Report()); err != nil {
			t.Fatal(err)
		}
	}
}
