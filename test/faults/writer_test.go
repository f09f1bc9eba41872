package faults

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// writeInterval is the pause between two writes of a writer: the tests check for faults, not for throughput, and the writers of all tests
// are most of what this package costs.
var writeInterval = scaled(100*time.Millisecond, 20*time.Millisecond)

// writer writes into one logical cluster until it is stopped, and records which writes were acknowledged.
type writer struct {
	cluster string
	// prefix is that of the names of its objects.
	prefix string
	stop   func()

	mu                sync.Mutex
	acknowledgedNames []string
	failed            int
	last              error
}

// failureCounts is the number of failed requests at a moment, by shard.
type failureCounts map[string]int

func (e *env) countFailures() failureCounts {
	m := failureCounts{}
	for shard, w := range e.writers {
		m[shard] = w.failureCount()
	}
	return m
}

// startWriter starts a writer, which ends with the test.
func (e *env) startWriter(cluster, prefix string) *writer {
	e.Helper()
	w := &writer{cluster: cluster, prefix: prefix}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.run(shardtesting.In(ctx, cluster), e.admin)
	}()
	w.stop = sync.OnceFunc(func() {
		cancel()
		<-ended
	})
	e.Cleanup(w.stop)
	return w
}

func (w *writer) run(ctx context.Context, c client.Client) {
	for n := 0; ctx.Err() == nil; n++ {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: fmt.Sprint(w.prefix, "-", n)}}
		request, cancel := context.WithTimeout(ctx, 10*time.Second)
		err := c.Create(request, object)
		cancel()
		if ctx.Err() != nil {
			return
		}
		w.record(object.Name, err)
		time.Sleep(writeInterval)
	}
}

func (w *writer) record(name string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil || apierrors.IsAlreadyExists(err) { // an automatic retry of the client may conflict with its own write
		w.acknowledgedNames = append(w.acknowledgedNames, name)
		return
	}
	w.failed++
	w.last = err
}

func (w *writer) acknowledgedCount() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.acknowledgedNames)
}

func (w *writer) acknowledged() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.acknowledgedNames)
}

func (w *writer) failureCount() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed
}

func (w *writer) lastFailure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// finish stops all writers and checks that every acknowledged write is stored. Tests call it while all servers run.
func (e *env) finish() {
	e.Helper()
	for shard, w := range e.writers {
		w.stop()
		acknowledged := e.checkAcknowledged(w)
		e.Logf("%s: %d writes acknowledged, %d failed", shard, acknowledged, w.failureCount())
	}
}

// checkAcknowledged checks that every write of writers in one logical cluster that was acknowledged so far is stored, and
// returns their number.
func (e *env) checkAcknowledged(writers ...*writer) int {
	e.Helper()
	var names []string
	for _, w := range writers {
		names = append(names, w.acknowledged()...)
	}
	var stored corev1.ConfigMapList
	if err := e.admin.List(shardtesting.In(context.Background(), writers[0].cluster), &stored, client.InNamespace(metav1.NamespaceDefault)); err != nil {
		e.Errorf("listing the written objects: %v", err)
		return 0
	}
	exists := map[string]bool{}
	for i := range stored.Items {
		exists[stored.Items[i].Name] = true
	}
	for _, name := range names {
		if !exists[name] {
			e.Errorf("acknowledged write %s in %s is lost", name, writers[0].cluster)
		}
	}
	return len(names)
}
