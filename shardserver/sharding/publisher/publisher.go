package publisher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/sharding/replica"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

const (
	// workers is how many objects of one resource are written at once.
	workers = 4
	// unreachableRetry is when a write is tried again that did not reach the cache.
	unreachableRetry = 2 * time.Second
)

// Config is what a Publisher works with.
type Config struct {
	Registry *storage.Registry
	// Shard is the name of this shard.
	Shard string
	// Cache is written to, Mirror knows what stands there.
	Cache    *client.Client
	Informer *replica.Informer
	// Sources have different resources.
	Sources []Source
	// Report returns the next heartbeat of this shard, without Complete. It is asked every Interval.
	Report   func(context.Context) (shardingv1alpha1.ShardReportSpec, error)
	Interval time.Duration
}

// Publisher keeps what this shard has in the cache as its sources want it. One replica of a shard runs it at a time.
type Publisher struct {
	cfg      Config
	clusters *storage.Reader[*corev1alpha1.LogicalCluster]
	// reported is what the last report says, by which completeness is known; pass is the look at everything that goes on
	// until it says so. Both are Run's.
	reported reported
	pass     *pass
	// locks are held while an object is published.
	locks stripes
	// running says that this is the replica that publishes.
	running atomic.Bool

	mu sync.Mutex
	// waiting are the objects that could not be written, and since when. They leave when they are written.
	waiting map[item]time.Time
}

// item is an object of a source.
type item struct {
	resource schema.GroupResource
	key      controller.Key
}

// New returns a publisher.
func New(cfg Config) *Publisher {
	return &Publisher{
		cfg: cfg, waiting: map[item]time.Time{},
		clusters: storage.NewReader[*corev1alpha1.LogicalCluster](cfg.Registry, corev1alpha1.Resource("logicalclusters")),
	}
}

// Controllers returns one controller per source. They do nothing while the cache is away, and look at everything when it
// is back.
func (p *Publisher) Controllers() []controller.Controller {
	all := make([]controller.Controller, 0, len(p.cfg.Sources))
	for _, source := range p.cfg.Sources {
		inputs := append([]controller.Input{{
			Resource: source.Resource,
			Keys:     controller.ObjectKey,
			Stream: func(ctx context.Context) (watch.Interface, error) {
				return p.cfg.Informer.WatchPublished(ctx, source.Resource)
			},
		}}, source.Inputs...)
		all = append(all, controller.Controller{
			Name: "publish-" + source.Resource.String(), Inputs: inputs, Workers: workers,
			Reconcile: func(ctx context.Context, key controller.Key) (controller.Result, error) {
				return p.reconcile(ctx, source, key)
			},
		})
	}
	return all
}

func (p *Publisher) reconcile(ctx context.Context, source Source, key controller.Key) (controller.Result, error) {
	if key.Cluster.IsSystem() {
		return controller.Result{}, nil
	}
	if key.Name != "" {
		return p.publish(ctx, source, key)
	}
	keys, err := p.inCluster(ctx, source, key.Cluster)
	if err != nil {
		return controller.Result{}, err
	}
	var result controller.Result
	var errs []error
	for _, key := range keys {
		one, err := p.publish(ctx, source, key)
		result.RequeueAfter = max(result.RequeueAfter, one.RequeueAfter)
		errs = append(errs, err)
	}
	return result, errors.Join(errs...)
}

// inCluster returns the keys of a logical cluster that a source may want or has published.
func (p *Publisher) inCluster(ctx context.Context, source Source, cluster logicalcluster.Name) ([]controller.Key, error) {
	if source.List == nil {
		return nil, nil
	}
	keys, err := source.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, key := range p.cfg.Informer.PublishedKeys(source.Resource) {
		if key.Cluster == cluster {
			keys = append(keys, controller.Key{Cluster: cluster, Namespace: key.Namespace, Name: key.Name})
		}
	}
	return keys, nil
}

// publish brings one object in the cache to what its source wants.
func (p *Publisher) publish(ctx context.Context, source Source, key controller.Key) (controller.Result, error) {
	of := item{source.Resource, key}
	if _, _, known := p.cfg.Informer.Published(source.Resource, p.keyOf(key)); !known {
		// Everything is looked at again when it is, but for an object that is gone by then and was never written.
		return controller.Result{RequeueAfter: p.retry(of)}, nil
	}
	err := p.bring(ctx, source, key)
	p.account(ctx, of, err)
	switch status := apierrors.APIStatus(nil); {
	case err == nil:
		return controller.Result{}, nil
	case errors.Is(err, errAway):
		return controller.Result{RequeueAfter: p.retry(of)}, nil
	case errors.Is(err, errSource), errors.As(err, &status):
		return controller.Result{}, err
	}
	return controller.Result{RequeueAfter: unreachableRetry}, nil
}

var (
	// errSource marks the errors of sources, which say nothing about the cache.
	errSource = errors.New("finding out what to publish")
	// errAway is the error about a cache of which it is not known what is there.
	errAway = errors.New("the cache is away")
)

// bring has the cache say of one object what its source wants now. One at a time does that for an object, so that nothing
// new is overwritten by something older.
func (p *Publisher) bring(ctx context.Context, source Source, key controller.Key) error {
	lock := p.locks.of(item{source.Resource, key})
	lock.Lock()
	defer lock.Unlock()
	wanted, err := p.wanted(ctx, source, key)
	if errors.Is(err, ErrUnchanged) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w as %s %s: %w", errSource, source.Resource, key, err)
	}
	return p.write(ctx, source.Resource, key, wanted)
}

