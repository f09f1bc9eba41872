package instance

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/shortname"
	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// Labels of metrics. No label names a tenant, so the number of series is bounded by that of Templates.
const (
	metricTemplate = "template"
	metricBackend  = "backend"
	metricPhase    = "phase"
	metricResult   = "result"
)

// Results of reconciliations, sweeps and purges.
const (
	resultSuccess    = "success"
	resultError      = "error"
	resultIncomplete = "incomplete"
)

var (
	reconciliations = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "infrastructure_instance_reconcile_duration_seconds", Buckets: prometheus.ExponentialBuckets(0.01, 4, 7),
		Help: "Duration of the reconciliations of instances, by Template and backend. result is success or error.",
	}, []string{metricTemplate, metricBackend, metricResult})
	sweeps = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "infrastructure_sweeps_total",
		Help: "Searches for what workspaces left that are gone, by backend. result is success, error, or incomplete: a shard could not be read, so nothing was deleted.",
	}, []string{metricBackend, metricResult})
	candidates = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "infrastructure_sweep_candidates",
		Help: "Logical clusters without instances that a backend has something of, and that the next sweep asks about.",
	}, []string{metricBackend})
	purges = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "infrastructure_purges_total",
		Help: "Logical clusters that are gone and whose remains were deleted, by backend. result is success or error.",
	}, []string{metricBackend, metricResult})
	connected = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "infrastructure_backend_connected",
		Help: "Whether a backend could read its Templates and the endpoints of the export: 1, or 0 while it tries again, and its instances stay as they are.",
	}, []string{metricBackend})
	counted = &counter{
		runners: map[*runner]bool{},
		instances: prometheus.NewDesc("infrastructure_instances", "Instances by Template, backend and phase.",
			[]string{metricTemplate, metricBackend, metricPhase}, nil),
	}
)

func init() {
	metrics.Registry.MustRegister(reconciliations, sweeps, candidates, purges, connected, counted)
}

// counter counts instances at collection, so that it needs no state for each instance.
type counter struct {
	instances *prometheus.Desc

	mu      sync.Mutex
	runners map[*runner]bool // the running runners
}

func (c *counter) add(r *runner) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runners[r] = true
}

func (c *counter) remove(r *runner) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.runners, r)
}

// Describe implements prometheus.Collector.
func (c *counter) Describe(out chan<- *prometheus.Desc) { out <- c.instances }

// Collect implements prometheus.Collector.
func (c *counter) Collect(out chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	type series struct{ template, backend, phase string }
	counts := map[series]int{}
	for r := range c.runners {
		for _, k := range r.kinds.All() {
			for _, key := range k.informer.Keys() {
				counts[series{k.template().Name, r.Backend, phaseOf(k.informer, key)}]++
			}
		}
	}
	for s, count := range counts {
		out <- prometheus.MustNewConstMetric(c.instances, prometheus.GaugeValue, float64(count), s.template, s.backend, s.phase)
	}
}

// phaseOf returns the phase of an instance, or Pending if it has no status.
func phaseOf(store *workspaces.Informer, key workspaces.Key) string {
	object := struct {
		Status struct {
			Phase string `json:"phase"`
		} `json:"status"`
	}{}
	if json.Unmarshal(store.Encoded(key), &object) != nil || object.Status.Phase == "" {
		return "Pending"
	}
	return object.Status.Phase
}

// observe records a reconciliation, unless the watch of its kind has stopped in the meantime.
func (r *runner) observe(k *kind, started time.Time, err error) {
	result := resultSuccess
	if err != nil {
		result = resultError
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if running, _ := r.kinds.Get(k.kindKey); running == k {
		reconciliations.WithLabelValues(k.template().Name, r.Backend, result).Observe(time.Since(started).Seconds())
	}
}

// deleteMetricsOf removes the series of a Template that has no running kind. Callers must hold r.mu.
func (r *runner) deleteMetricsOf(name string) {
	for _, k := range r.kinds.All() {
		if k.template().Name == name {
			return
		}
	}
	reconciliations.DeletePartialMatch(prometheus.Labels{metricTemplate: name, metricBackend: r.Backend})
}

// end removes the series of a backend that has stopped.
func (r *runner) end() {
	counted.remove(r)
	r.shards.StopAll()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range r.kinds.StopAll() {
		r.deleteMetricsOf(k.template().Name)
	}
	candidates.DeleteLabelValues(r.Backend)
	connected.DeleteLabelValues(r.Backend)
}

// LabelEvent returns the label key of events of instances. Its value is "true".
func LabelEvent(group string) string { return group + "/event" }

// recordTransition records an event in the tenant's workspace if an instance has changed its state and the tenant accepts the claim for
// events. A write that does not change the reason of the condition Ready records none.
func (r *reconciliation) recordTransition(after map[string]any) {
	previous, current := readyCondition(statusOf(r.instance.Object)), readyCondition(after)
	if current == nil || previous != nil && previous.Reason == current.Reason {
		return
	}
	eventType, reason, message := corev1.EventTypeNormal, current.Reason, current.Message
	switch {
	case reason == reasonReady:
		reason, message = "Ready", "The instance is ready."
	case reason == reasonUnavailable, after["phase"] == string(infrastructurev1alpha1.PhaseFailed):
		eventType = corev1.EventTypeWarning
	}
	r.kind.shard.record(r.ctx, r.instance.Cluster, r.instance.Object, eventType, reason, message)
}

func (s *shard) record(ctx context.Context, cluster logicalcluster.Name, object *unstructured.Unstructured, eventType, reason, message string) {
	s.events.Event(ctx, s.workspaces.Client(cluster), object, eventType, reason, message)
}

// recordPurge records an event in the provider's workspace that the backend has deleted the remains of a tenant's workspace.
func (r *runner) recordPurge(ctx context.Context, tenant logicalcluster.Name) {
	exported := &apisv1alpha2.APIExport{}
	if err := r.provider.Get(ctx, client.ObjectKey{Name: r.Export}, exported); err != nil {
		log.FromContext(ctx).Error(err, "Failed to read the export that an event is about")
		return
	}
	r.record(ctx, apisv1alpha2.SchemeGroupVersion.WithKind("APIExport"), exported, corev1.EventTypeNormal, "Purged",
		fmt.Sprintf("Backend %s deleted what it still had of logical cluster %s, which has no instances.", r.Backend, tenant))
}

// maxMistake bounds the length of the description of an error in an event.
const maxMistake = 800

// recordTemplateError records an event in the provider's workspace that an error in a Template prevents an instance from becoming ready. The
// event is the same for all instances, so that the recorder aggregates them.
func (r *reconciliation) recordTemplateError(message string) {
	log.FromContext(r.ctx).Info("Failed to provide an instance because of an error in its Template", "template", r.latest.Name, "reason", message)
	kind := infrastructurev1alpha1.SchemeGroupVersion.WithKind("Template")
	kind.Group = r.runner.Group
	r.runner.record(r.ctx, kind, r.latest, corev1.EventTypeWarning, "InstancesFail", "Instances cannot become ready: "+shortname.Truncate(message, maxMistake))
}

// record records an event about an object in the provider's workspace.
func (r *runner) record(ctx context.Context, kind schema.GroupVersionKind, of client.Object, eventType, reason, message string) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	object.SetName(of.GetName())
	object.SetUID(of.GetUID())
	r.operatorEvents.Event(ctx, r.provider, object, eventType, reason, message)
}
