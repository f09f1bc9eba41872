package workspaces

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// workspace is a workspace whose server responds to creations after some time.
type workspace struct {
	client.WithWatch
	name    string
	delay   time.Duration
	creates int
}

func newWorkspace(name string, delay time.Duration) *workspace {
	w := &workspace{name: name, delay: delay}
	w.WithWatch = interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			w.creates++
			select {
			case <-time.After(w.delay):
				return c.Create(ctx, object, options...)
			case <-ctx.Done():
				return ctx.Err()
			}
		},
	})
	return w
}

func (w *workspace) record(t *testing.T, recorder *Recorder, reason string) {
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.org/v1", "kind": "Database",
		"metadata": map[string]any{"name": "one", "uid": "1", "annotations": map[string]any{"kcp.io/cluster": w.name}}}}
	recorder.Event(t.Context(), w, object, corev1.EventTypeNormal, reason, "message")
}

func (w *workspace) events(t *testing.T) []corev1.Event {
	t.Helper()
	var list corev1.EventList
	if err := w.List(t.Context(), &list, client.InNamespace(metav1.NamespaceDefault)); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func start(t *testing.T) (recorder *Recorder, end func()) {
	recorder = NewRecorder("test", map[string]string{"a": "b"})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		recorder.Run(ctx)
		close(ended)
	}()
	return recorder, func() {
		cancel()
		<-ended
	}
}

func TestEqualEventsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorder, end := start(t)
		defer end()
		w := newWorkspace("one", 0)
		for _, reason := range []string{"Ready", "Failed", "Ready"} {
			w.record(t, recorder, reason)
		}
		synctest.Wait()
		counts := map[string]int32{}
		for _, event := range w.events(t) {
			counts[event.Reason] = event.Count
		}
		if counts["Ready"] != 2 || counts["Failed"] != 1 || len(counts) != 2 {
			t.Errorf("events are counted as %v", counts)
		}
	})
}

// A workspace that does not respond delays no others, and the recorder retries it later.
func TestSlowWorkspace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorder, end := start(t)
		defer end()
		slow, other := newWorkspace("slow", time.Hour), newWorkspace("other", time.Millisecond)
		for i := range 2 * maxQueuedOfWorkspace {
			slow.record(t, recorder, fmt.Sprint("Reason", i))
		}
		if got := recorder.queue.Len(); got > maxQueuedOfWorkspace+1 {
			t.Errorf("%d events of one workspace wait", got)
		}
		for i := range 10 {
			other.record(t, recorder, fmt.Sprint("Reason", i))
		}
		time.Sleep(eventTimeout / 2)
		synctest.Wait()
		if got := len(other.events(t)); got != 10 {
			t.Errorf("while another workspace does not answer, %d events are written", got)
		}
		time.Sleep(eventTimeout)
		synctest.Wait()
		if slow.creates != 1 || recorder.queue.Len() != 0 {
			t.Errorf("after the first write took too long, %d were begun, and %d wait", slow.creates, recorder.queue.Len())
		}
		slow.record(t, recorder, "Paused")
		time.Sleep(pauseTime)
		synctest.Wait()
		if slow.creates != 1 {
			t.Errorf("during the pause, %d writes were begun", slow.creates)
		}
		slow.delay = 0
		slow.record(t, recorder, "Later")
		synctest.Wait()
		if got := slow.events(t); len(got) != 1 || got[0].Reason != "Later" {
			t.Errorf("after the pause, the workspace has the events %v", got)
		}
		recorder.paused.Set("another", nil, pauseTime)
		if got := recorder.paused.Len(); got != 1 {
			t.Errorf("after the pause, it is kept: %d are, want another", got)
		}
	})
}

// The recorder retains no record of workspaces that were slow before.
func TestPausesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorder, end := start(t)
		defer end()
		for i := range 5 * int(pauseTime/slowWrite) {
			newWorkspace(fmt.Sprintf("slow%d", i), time.Hour).record(t, recorder, "Ready")
		}
		const most = writers * int(pauseTime/slowWrite)
		for range 10 {
			time.Sleep(pauseTime)
			synctest.Wait()
			if got := recorder.paused.Len(); got > most {
				t.Errorf("%d workspaces are kept", got)
			}
		}
	})
}