func (p *Publisher) keyOf(key controller.Key) client.Key {
	return client.Key{Shard: p.cfg.Shard, Cluster: key.Cluster, Namespace: key.Namespace, Name: key.Name}
}

// wanted returns what shall stand in the cache, nil for nothing.
func (p *Publisher) wanted(ctx context.Context, source Source, key controller.Key) (*unstructured.Unstructured, error) {
	obj, err := source.Wanted(ctx, key)
	if err != nil || obj == nil {
		return nil, err
	}
	resource, ok := client.Find(source.Resource)
	if !ok {
		return nil, fmt.Errorf("caches do not store %s", source.Resource)
	}
	raw, err := replica.Encode(resource, obj)
	if err != nil {
		return nil, err
	}
	content := &unstructured.Unstructured{}
	if err := json.Unmarshal(raw, &content.Object); err != nil {
		return nil, fmt.Errorf("decoding what was encoded: %w", err)
	}
	if content.GetName() != key.Name || content.GetNamespace() != key.Namespace {
		return nil, fmt.Errorf("the source wants %s/%s to be published under this key", content.GetNamespace(), content.GetName())
	}
	far, err := p.reachesFar(ctx, source.Resource, key, content)
	if err != nil {
		return nil, err
	}
	p.address(content, key, far)
	return content, nil
}

// address writes on an object where it comes from and how far it goes. Tenants have no say in how caches carry it.
func (p *Publisher) address(content *unstructured.Unstructured, key controller.Key, far bool) {
	annotations := content.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	delete(annotations, client.ViaAnnotation)
	delete(annotations, client.DownAnnotation)
	annotations[client.ShardAnnotation] = p.cfg.Shard
	annotations[logicalcluster.AnnotationKey] = key.Cluster.String()
	if version := content.GetResourceVersion(); version != "" {
		annotations[client.OriginalResourceVersionAnnotation] = version
	}
	if uid := content.GetUID(); uid != "" {
		annotations[client.OriginalUIDAnnotation] = string(uid)
	}
	if far {
		annotations[client.ReachAnnotation] = client.ReachGlobal
	}
	content.SetAnnotations(annotations)
	content.SetResourceVersion("")
}

// reachesFar tells whether all caches of an installation need an object: what shards tell one another and what the
// logical cluster root has always, anything else if it or its logical cluster says so.
func (p *Publisher) reachesFar(ctx context.Context, resource schema.GroupResource, key controller.Key, content *unstructured.Unstructured) (bool, error) {
	if storage.OnlyElsewhere(resource) || key.Cluster == logicalcluster.Root || content.GetAnnotations()[client.ReachAnnotation] == client.ReachGlobal {
		return true, nil
	}
	cluster, err := p.clusters.Get(ctx, "", corev1alpha1.LogicalClusterName)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return cluster.Annotations[client.ReachAnnotation] == client.ReachGlobal, nil
}

// write brings what stands in the cache to what is wanted.
func (p *Publisher) write(ctx context.Context, resource schema.GroupResource, key controller.Key, wanted *unstructured.Unstructured) error {
	stands, exists, known := p.cfg.Informer.Published(resource, p.keyOf(key))
	if !known {
		return errAway
	}
	return p.replace(ctx, resource, key, stands, exists, wanted)
}

// step is what is to be done to an object in the cache.
type step int

const (
	leave step = iota
	create
	update
	remove
)

// stepTo returns what makes a state of what stands in the cache. wanted is nil for nothing.
func stepTo(wanted *replica.Digest, stands replica.Version, exists bool) step {
	switch {
	case wanted == nil && exists:
		return remove
	case wanted == nil, exists && *wanted == stands.Digest:
		return leave
	case exists:
		return update
	}
	return create
}

// replace creates, updates or deletes what stands in the cache, if it is not as wanted. Where the mirror is behind the
// cache, it returns a conflict.
func (p *Publisher) replace(ctx context.Context, resource schema.GroupResource, key controller.Key, stands replica.Version, exists bool, wanted *unstructured.Unstructured) error {
	found, ok := client.Find(resource)
	if !ok {
		return fmt.Errorf("caches do not store %s", resource)
	}
	var content *replica.Digest
	if wanted != nil {
		of, err := replica.DigestOf(wanted.Object)
		if err != nil {
			return err
		}
		content = &of
	}
	at, gvr := p.keyOf(key), found.GroupVersionResource
	var written *client.Object
	var err error
	switch stepTo(content, stands, exists) {
	case leave:
		return nil
	case remove:
		err = p.cfg.Cache.Delete(ctx, gvr, at, stands.UID)
		if err == nil || apierrors.IsNotFound(err) {
			return p.cfg.Informer.RecordWrite(resource, at, nil)
		}
		return err
	case update:
		wanted.SetResourceVersion(stands.ResourceVersion)
		wanted.SetUID(stands.UID)
		if written, err = p.cfg.Cache.Update(ctx, gvr, key.Cluster, wanted); apierrors.IsNotFound(err) {
			return apierrors.NewConflict(resource, key.Name, err)
		}
	case create:
		if written, err = p.cfg.Cache.Create(ctx, gvr, key.Cluster, wanted); apierrors.IsAlreadyExists(err) {
			return apierrors.NewConflict(resource, key.Name, err)
		}
	}
	if err != nil {
		return err
	}
	return p.cfg.Informer.RecordWrite(resource, at, written)
}
