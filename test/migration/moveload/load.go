// Package moveload is a reader and a writer of a workspace that moves.
package moveload

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	counter  = "counter"
	interval = 20 * time.Millisecond // between two requests of a client
)

// Outcome is what the requests of one client got.
type Outcome struct {
	Served, Unavailable int
	// Refusal is the last answer with status 503.
	Refusal string
	// Down is the time from the first request that got 503 to the next that was served, in sum.
	Down time.Duration
	// Slowest is the longest time that a request took.
	Slowest time.Duration
	// Failures are all other answers.
	Failures []string

	since time.Time
}

func (o *Outcome) add(err error, took time.Duration) {
	o.Slowest = max(o.Slowest, took)
	switch {
	case err == nil:
		o.Served++
		if !o.since.IsZero() {
			o.Down += time.Since(o.since)
			o.since = time.Time{}
		}
	case apierrors.IsServiceUnavailable(err):
		o.Unavailable++
		o.Refusal = fmt.Sprintf("%s after %s: %v", time.Now().Format(time.StampMilli), took, err)
		if o.since.IsZero() {
			o.since = time.Now()
		}
	default:
		o.Failures = append(o.Failures, err.Error())
	}
}

// Load is a reader and a writer of one workspace, which never repeat a request by themselves.
type Load struct {
	Reads, Writes Outcome
	// Value is the last one that was acknowledged.
	Value int
	// Lost are acknowledged writes that were not found, Repeated the values that were found and not acknowledged.
	Lost, Repeated int

	client  rest.Interface
	stop    context.CancelFunc
	running sync.WaitGroup
}

func objects(request *rest.Request) *rest.Request {
	return request.MaxRetries(0).Resource("configmaps").Namespace(metav1.NamespaceDefault)
}

// Fill creates objects of 2 KiB, and the one that the writer changes.
func Fill(t testing.TB, config *rest.Config, count int) {
	t.Helper()
	config = rest.CopyConfig(config)
	config.QPS = -1
	client := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps(metav1.NamespaceDefault)
	var creators sync.WaitGroup
	names := make(chan string)
	for range 8 {
		creators.Go(func() {
			for name := range names {
				object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"value": "0", "filler": strings.Repeat("x", 2<<10)}}
				if _, err := client.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
					t.Errorf("creating %s: %v", name, err)
				}
			}
		})
	}
	for i := range count {
		names <- fmt.Sprint("filler-", i)
	}
	names <- counter
	close(names)
	creators.Wait()
}

// Start starts the load of a workspace that has been filled.
func Start(t testing.TB, config *rest.Config) *Load {
	t.Helper()
	config = rest.CopyConfig(config)
	config.QPS = -1
	ctx, stop := context.WithCancel(t.Context())
	l := &Load{client: kubernetes.NewForConfigOrDie(config).CoreV1().RESTClient(), stop: stop}
	l.running.Go(func() { l.read(ctx) })
	l.running.Go(func() { l.write(ctx) })
	return l
}

// End stops the load.
func (l *Load) End() {
	l.stop()
	l.running.Wait()
}

func (l *Load) read(ctx context.Context) {
	for pause(ctx) {
		begun := time.Now()
		if err := objects(l.client.Get()).Name("filler-0").Do(context.WithoutCancel(ctx)).Error(); err != nil || ctx.Err() == nil {
			l.Reads.add(err, time.Since(begun))
		}
	}
}

// write increments a counter. After each answer that is no success it reads which value is stored: a refused write must have no
// effect, and an acknowledged one must have had exactly one.
func (l *Load) write(ctx context.Context) {
	client := context.WithoutCancel(ctx)
	stored := &corev1.ConfigMap{}
	for pause(ctx) {
		if stored.Name == "" {
			if err := objects(l.client.Get()).Name(counter).Do(client).Into(stored); err != nil {
				stored = &corev1.ConfigMap{}
				continue
			}
			switch value, _ := strconv.Atoi(stored.Data["value"]); {
			case value < l.Value:
				l.Lost++
			case value > l.Value:
				l.Repeated++
			}
		}
		stored.Data["value"] = strconv.Itoa(l.Value + 1)
		written := &corev1.ConfigMap{}
		begun := time.Now()
		err := objects(l.client.Put()).Name(counter).Body(stored).Do(client).Into(written)
		l.Writes.add(err, time.Since(begun))
		if stored = written; err == nil {
			l.Value++
		} else {
			stored = &corev1.ConfigMap{}
		}
	}
}

// pause waits for the next request, and reports whether there is one.
func pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(interval):
		return true
	}
}

// Stored returns the value of the counter.
func (l *Load) Stored(ctx context.Context) (int, error) {
	stored := &corev1.ConfigMap{}
	if err := objects(l.client.Get()).Name(counter).Do(ctx).Into(stored); err != nil {
		return 0, err
	}
	return strconv.Atoi(stored.Data["value"])
}
