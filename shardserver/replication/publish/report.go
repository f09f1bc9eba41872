package publish

import (
	"context"
	"encoding/json"
	"errors"
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
	"github.com/atoll-dev/atoll/shardserver/mirror"
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
	p.running.Store(true)
}

// beat publishes one report and tells whether it says that everything is published.
func (p *Publisher) beat(ctx context.Context) (complete bool, err error) {
	key := controller.Key{Cluster: logicalcluster.Root, Name: p.cfg.Shard}
	stands, exists, known := p.cfg.Mirror.Own(shardReports, p.keyOf(key))
	if !known {
		return false, nil
	}
	if err := p.reported.read(ctx, p, stands, exists); err != nil {
		return false, err
	}
	spec, err := p.cfg.Report(ctx)
	if err != nil {
		return false, err
	}
	if spec.Complete = p.reported.complete; !spec.Complete {
		missing := p.incomplete(ctx)
		spec.Complete = missing == nil
		klog.FromContext(ctx).V(3).Info("Looked whether everything is published", "missing", missing)
	}
	content, err := p.report(key, spec)
	if err != nil {
		return false, err
	}
	of := item{shardReports, key}
	if err := p.write(ctx, shardReports, key, content); err != nil {
		p.failed(ctx, of, err)
		return false, fmt.Errorf("publishing the report of this shard: %w", err)
	}
	p.done(ctx, of)
	if stands, exists, _ := p.cfg.Mirror.Own(shardReports, p.keyOf(key)); exists {
		p.reported = reported{uid: stands.UID, complete: spec.Complete}
	}
	return spec.Complete, nil
}

// read finds out what the report in the cache says. One that is missing says that the cache has lost everything.
func (r *reported) read(ctx context.Context, p *Publisher, stands mirror.Version, exists bool) error {
	if !exists {
		*r = reported{}
		return nil
	}
	if r.uid == stands.UID {
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
	*r = reported{uid: stands.UID, complete: object.Meta.UID == stands.UID && report.Spec.Complete}
	return nil
}

func (p *Publisher) report(key controller.Key, spec shardingv1alpha1.ShardReportSpec) (*unstructured.Unstructured, error) {
	resource, ok := client.Find(shardReports)
	if !ok {
		return nil, fmt.Errorf("caches do not store %s", shardReports)
	}
	raw, err := mirror.Encode(resource, &shardingv1alpha1.ShardReport{ObjectMeta: metav1.ObjectMeta{Name: p.cfg.Shard}, Spec: spec})
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

// incomplete returns what is not yet in the cache as it shall be; nil if everything is. It must all be in the store that
// the report is written to.
func (p *Publisher) incomplete(ctx context.Context) error {
	store, known := p.cfg.Mirror.OwnStore(shardReports)
	if !known {
		return errors.New("the cache is away")
	}
	for _, source := range p.cfg.Sources {
		if at, known := p.cfg.Mirror.OwnStore(source.Resource); !known || at != store {
			return fmt.Errorf("%s are not read from the cache yet", source.Resource)
		}
		if err := p.differs(ctx, source); err != nil {
			return err
		}
	}
	return nil
}

// differs returns the first difference between what a source wants and what stands in the cache.
func (p *Publisher) differs(ctx context.Context, source Source) error {
	keys, err := p.keys(ctx, source)
	if err != nil {
		return err
	}
	for _, key := range keys {
		if key.Name == "" || key.Cluster.IsSystem() {
			continue
		}
		if err := p.compare(logicalcluster.With(ctx, key.Cluster), source, key); err != nil {
			return err
		}
	}
	for _, at := range p.cfg.Mirror.OwnKeys(source.Resource) {
		key := controller.Key{Cluster: at.Cluster, Namespace: at.Namespace, Name: at.Name}
		if err := p.compare(logicalcluster.With(ctx, key.Cluster), source, key); err != nil {
			return err
		}
	}
	return nil
}

// keys returns all keys that there may be objects for.
func (p *Publisher) keys(ctx context.Context, source Source) ([]controller.Key, error) {
	if source.List != nil {
		return source.List(logicalcluster.With(ctx, logicalcluster.Wildcard))
	}
	var keys []controller.Key
	for _, input := range source.Inputs {
		if err := input.EachKey(ctx, p.cfg.Registry, func(key controller.Key) { keys = append(keys, key) }); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

func (p *Publisher) compare(ctx context.Context, source Source, key controller.Key) error {
	wanted, err := p.wanted(ctx, source, key)
	if errors.Is(err, ErrUnchanged) {
		return nil
	}
	if err != nil {
		return err
	}
	stands, exists, _ := p.cfg.Mirror.Own(source.Resource, p.keyOf(key))
	if wanted == nil {
		if exists {
			return fmt.Errorf("%s %s is still published", source.Resource, key)
		}
		return nil
	}
	content, err := mirror.ContentOf(wanted.Object)
	if err == nil && (!exists || content != stands.Content) {
		err = fmt.Errorf("%s %s is not published yet", source.Resource, key)
	}
	return err
}
