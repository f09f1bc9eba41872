package sinks

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	stockaudit "k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/audit/policy"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/plugin/pkg/audit/buffered"
	"k8s.io/apiserver/plugin/pkg/audit/truncate"
	"k8s.io/klog/v2"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/filters/audit"
)

const (
	defaultBufferSize = 1000
	// maxBufferSize bounds the memory of a sink: an event in the buffer has up to 100 KiB.
	maxBufferSize = 10000
	batchSize     = 400
	batchWait     = 10 * time.Second
	// retryDelay is the time before the first of few retries. Meanwhile, the buffer fills.
	retryDelay = time.Second
	// lookupTimeout bounds how long a request waits to be recorded while the watch cache is not ready.
	lookupTimeout = time.Second
)

// LogicalClusterReader reads LogicalClusters of this shard from memory.
type LogicalClusterReader interface {
	Get(ctx context.Context, namespace, name string) (*corev1alpha1.LogicalCluster, error)
}

// Load reads a file of kind AuditSinks, and returns the routes to its sinks.
func Load(file string, clusters LogicalClusterReader) ([]audit.Route, error) {
	cfg, err := read(file)
	if err != nil {
		return nil, err
	}
	routes := make([]audit.Route, 0, len(cfg.Sinks))
	for i := range cfg.Sinks {
		route, err := newRoute(&cfg.Sinks[i], clusters)
		if err != nil {
			return nil, fmt.Errorf("%s: sinks[%d]: %w", file, i, err)
		}
		routes = append(routes, route)
	}
	return routes, nil
}

func newRoute(sink *Sink, clusters LogicalClusterReader) (audit.Route, error) {
	selects, err := newSelector(sink, clusters)
	if err != nil {
		return audit.Route{}, err
	}
	route := audit.Route{Selects: selects, MayFail: true}
	if sink.S3 != nil {
		rules, err := policy.LoadPolicyFromFile(sink.PolicyFile)
		if err != nil {
			return audit.Route{}, fmt.Errorf("policyFile: %w", err)
		}
		route.Policy = policy.NewPolicyRuleEvaluator(rules)
		route.Backend, err = newS3(sink)
		return route, err
	}
	var applied genericapiserver.Config
	if err := stockOptions(sink).ApplyTo(&applied); err != nil {
		return audit.Route{}, err
	}
	route.Policy, route.Backend = applied.AuditPolicyRuleEvaluator, buffer(sink, applied.AuditBackend)
	return route, nil
}

// stockOptions returns the options of stock's audit log or webhook, without a buffer.
func stockOptions(sink *Sink) *genericoptions.AuditOptions {
	o := genericoptions.NewAuditOptions()
	o.PolicyFile = sink.PolicyFile
	if sink.Webhook != nil {
		w := &o.WebhookOptions
		w.ConfigFile, w.InitialBackoff, w.BatchOptions.Mode = sink.Webhook.KubeconfigFile, retryDelay, genericoptions.ModeBlockingStrict
		return o
	}
	l := &o.LogOptions
	l.Path, l.BatchOptions.Mode = sink.File.Path, genericoptions.ModeBlockingStrict
	for _, limit := range []struct {
		to    *int
		value int
	}{{&l.MaxSize, sink.File.MaxSizeMegabytes}, {&l.MaxBackups, sink.File.MaxBackups}, {&l.MaxAge, sink.File.MaxAgeDays}} {
		if limit.value > 0 {
			*limit.to = limit.value
		}
	}
	return o
}

// batchConfig has one sender: several would have more events in memory than the buffer has.
func batchConfig(sink *Sink) buffered.BatchConfig {
	size := sink.BufferSize
	if size == 0 {
		size = defaultBufferSize
	}
	batch := min(batchSize, size)
	if sink.File != nil {
		batch = 1 // a larger one would only delay lines
	}
	return buffered.BatchConfig{BufferSize: size, MaxBatchSize: batch, MaxBatchWait: batchWait}
}

// buffer returns a backend that no request waits for.
func buffer(sink *Sink, sender stockaudit.Backend) stockaudit.Backend {
	limits := genericoptions.NewAuditTruncateOptions().TruncateConfig
	return truncate.NewBackend(buffered.NewBackend(named{sender, sink.Name}, batchConfig(sink)), limits, auditv1.SchemeGroupVersion)
}

// named adds the name of the sink to what a backend says: stock's have that of their kind only.
type named struct {
	stockaudit.Backend
	sink string
}

// ProcessEvents implements audit.Sink.
func (n named) ProcessEvents(events ...*auditinternal.Event) bool {
	delivered := n.Backend.ProcessEvents(events...)
	if !delivered {
		klog.ErrorS(nil, "Failed to deliver audit events to a sink, they are lost", "sink", n.sink, "events", len(events))
	}
	return delivered
}

// String implements audit.Backend.
func (n named) String() string { return fmt.Sprintf("%s %q", n.Backend, n.sink) }

// newSelector returns whether an event is one of a selected workspace.
func newSelector(sink *Sink, clusters LogicalClusterReader) (func(*auditinternal.Event) bool, error) {
	selector := &sink.Workspaces
	withLabels := labels.Everything()
	if selector.LabelSelector != nil {
		var err error
		if withLabels, err = metav1.LabelSelectorAsSelector(selector.LabelSelector); err != nil {
			return nil, fmt.Errorf("workspaces.labelSelector: %w", err)
		}
	}
	named := map[string]bool{}
	for _, name := range selector.LogicalClusters {
		named[name] = true
	}
	anyName := len(selector.Paths) == 0 && len(named) == 0
	return func(event *auditinternal.Event) bool {
		name, ok := audit.ClusterOf(event)
		if !ok || name.IsWildcard() {
			return false
		}
		isNamed := anyName || named[name.String()]
		if isNamed && withLabels.Empty() && !anyName {
			return true
		}
		ctx, cancel := context.WithTimeout(logicalcluster.With(context.Background(), name), lookupTimeout)
		defer cancel()
		cluster, err := clusters.Get(ctx, "", corev1alpha1.LogicalClusterName)
		if apierrors.IsNotFound(err) {
			return false // nothing of it is served
		}
		if err != nil {
			stockaudit.HandlePluginError("sinks", fmt.Errorf("finding out whether the sink %q selects an event: %w", sink.Name, err), event)
			return false
		}
		return (isNamed || isBelow(pathOf(name, cluster), selector.Paths)) && withLabels.Matches(labels.Set(cluster.Labels))
	}, nil
}

// pathOf returns the path of a logical cluster. Root has no annotation.
func pathOf(name logicalcluster.Name, cluster *corev1alpha1.LogicalCluster) string {
	if path := cluster.Annotations[corev1alpha1.LogicalClusterPathAnnotationKey]; path != "" {
		return path
	}
	return name.String()
}

func isBelow(path string, paths []string) bool {
	for _, above := range paths {
		if path == above || strings.HasPrefix(path, above+":") {
			return true
		}
	}
	return false
}
