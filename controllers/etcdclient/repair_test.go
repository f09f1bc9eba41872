package etcdclient_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"k8s.io/utils/ptr"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/etcd"
	"github.com/atoll-dev/atoll/controllers/etcdclient"
	"github.com/atoll-dev/atoll/internal/etcdmember"
	"github.com/atoll-dev/atoll/test/freeport"
)

const members = 3

// env is an etcd of three members in this process, each with a directory as its volume, with the decisions of the operator about them.
type env struct {
	t         *testing.T
	cluster   etcd.Cluster
	endpoints []etcd.Endpoint
	directory string // of the volumes and of the record
	pods      [members]*pod

	record    etcdmember.Record
	confirmed string
}

// pod is the process of one member.
type pod struct {
	cancel context.CancelFunc
	done   chan struct{}
}

func newEnv(t *testing.T) *env {
	t.Helper()
	e := &env{t: t, directory: t.TempDir(), cluster: etcd.New(desired.Owner{Name: "root", Namespace: "kcp"},
		&operatorv1alpha1.EtcdConfig{Managed: &operatorv1alpha1.ManagedEtcd{Replicas: ptr.To[int32](members)}}, nil)}
	for i := range members {
		e.endpoints = append(e.endpoints, etcd.Endpoint{Name: fmt.Sprintf("root-etcd-%d", i), ClientURL: freeURL(t), PeerURL: freeURL(t), MetricsURL: freeURL(t)})
	}
	e.setRecord(e.cluster.NewRecord(""))
	t.Cleanup(func() {
		for i := range members {
			e.stop(i)
		}
	})
	return e
}

func freeURL(t *testing.T) string {
	t.Helper()
	listener, err := freeport.Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return "http://" + listener.Addr().String()
}

func (e *env) volume(i int) string { return filepath.Join(e.directory, fmt.Sprint(i)) }

// setRecord writes the record to the directory from which the members read it.
func (e *env) setRecord(record etcdmember.Record) {
	e.t.Helper()
	for _, endpoint := range e.endpoints {
		if len(record.Endpoints) < members {
			record.Endpoints = append(record.Endpoints, endpoint.ClientURL)
		}
	}
	e.record = record
	for key, value := range record.Data() {
		if err := os.WriteFile(filepath.Join(e.directory, key), []byte(value), 0o600); err != nil {
			e.t.Fatal(err)
		}
	}
}

// start runs a member like its container: it starts a process that fails again.
func (e *env) start(i int) {
	ctx, cancel := context.WithCancel(context.Background())
	e.pods[i] = &pod{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(e.pods[i].done)
		for ctx.Err() == nil {
			if err := e.run(ctx, i); err != nil && ctx.Err() == nil {
				select {
				case <-ctx.Done():
				case <-time.After(200 * time.Millisecond):
				}
			}
		}
	}()
}

func (e *env) run(ctx context.Context, i int) error {
	endpoint := e.endpoints[i]
	start, err := etcdmember.Member{
		Name: endpoint.Name, DataDirectory: e.volume(i), PeerURL: endpoint.PeerURL, ClientURL: endpoint.ClientURL, MetricsURL: endpoint.MetricsURL,
		RecordDirectory: e.directory, Log: func(string) {},
	}.Wait(ctx)
	if err != nil {
		return err
	}
	var initial []string
	for _, other := range e.endpoints {
		initial = append(initial, other.Name+"="+other.PeerURL)
	}
	config := embed.NewConfig()
	config.Name, config.Dir, config.UnsafeNoFsync = endpoint.Name, e.volume(i), true
	config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	config.ListenClientUrls, config.AdvertiseClientUrls = parse(endpoint.ClientURL), parse(endpoint.ClientURL)
	config.ListenPeerUrls, config.AdvertisePeerUrls = parse(endpoint.PeerURL), parse(endpoint.PeerURL)
	config.ListenMetricsUrls = parse(endpoint.MetricsURL)
	config.TickMs, config.ElectionMs = 20, 200
	config.InitialCluster, config.ClusterState = strings.Join(initial, ","), embed.ClusterStateFlagNew
	if start.Existing {
		config.InitialCluster, config.ClusterState = start.Cluster, embed.ClusterStateFlagExisting
	}
	if start.Token != "" {
		config.InitialClusterToken = start.Token
	}
	server, err := embed.StartEtcd(config)
	if err != nil {
		return err
	}
	defer func() {
		select {
		case <-server.Server.ReadyNotify():
		default: // without a quorum it does not serve, and Close would wait for that
			server.Server.Stop()
		}
		server.Close()
	}()
	select {
	case <-ctx.Done():
		return nil
	case err := <-server.Err():
		return err
	case <-server.Server.StopNotify():
		return nil
	}
}

