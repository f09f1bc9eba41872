package faults

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// jump is by how far a clock jumps: longer than tokens, events and the certificates of users of this test are valid.
const jump = 2 * time.Hour

// testClockJumps starts beta with a clock far ahead, and moves the clock back, ahead and back again while the shard runs. Writes,
// controllers, leases, watches and events are unaffected. Beta validates tokens and certificates with its own clock, and the front proxy
// with its own.
func (*processFaults) testClockJumps(f *processFaults) {
	host := shiftedClock(f.T, jump)
	token, certificate := f.createToken(beta), f.hourCertificate()
	secretToken := f.createSecretToken(beta)
	f.createEvent("before-the-jump")
	f.Kill(f.T, beta)
	f.RestartOn(f.parentT, beta, host)
	f.WaitReady(f.T, beta)
	f.waitForRecovery(beta)
	watched := f.watchWrites(beta)
	for n, ahead := range []bool{true, false, true, false}[:scaled(2, 4)] {
		if n > 0 {
			f.Process(f.T, beta).Signal(f.T, map[bool]syscall.Signal{false: syscall.SIGUSR1, true: syscall.SIGUSR2}[ahead])
		}
		name, shift, want := fmt.Sprint("jump-", n), time.Duration(0), http.StatusOK
		if ahead {
			shift, want = jump, http.StatusUnauthorized
		}
		f.expectClock(beta, shift)
		before := f.countFailures()
		f.waitForTokenStatus(token, beta, want)
		f.expectTokenStatus(secretToken, f.ServerURL(beta), f.consumers[beta], http.StatusOK)
		f.expectTokenStatus(secretToken, f.URL, f.consumers[beta], http.StatusOK)
		f.expectStatus(certificate, f.ServerURL(beta)+"/clusters/"+f.consumers[beta]+"/api", map[bool]int{true: http.StatusUnauthorized, false: http.StatusForbidden}[ahead])
		f.expectStatus(certificate, f.URL+"/clusters/"+f.consumers[beta]+"/api", http.StatusForbidden)
		f.expectTokenStatus(f.createToken(beta), f.URL, f.consumers[beta], want) // one of the future is not valid yet for the proxy
		f.testOwnerDeletion(f.consumers[beta], name)
		f.createEvent(name)
		f.createWorkspace(name, beta)
		f.createWorkspace(name+"-tree", alpha)
		f.expectServing(before, root, alpha, beta)
		f.Logf("clock of beta %s ahead: %d writes watched", shift, watched.count())
	}
	f.expectHealthyShards("after-the-jumps")
	f.expectEvents("before-the-jump", "jump-0", "jump-1")
	watched.expectAll(f)
}

// hourCertificate returns the configuration of a user without rights whose certificate ends before the jump does.
func (f *processFaults) hourCertificate() *rest.Config {
	f.Helper()
	config, err := f.Layout().ClientFor(time.Hour, f.URL, "someone")
	if err != nil {
		f.Fatal(err)
	}
	return config
}

// waitForTokenStatus is expectTokenStatus at the shard of the token, which caches the acceptance of a token for some seconds.
func (f *processFaults) waitForTokenStatus(token, shard string, want int) {
	f.Helper()
	config := rest.AnonymousClientConfig(f.Masters(f.T, shard))
	config.BearerToken = token
	shardtesting.Eventually(f.T, "the token is judged by the clock of its shard", func(context.Context) error {
		response, _ := shardtesting.Send(f.T, config, http.MethodGet, "/clusters/"+f.consumers[shard]+"/api", "")
		if response.StatusCode != want {
			return fmt.Errorf("%d, want %d", response.StatusCode, want)
		}
		return nil
	})
}

// createEvent creates an event in the consumer on beta.
func (f *processFaults) createEvent(name string) {
	f.Helper()
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: metav1.NamespaceDefault, Namespace: metav1.NamespaceDefault},
		Reason:         "Jumped", Message: "the clock jumps", Type: corev1.EventTypeNormal,
	}
	if err := f.admin.Create(shardtesting.In(f.Context(), f.consumers[beta]), event); err != nil {
		f.Fatal(err)
	}
}

func (f *processFaults) expectEvents(names ...string) {
	f.Helper()
	var events corev1.EventList
	if err := f.admin.List(shardtesting.In(f.Context(), f.consumers[beta]), &events, client.InNamespace(metav1.NamespaceDefault)); err != nil {
		f.Fatal(err)
	}
	for _, name := range names {
		if !slices.ContainsFunc(events.Items, func(e corev1.Event) bool { return e.Name == name }) {
			f.Errorf("the event %s does not exist", name)
		}
	}
}

// watched are the objects of a writer that a watch has delivered. It continues where it ended, as informers do: a busy server
// ends watches.
type watched struct {
	from int // writes that were acknowledged before the watch began
	w    *writer

	mu    sync.Mutex
	names map[string]bool
	ended error
}

// watchWrites watches, directly at a shard, all further writes of its writer.
func (f *processFaults) watchWrites(shard string) *watched {
	f.Helper()
	config := shardtesting.At(f.Masters(f.T, shard), f.consumers[shard])
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		f.Fatal(err)
	}
	configMaps := clientset.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	list, err := configMaps.List(f.Context(), metav1.ListOptions{Limit: 1})
	if err != nil {
		f.Fatal(err)
	}
	out := &watched{w: f.writers[shard], names: map[string]bool{}}
	stream, err := watchtools.NewRetryWatcherWithContext(f.Context(), list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.TimeoutSeconds = new(int64(3600))
			return configMaps.Watch(ctx, options)
		},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(stream.Stop)
	out.from = out.w.acknowledgedCount() + 1 // one may have been stored before the list, and acknowledged after it
	go out.receive(stream)
	return out
}

func (w *watched) receive(stream watch.Interface) {
	for event := range stream.ResultChan() {
		w.mu.Lock()
		if object, ok := event.Object.(*corev1.ConfigMap); ok && event.Type == watch.Added {
			w.names[object.Name] = true
		}
		if event.Type == watch.Error {
			w.ended = fmt.Errorf("%+v", event.Object)
		}
		w.mu.Unlock()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended == nil {
		w.ended = fmt.Errorf("the watch has ended")
	}
}

func (w *watched) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.names)
}

// expectAll checks that the watch is open, and has delivered every acknowledged write.
func (w *watched) expectAll(f *processFaults) {
	f.Helper()
	names := w.w.acknowledged()
	names = names[min(w.from, len(names)):]
	shardtesting.Eventually(f.T, "the watch delivers all writes", func(context.Context) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.ended != nil {
			return w.ended
		}
		for _, name := range names {
			if !w.names[name] {
				return fmt.Errorf("%s of %d is not delivered", name, len(names))
			}
		}
		return nil
	})
	f.Logf("the watch has delivered all %d writes", len(names))
}
