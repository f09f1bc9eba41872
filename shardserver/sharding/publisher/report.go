package publisher

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	exactjson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/klog/v2"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/sharding/replica"
)

// An incomplete report is retried after minRetry, which doubles up to maxRetry.
const (
	minRetry = 250 * time.Millisecond
	maxRetry = 2 * time.Second
)

var (
	shardReports = shardingv1alpha1.Resource("shardreports")
	shards       = corev1alpha1.Resource("shards")
)

// reported is the report of this shard in the cache.
type reported struct {
	// uid is the UID of the report that complete refers to.
	uid      types.UID
	complete bool
}

// Run publishes the heartbeat of the shard, with whether everything is published, until the context ends.
func (p *Publisher) Run(ctx context.Context) {
	p.reset()
	defer p.running.Store(false)
	wait := minRetry
	for {
		complete, err := p.publishReport(ctx)
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(2).Info("The report of this shard was not published, will retry", "err", err)
		}
		if complete {
			wait = p.cfg.Interval
		} else {
			wait = min(2*wait, maxRetry, p.cfg.Interval)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		if complete {
			wait = minRetry
		}
	}
}

// reset drops the state of an earlier run: another replica has published since.
func (p *Publisher) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.pending)
	p.resync = nil
	p.refills.Store(false)
	p.running.Store(true)
}

// publishReport publishes one report and returns whether it is complete. It never creates a complete report: a report
// that is updated is certainly in the store that everything was written to.
func (p *Publisher) publishReport(ctx context.Context) (complete bool, err error) {
	key := controller.Request{ClusterName: logicalcluster.Root, Name: p.cfg.Shard}
	current, exists, known := p.cfg.Informer.Published(shardReports, p.keyOf(key))
	if !known {
		return false, nil
	}
	if err := p.readReport(ctx, current, exists); err != nil {
		return false, err
	}
	spec, err := p.cfg.Report(ctx)
	if err != nil {
		return false, err
	}
	spec.Complete = p.reported.complete
	if err := p.writeReport(ctx, key, spec); err != nil || spec.Complete {
		return err == nil, err
	}
	missing := p.continueResync(ctx)
	klog.FromContext(ctx).V(3).Info("Resynced the published objects", "err", missing)
	if missing != nil {
		return false, nil
	}
	spec.Complete = true
	err = p.writeReport(ctx, key, spec)
	return err == nil, err
}

// writeReport writes a report. A complete report is written only as an update.
func (p *Publisher) writeReport(ctx context.Context, key controller.Request, spec shardingv1alpha1.ShardReportSpec) error {
	content, err := p.report(key, spec)
	if err != nil {
		return err
	}
	current, exists, known := p.cfg.Informer.Published(shardReports, p.keyOf(key))
	switch {
	case !known:
		err = errCacheUnavailable
	case spec.Complete && (!exists || current.UID != p.reported.uid):
		err = errCacheReplaced
	default:
		err = p.apply(ctx, shardReports, key, current, exists, content)
	}
	p.recordResult(ctx, item{shardReports, key}, err)
	if err != nil {
		return fmt.Errorf("publishing the report of this shard: %w", err)
	}
	if current, exists, _ := p.cfg.Informer.Published(shardReports, p.keyOf(key)); exists {
		p.reported = reported{uid: current.UID, complete: spec.Complete}
	}
	return nil
}

// readReport reads the report in the cache. If it is missing or another one, the cache has lost all objects.
func (p *Publisher) readReport(ctx context.Context, current replica.Version, exists bool) error {
	if !exists || p.reported.uid != "" && p.reported.uid != current.UID {
		p.reported, p.resync = reported{}, nil
	}
	if !exists || p.reported.uid == current.UID {
		return nil
	}
	resource, _ := client.FindResource(shardReports)
	object, err := p.cfg.Cache.Get(ctx, resource.GroupVersionResource, client.Key{Shard: p.cfg.Shard, Cluster: logicalcluster.Root, Name: p.cfg.Shard})
	if err != nil {
		return err
	}
	var report shardingv1alpha1.ShardReport
	if err := object.Decode(&report); err != nil {
		return err
	}
	p.reported = reported{uid: current.UID, complete: object.Meta.UID == current.UID && report.Spec.Complete}
	return nil
}

func (p *Publisher) report(key controller.Request, spec shardingv1alpha1.ShardReportSpec) (*unstructured.Unstructured, error) {
	resource, ok := client.FindResource(shardReports)
	if !ok {
		return nil, fmt.Errorf("caches do not store %s", shardReports)
	}
	raw, err := replica.Encode(resource, &shardingv1alpha1.ShardReport{ObjectMeta: metav1.ObjectMeta{Name: p.cfg.Shard}, Spec: spec})
	if err != nil {
		return nil, err
	}
	content := &unstructured.Unstructured{}
	if err := exactjson.Unmarshal(raw, &content.Object); err != nil {
		return nil, fmt.Errorf("decoding what was encoded: %w", err)
	}
	p.annotate(content, key, true)
	return content, nil
}