func parse(raw string) []url.URL {
	u, err := url.Parse(raw)
	if err != nil {
		panic(err)
	}
	return []url.URL{*u}
}

func (e *env) stop(i int) {
	if e.pods[i] != nil {
		e.pods[i].cancel()
		<-e.pods[i].done
	}
}

// loseVolume deletes the volume and the pod of a member, and starts both again, empty.
func (e *env) loseVolume(i int) {
	e.stop(i)
	if err := os.RemoveAll(e.volume(i)); err != nil {
		e.t.Fatal(err)
	}
	e.start(i)
}

// reconcile observes, decides and acts once, like a reconcile of the operator, which stores only the record.
func (e *env) reconcile() (etcd.Facts, etcd.Decision) {
	facts := etcd.Facts{Record: e.record, Confirmed: e.confirmed}
	etcdclient.Client{}.Observe(e.t.Context(), e.endpoints, nil, &facts)
	decision := e.cluster.Decide(facts)
	switch decision.Action {
	case etcd.None:
	case etcd.Record:
		record := e.record
		record.ClusterID = facts.ClusterID
		e.setRecord(record)
	case etcd.Forget:
		e.setRecord(e.cluster.NewRecord(e.record.ClusterID))
	default: // a rejected action is decided again
		_ = etcdclient.Client{}.Repair(e.t.Context(), e.endpoints, nil, facts, decision)
	}
	return facts, decision
}

// eventually reconciles until a condition holds.
func (e *env) eventually(what string, holds func(etcd.Facts, etcd.Decision) bool) (facts etcd.Facts) {
	e.t.Helper()
	var decision etcd.Decision
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if facts, decision = e.reconcile(); holds(facts, decision) {
			return facts
		}
	}
	e.t.Fatalf("%s: %+v, %+v", what, facts, decision)
	return facts
}

func isRepaired(facts etcd.Facts, decision etcd.Decision) bool {
	return facts.Record.ClusterID != "" && decision.Action == etcd.None && decision.Healthy.Reason == "MembersServe"
}

// writer writes keys to any member until it is stopped, and records the acknowledged writes.
type writer struct {
	cancel       context.CancelFunc
	done         sync.WaitGroup
	mu           sync.Mutex
	acknowledged []string
}

func (e *env) startWriter() *writer {
	ctx, cancel := context.WithCancel(context.Background())
	w := &writer{cancel: cancel}
	for id := range members {
		w.done.Go(func() {
			client := e.client(e.endpoints[id].ClientURL)
			defer client.Close()
			for i := 0; ctx.Err() == nil; i++ {
				key := fmt.Sprintf("writer-%d/%06d", id, i)
				attempt, end := context.WithTimeout(ctx, time.Second)
				if _, err := client.Put(attempt, key, key); err == nil {
					w.mu.Lock()
					w.acknowledged = append(w.acknowledged, key)
					w.mu.Unlock()
				}
				end()
			}
		})
	}
	return w
}

func (w *writer) stop() []string {
	w.cancel()
	w.done.Wait()
	return w.acknowledged
}

func (w *writer) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.acknowledged)
}

func (e *env) client(endpoints ...string) *clientv3.Client {
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
	if err != nil {
		e.t.Error(err)
	}
	return client
}

