package template

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/shortname"
)

// Labels of metrics.
const (
	metricTemplate  = "template"
	metricBackend   = "backend"
	metricResult    = "result"
	metricCondition = "condition"
)

var (
	setUps = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "infrastructure_template_setup_duration_seconds", Buckets: prometheus.ExponentialBuckets(0.01, 4, 7),
		Help: "Duration of the calls of backends that set a Template up, by Template and backend. result is ready, refused or error.",
	}, []string{metricTemplate, metricBackend, metricResult})
	observed = &collector{readers: map[client.Reader]bool{}, condition: prometheus.NewDesc("infrastructure_template_condition",
		"1 for each condition of a Template that is true, 0 for one that is not.", []string{metricTemplate, metricBackend, metricCondition}, nil)}
)

func init() {
	metrics.Registry.MustRegister(setUps, observed)
}

// collector reads Templates at collection, so that it needs no state for each Template.
type collector struct {
	condition *prometheus.Desc

	mu      sync.Mutex
	readers map[client.Reader]bool // caches of the running providers
}

// during returns a runnable that registers a reader until the context ends.
func (c *collector) during(reader client.Reader) manager.Runnable {
	return manager.RunnableFunc(func(ctx context.Context) error {
		c.set(reader, true)
		<-ctx.Done()
		c.set(reader, false)
		return nil
	})
}

func (c *collector) set(reader client.Reader, collected bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.readers, reader)
	if collected {
		c.readers[reader] = true
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) { out <- c.condition }

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for reader := range c.readers {
		var list infrastructurev1alpha1.TemplateList
		if reader.List(context.Background(), &list, client.UnsafeDisableDeepCopy) != nil {
			continue // the cache has stopped
		}
		for i := range list.Items {
			t := &list.Items[i]
			for _, condition := range t.Status.Conditions {
				value := 0.0
				if condition.Status == metav1.ConditionTrue {
					value = 1
				}
				out <- prometheus.MustNewConstMetric(c.condition, prometheus.GaugeValue, value, t.Name, t.Spec.Backend, condition.Type)
			}
		}
	}
}

// observeSetUp records a call of a backend.
func observeSetUp(t *infrastructurev1alpha1.Template, started time.Time, ready bool, err error) {
	result := "refused"
	switch {
	case err != nil:
		result = "error"
	case ready:
		result = "ready"
	}
	setUps.WithLabelValues(t.Name, t.Spec.Backend, result).Observe(time.Since(started).Seconds())
}

func deleteMetrics(name string) { setUps.DeletePartialMatch(prometheus.Labels{metricTemplate: name}) }

// recordChange records an event if a Template becomes ready, or if the reason why it is not ready changes.
func (r *Reconciler) recordChange(before, after *infrastructurev1alpha1.Template) {
	previous := meta.FindStatusCondition(before.Status.Conditions, infrastructurev1alpha1.ConditionReady)
	ready := meta.FindStatusCondition(after.Status.Conditions, infrastructurev1alpha1.ConditionReady)
	switch {
	case previous != nil && previous.Status == ready.Status && previous.Reason == ready.Reason:
	case ready.Status == metav1.ConditionTrue:
		r.Events.Eventf(after, nil, corev1.EventTypeNormal, ready.Reason, "Publish", "instances can be created")
	case ready.Reason != infrastructurev1alpha1.ReasonAwaitingEstablish && ready.Reason != infrastructurev1alpha1.ReasonReconciling:
		r.Events.Eventf(after, nil, corev1.EventTypeWarning, ready.Reason, "Publish", "%s", shortname.Truncate(ready.Message, maxNote))
	}
}

// maxNote bounds the message of an event.
const maxNote = 1024
