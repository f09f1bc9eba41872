package publisher

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/sharding/replica"
)

// Completeness is looked for again after firstRetry, then after twice that, and so on up to lastRetry.
const (
	firstRetry = 250 * time.Millisecond
	lastRetry  = 2 * time.Second
)

var shardReports = shardingv1alpha1.Resource("shardreports")

// reported is what stands in the cache as this shard's report.
type reported struct {
	// uid is that of the report which complete is about.
	uid      types.UID
	complete bool
}

// Run publishes the heartbeat of the shard until the context ends, and in it whether everything is published.
func (p *Publisher) Run(ctx context.Context) {
	p.begin()
	defer p.running.Store(false)
	wait := firstRetry
	for {
		complete, err := p.beat(ctx)
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(2).Info("The report of this shard was not published, will retry", "reason", err)
		}
		if complete {
			wait = p.cfg.Interval
		} else {
			wait = min(2*wait, lastRetry, p.cfg.Interval)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		if complete {
			wait = firstRetry
		}
	}
}

// begin forgets what could not be written when this replica ran last: others have written it since.
func (p *Publisher) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.waiting)
	p.pass = nil
	p.running.Store(true)
}

// beat publishes one report and tells whether it says that everything is published. It never creates one that says so:
// one that is updated is known to be in the store that everything was written to.
func (p *Publisher) beat(ctx context.Context) (complete bool, err error) {
	key := controller.Key{Cluster: logicalcluster.Root, Name: p.cfg.Shard}
	stands, exists, known := p.cfg.Informer.Published(shardReports, p.keyOf(key))
	if !known {
		return false, nil
	}
	if err := p.recall(ctx, stands, exists); err != nil {
		return false, err
	}
	spec, err := p.cfg.Report(ctx)
	if err != nil {
		return false, err
	}
	spec.Complete = p.reported.complete
	if err := p.say(ctx, key, spec); err != nil || spec.Complete {
		return err == nil, err
	}
	missing := p.proceed(ctx)
	klog.FromContext(ctx).V(3).Info("Looked whether everything is published", "missing", missing)
	if missing != nil {
		return false, nil
	}
	spec.Complete = true
	err = p.say(ctx, key, spec)
	return err == nil, err
}

// say writes a report. One that says that everything is there only takes the place of another one.
func (p *Publisher) say(ctx context.Context, key controller.Key, spec shardingv1alpha1.ShardReportSpec) error {
	content, err := p.report(key, spec)
	if err != nil {
		return err
	}
	stands, exists, known := p.cfg.Informer.Published(shardReports, p.keyOf(key))
	switch {
	case !known:
		err = errAway
	case spec.Complete && (!exists || stands.UID != p.reported.uid):
		err = errLost
	default:
		err = p.replace(ctx, shardReports, key, stands, exists, content)
	}
	p.account(ctx, item{shardReports, key}, err)
	if err != nil {
		return fmt.Errorf("publishing the report of this shard: %w", err)
	}
	if stands, exists, _ := p.cfg.Informer.Published(shardReports, p.keyOf(key)); exists {
		p.reported = reported{uid: stands.UID, complete: spec.Complete}
	}
	return nil
}

// recall finds out what the report in the cache says. One that is missing, or another one, says that the cache has lost
// everything.
func (p *Publisher) recall(ctx context.Context, stands replica.Version, exists bool) error {
	if !exists || p.reported.uid != "" && p.reported.uid != stands.UID {
		p.reported, p.pass = reported{}, nil
	}
	if !exists || p.reported.uid == stands.UID {
		return nil
	}
	resource, _ := client.Find(shardReports)
	object, err := p.cfg.Cache.Get(ctx, resource.GroupVersionResource, client.Key{Shard: p.cfg.Shard, Cluster: logicalcluster.Root, Name: p.cfg.Shard})
	if err != nil {
		return err
	}
	var report shardingv1alpha1.ShardReport
	if err := object.Decode(&report); err != nil {
		return err
	}
	p.reported = reported{uid: stands.UID, complete: object.Meta.UID == stands.UID && report.Spec.Complete}
	return nil
}

func (p *Publisher) report(key controller.Key, spec shardingv1alpha1.ShardReportSpec) (*unstructured.Unstructured, error) {
	resource, ok := client.Find(shardReports)
	if !ok {
		return nil, fmt.Errorf("caches do not store %s", shardReports)
	}
	raw, err := replica.Encode(resource, &shardingv1alpha1.ShardReport{ObjectMeta: metav1.ObjectMeta{Name: p.cfg.Shard}, Spec: spec})
	if err != nil {
		return nil, err
	}
	content := &unstructured.Unstructured{}
	if err := json.Unmarshal(raw, &content.Object); err != nil {
		return nil, fmt.Errorf("decoding what was encoded: %w", err)
	}
	p.address(content, key, true)
	return content, nil
}
