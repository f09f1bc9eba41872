package sinks

import (
	"context"
	"fmt"
	"strings"
	"time"

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

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/filters/audit"
)

const (
	defaultBufferSize = 10000
	batchSize         = 400
	batchWait         = 10 * time.Second
	// retryDelay is the time before the first of few retries. Meanwhile, the buffer fills.
	retryDelay = time.Second
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
	selects, err := newSelector(&sink.Workspaces, clusters)
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
	route.Policy, route.Backend = applied.AuditPolicyRuleEvaluator, applied.AuditBackend
	return route, nil
}

// stockOptions returns the options of stock's audit log or webhook. Both have one sender: several would have more events in memory than the
// buffer has.
func stockOptions(sink *Sink) *genericoptions.AuditOptions {
	o := genericoptions.NewAuditOptions()
	o.PolicyFile = sink.PolicyFile
	batch := genericoptions.AuditBatchOptions{Mode: genericoptions.ModeBatch, BatchConfig: batchConfig(sink)}
	if sink.Webhook != nil {
		w := &o.WebhookOptions
		w.ConfigFile, w.InitialBackoff, w.BatchOptions, w.TruncateOptions.Enabled = sink.Webhook.KubeconfigFile, retryDelay, batch, true
		return o
	}
	batch.BatchConfig.MaxBatchSize = 1 // a batch would only delay lines
	l := &o.LogOptions
	l.Path, l.BatchOptions, l.TruncateOptions.Enabled = sink.File.Path, batch, true
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

func batchConfig(sink *Sink) buffered.BatchConfig {
	size := sink.BufferSize
	if size == 0 {
		size = defaultBufferSize
	}
	return buffered.BatchConfig{BufferSize: size, MaxBatchSize: min(batchSize, size), MaxBatchWait: batchWait}
}

// buffer returns a backend that no request waits for.
func buffer(sink *Sink, sender stockaudit.Backend) stockaudit.Backend {
	limits := genericoptions.NewAuditTruncateOptions().TruncateConfig
	return truncate.NewBackend(buffered.NewBackend(sender, batchConfig(sink)), limits, auditv1.SchemeGroupVersion)
}

// newSelector returns whether an event is one of a selected workspace.
func newSelector(selector *Selector, clusters LogicalClusterReader) (func(*auditinternal.Event) bool, error) {
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
		cluster, err := clusters.Get(logicalcluster.With(context.Background(), name), "", corev1alpha1.LogicalClusterName)
		if err != nil {
			return false // there is none, so that nothing of it is served
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
