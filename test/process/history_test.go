package process

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/client-go/rest"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/programs"
)

// keysPerRange is the number of keys written concurrently in each workspace, per kind.
const keysPerRange = 3

// TestHistoryUnderFaults writes, reads and watches in several workspaces while the shard and its etcd are stopped, killed and compacted
// under the load. Every operation is recorded, and the records are checked afterwards: no acknowledged write is missing, and no watch
// misses an event or delivers one twice.
func TestHistoryUnderFaults(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	s := start(t, newRootDirectory(t), etcd.flags...)
	h := newHistory(t, s)

	expectProgressAfter := func(what string, fault func()) {
		t.Helper()
		before := h.acknowledged.Load()
		fault()
		shardtesting.Eventually(t, "writes are acknowledged after: "+what, func(context.Context) error {
			if got := h.acknowledged.Load(); got < before+150 {
				return fmt.Errorf("%d of 150", got-before)
			}
			return nil
		})
	}
	restartEtcd := func(how syscall.Signal) func() {
		return func() {
			etcd.Signal(t, how)
			etcd.Exit(t)
			etcd.Process = launch(t, etcd.directory, "etcd", etcd.args...)
		}
	}
	restartShard := func(how syscall.Signal) func() {
		return func() {
			s.Signal(t, how)
			s.Exit(t)
			s = start(t, s.directory, etcd.flags...)
		}
	}
	h.startLoad(t)
	expectProgressAfter("no fault", func() {})
	expectProgressAfter("a compaction", func() { etcd.compact(t) })
	expectProgressAfter("a kill of etcd", restartEtcd(syscall.SIGKILL))
	expectProgressAfter("a stop of the shard", restartShard(syscall.SIGTERM))
	expectProgressAfter("a kill of the shard", restartShard(syscall.SIGKILL))
	expectProgressAfter("a stop of etcd", restartEtcd(syscall.SIGTERM))
	expectProgressAfter("a compaction and a kill of the shard", func() { etcd.compact(t); restartShard(syscall.SIGKILL)() })
	h.stopLoad(t)
	h.check(t)
}

// compact compacts etcd at its current revision.
func (s *etcdServer) compact(t *testing.T) {
	t.Helper()
	client := s.client(t)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), programs.ExitTimeout)
	defer cancel()
	now, err := client.Get(ctx, "x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Compact(ctx, now.Header.Revision); err != nil {
		t.Fatal(err)
	}
}

func (s *etcdServer) client(t *testing.T) *clientv3.Client {
	t.Helper()
	flag := func(i int) string { _, file, _ := cutFlag(s.flags[i]); return file }
	config, err := rest.TLSConfigFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAFile: flag(1), CertFile: flag(2), KeyFile: flag(3)}})
	if err != nil {
		t.Fatal(err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{s.url}, TLS: config})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// history is the load and its records.
type history struct {
	writers      []*writer
	watchers     []*watchRecorder
	acknowledged atomic.Int64

	stopWriting, stopWatching context.CancelFunc
	writing, watching         sync.WaitGroup
}

func newHistory(t *testing.T, s *shard) *history {
	t.Helper()
	h := &history{}
	connect := func() (*rest.Config, error) { return s.loadConfig("base") }
	for _, name := range []string{"one", "two", "three"} {
		cluster := newWorkspace(t, s, name)
		workspace := &endpoint{connect: connect, cluster: cluster}
		workspace.define(t)
		for _, kind := range kinds {
			h.watchers = append(h.watchers, &watchRecorder{endpoint: workspace, kind: kind})
			for i := range keysPerRange {
				h.writers = append(h.writers, &writer{endpoint: workspace, kind: kind, name: fmt.Sprint("key-", i), acknowledged: &h.acknowledged})
			}
		}
	}
	return h
}

func (h *history) startLoad(t *testing.T) {
	var writing, watching context.Context
	writing, h.stopWriting = context.WithCancel(t.Context())
	watching, h.stopWatching = context.WithCancel(t.Context())
	for _, f := range h.watchers {
		if err := f.list(watching); err != nil {
			t.Fatal(err)
		}
		h.watching.Go(func() { f.run(watching) })
	}
	for _, w := range h.writers {
		h.writing.Go(func() { w.run(writing) })
	}
}

// stopLoad stops the load, reads what is stored, and waits until the watches have delivered all of it.
func (h *history) stopLoad(t *testing.T) {
	t.Helper()
	h.stopWriting()
	h.writing.Wait()
	for _, w := range h.writers {
		shardtesting.Eventually(t, "reading "+w.String(), w.read)
	}
	for _, f := range h.watchers {
		sentinel := &writer{endpoint: f.endpoint, kind: f.kind, name: "the-end", acknowledged: &h.acknowledged}
		shardtesting.Eventually(t, "the last write", func(ctx context.Context) error { return sentinel.create(ctx) })
		shardtesting.Eventually(t, "the watch delivers it", func(context.Context) error {
			if seen := f.version(); seen < sentinel.last.version {
				return fmt.Errorf("it is at %d, the write at %d", seen, sentinel.last.version)
			}
			return nil
		})
	}
	h.stopWatching()
	h.watching.Wait()
}

func (h *history) check(t *testing.T) {
	t.Helper()
	operations, events, gaps := 0, 0, 0
	for _, w := range h.writers {
		operations += len(w.acknowledgedWrites)
		for _, problem := range w.problems {
			t.Errorf("%s: %s", w, problem)
		}
	}
	for _, f := range h.watchers {
		events, gaps = events+len(f.events), gaps+len(f.gaps)
		for _, problem := range f.check() {
			t.Errorf("watch of %s: %s", f, problem)
		}
		for _, w := range h.writers {
			if w.endpoint == f.endpoint && w.kind == f.kind {
				for _, problem := range f.checkWrites(w) {
					t.Errorf("watch of %s: %s", f, problem)
				}
			}
		}
	}
	t.Logf("%d acknowledged writes by %d writers, %d events at %d watches, %d relists because the history was too old",
		operations, len(h.writers), events, len(h.watchers), gaps)
}

func cutFlag(flag string) (name, value string, ok bool) {
	for i := range flag {
		if flag[i] == '=' {
			return flag[:i], flag[i+1:], true
		}
	}
	return flag, "", false
}