// checkWrites checks that a member has all acknowledged writes itself.
func (e *env) checkWrites(endpoint etcd.Endpoint, acknowledged []string) {
	e.t.Helper()
	client := e.client(endpoint.ClientURL)
	defer client.Close()
	// A linearizable read first ensures that the member has applied all acknowledged writes.
	if _, err := client.Get(e.t.Context(), "x"); err != nil {
		e.t.Fatal(err)
	}
	all, err := client.Get(e.t.Context(), "writer-", clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithSerializable())
	if err != nil {
		e.t.Fatal(err)
	}
	found := map[string]bool{}
	for _, kv := range all.Kvs {
		found[string(kv.Key)] = true
	}
	missing := slices.DeleteFunc(slices.Clone(acknowledged), func(key string) bool { return found[key] })
	if len(missing) > 0 {
		e.t.Errorf("%s lacks %d of %d acknowledged writes, such as %s", endpoint.Name, len(missing), len(acknowledged), missing[0])
	}
}

// TestRepair runs the decisions against real members under load: after the loss of any volume, all acknowledged writes must exist;
// members that cannot be repaired without data loss must not be changed.
func TestRepair(t *testing.T) {
	ignored := goleak.IgnoreCurrent()
	t.Cleanup(func() { // members leave the connections between each other
		goleak.VerifyNone(t, ignored, goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
			goleak.IgnoreAnyFunction("net/http.(*conn).serve"), goleak.IgnoreAnyFunction("net/http.(*connReader).backgroundRead"))
	})
	e := newEnv(t)
	for i := range members {
		e.start(i) // in parallel, as the first start of a StatefulSet
	}
	first := e.eventually("the bootstrap", isRepaired).ClusterID

	writer := e.startWriter()
	t.Cleanup(func() { writer.stop() })
	random := rand.New(rand.NewPCG(15, 6))
	order := random.Perm(members)
	for round, victim := range order[:2] {
		before := writer.count()
		old := e.eventually("health before the loss", isRepaired).Members[victim].ID
		e.loseVolume(victim)
		var steps []etcd.Action
		e.eventually(fmt.Sprintf("the replacement of member %d", victim), func(facts etcd.Facts, decision etcd.Decision) bool {
			if !slices.Contains(steps, decision.Action) {
				steps = append(steps, decision.Action)
			}
			return isRepaired(facts, decision) && facts.Members[victim].ID != old
		})
		steps = slices.DeleteFunc(steps, func(a etcd.Action) bool { return a == etcd.None })
		if want := []etcd.Action{etcd.Remove, etcd.Add, etcd.Promote}; !slices.Equal(steps, want) {
			t.Errorf("round %d: steps %v, want %v", round, steps, want)
		}
		if writer.count() == before {
			t.Errorf("round %d: no write was acknowledged meanwhile", round)
		}
	}
	acknowledged := writer.stop()
	for _, endpoint := range e.endpoints {
		e.checkWrites(endpoint, acknowledged)
	}
	t.Logf("%d acknowledged writes", len(acknowledged))

	t.Run("two empty members never form a quorum over nothing", func(t *testing.T) {
		for i := range members {
			e.stop(i)
		}
		for i := range members {
			if i != order[0] {
				if err := os.RemoveAll(e.volume(i)); err != nil {
					t.Fatal(err)
				}
			}
		}
		for i := range members {
			e.start(i)
		}
		e.eventually("the report of the lost quorum", func(_ etcd.Facts, decision etcd.Decision) bool {
			return decision.Available.Reason == "EtcdQuorumLost"
		})
		for i := range members {
			if has := wal.Exist(filepath.Join(e.volume(i), "member", "wal")); has != (i == order[0]) {
				t.Errorf("member %d has data: %t", i, has)
			}
		}
	})
	t.Run("an etcd without data begins again only once that is confirmed", func(t *testing.T) {
		e.loseVolume(order[0])
		e.eventually("the report of the lost data", func(_ etcd.Facts, decision etcd.Decision) bool {
			return decision.Available.Reason == "EtcdDataLost"
		})
		e.confirmed = first
		if again := e.eventually("another bootstrap", isRepaired).ClusterID; again == first {
			t.Errorf("the new cluster has the ID of the lost one")
		}
	})
}
