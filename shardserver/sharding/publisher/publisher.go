package publisher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	exactjson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/keymutex"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/sharding/replica"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

const (
	// workers is the number of concurrent writes of one resource.
	workers = 4
	// lockCount is the number of locks that all objects share.
	lockCount = 256
	// unreachableRetry is the delay before a write that did not reach the cache is retried.
	unreachableRetry = 2 * time.Second
	// refusedRetry is the delay before an object that the cache refused is written again: another cache server may have
	// another limit.
	refusedRetry = 5 * time.Minute
)

// Config configures a Publisher.
type Config struct {
	Registry *storage.Registry
	// Shard is the name of this shard.
	Shard string
	// Cache is written to, Informer has the published state.
	Cache    *client.Client
	Informer *replica.Informer
	// Sources have different resources.
	Sources []Source
	// Report returns the next heartbeat of this shard, without Complete. It is called every Interval.
	Report   func(context.Context) (shardingv1alpha1.ShardReportSpec, error)
	Interval time.Duration
}

// Publisher brings the published objects of this shard to the desired state of its sources. One replica of a shard runs
// it at a time.
type Publisher struct {
	cfg      Config
	clusters *storage.Reader[*corev1alpha1.LogicalCluster]
	// reported is the report in the cache; resync is the resync that must end before a report is complete. Both belong
	// to Run.
	reported reported
	resync   *resync
	// locks serialize the writes of an object.
	locks keymutex.KeyMutex
	// running is set in the replica that publishes.
	running atomic.Bool
	// refills is set when this replica has found that the cache may have lost objects.
	refills atomic.Bool

	mu sync.Mutex
	// pending are the objects that could not be written.
	pending map[item]pendingItem
}

// item is an object of a source.
type item struct {
	resource schema.GroupResource
	key      controller.Request
}

// New returns a publisher.
func New(cfg Config) *Publisher {
	return &Publisher{
		cfg: cfg, pending: map[item]pendingItem{}, locks: keymutex.NewHashed(lockCount),
		clusters: storage.NewReader[*corev1alpha1.LogicalCluster](cfg.Registry, corev1alpha1.Resource("logicalclusters")),
	}
}

// Controllers returns one controller per source. They do nothing while the cache is unavailable, and reconcile every
// object when it is back.
func (p *Publisher) Controllers() []controller.Controller {
	all := make([]controller.Controller, 0, len(p.cfg.Sources))
	for _, source := range p.cfg.Sources {
		inputs := append([]controller.Source{{
			Resource: source.Resource,
			MapFunc:  controller.RequestForObject,
			WatchFunc: func(ctx context.Context) (watch.Interface, error) {
				return p.cfg.Informer.WatchPublished(ctx, source.Resource)
			},
		}}, source.Inputs...)
		all = append(all, controller.Controller{
			Name: "publish-" + source.Resource.String(), Sources: inputs, MaxConcurrentReconciles: workers,
			Reconcile: func(ctx context.Context, key controller.Request) (controller.Result, error) {
				return p.reconcile(ctx, source, key)
			},
		})
	}
	return all
}

func (p *Publisher) reconcile(ctx context.Context, source Source, key controller.Request) (controller.Result, error) {
	if !p.isPublished(source.Resource, key) {
		return controller.Result{}, nil
	}
	if key.Name != "" {
		return p.publish(ctx, source, key)
	}
	if key == allOf {
		return controller.Result{}, p.enqueueAll(ctx, source)
	}
	keys, err := p.keysInCluster(ctx, source, key.ClusterName)
	if err != nil {
		return controller.Result{}, err
	}
	var result controller.Result
	var errs []error
	for _, key := range keys {
		if key.Name == "" || !p.isPublished(source.Resource, key) {
			continue
		}
		one, err := p.publish(logicalcluster.With(ctx, key.ClusterName), source, key)
		result.RequeueAfter = max(result.RequeueAfter, one.RequeueAfter)
		errs = append(errs, err)
	}
	return result, errors.Join(errs...)
}

// isPublished reports whether an object, or one of a logical cluster, may be published. Of the system logical clusters, it is only the Shard of
// this shard in system:shard.
func (p *Publisher) isPublished(resource schema.GroupResource, key controller.Request) bool {
	return !key.ClusterName.IsSystem() || resource == shards && key.ClusterName == logicalcluster.Shard && key.Name == p.cfg.Shard
}

// allOf stands for all keys of a source.
var allOf = controller.Request{ClusterName: logicalcluster.Wildcard}

// enqueueAll enqueues all keys of a source, each of which is retried alone.
func (p *Publisher) enqueueAll(ctx context.Context, source Source) error {
	keys, err := p.allKeys(ctx, source)
	if err != nil {
		return err
	}
	source.each.Add(slices.DeleteFunc(keys, func(key controller.Request) bool { return key.Name == "" })...)
	return nil
}

// keysInCluster returns the keys of a logical cluster that are desired or published.
func (p *Publisher) keysInCluster(ctx context.Context, source Source, cluster logicalcluster.Name) ([]controller.Request, error) {
	if source.List == nil {
		return nil, nil
	}
	keys, err := source.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, key := range p.cfg.Informer.PublishedKeys(source.Resource) {
		if key.Cluster == cluster {
			keys = append(keys, controller.Request{ClusterName: cluster, Namespace: key.Namespace, Name: key.Name})
		}
	}
	return keys, nil
}

// publish reconciles one object in the cache with its source.
func (p *Publisher) publish(ctx context.Context, source Source, key controller.Request) (controller.Result, error) {
	obj := item{source.Resource, key}
	if _, _, known := p.cfg.Informer.Published(source.Resource, p.keyOf(key)); !known {
		// The watch of published objects triggers every other object when the cache is back, but not one that is
		// deleted by then and was never written.
		return controller.Result{RequeueAfter: p.retryDelay(obj)}, nil
	}
	err := p.sync(ctx, source, key)
	p.recordResult(ctx, obj, err)
	switch status := apierrors.APIStatus(nil); {
	case err == nil:
		return controller.Result{}, nil
	case errors.Is(err, errCacheUnavailable):
		return controller.Result{RequeueAfter: p.retryDelay(obj)}, nil
	case resultOf(err) == refusedObject:
		return controller.Result{RequeueAfter: refusedRetry}, nil
	case errors.Is(err, errSource), errors.As(err, &status):
		return controller.Result{}, err
	}
	return controller.Result{RequeueAfter: unreachableRetry}, nil
}

var (
	// errSource wraps the errors of sources, which do not concern the cache.
	errSource = errors.New("computing the desired object")
	// errCacheUnavailable is returned while the published state is unknown.
	errCacheUnavailable = errors.New("the cache is unavailable")
)

// sync brings one object in the cache to its desired state. Calls for one object are serialized, so that an older state
// never overwrites a newer one.
func (p *Publisher) sync(ctx context.Context, source Source, key controller.Request) error {
	id := source.Resource.String() + " " + key.String()
	p.locks.LockKey(id)
	defer func() { _ = p.locks.UnlockKey(id) }()
	if source.refill != nil && p.refills.Load() {
		if _, exists, known := p.cfg.Informer.Published(source.Resource, p.keyOf(key)); known && !exists {
			source.Desired = source.refill
		}
	}
	desired, err := p.desired(ctx, source, key)
	if errors.Is(err, ErrUnchanged) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w as %s %s: %w", errSource, source.Resource, key, err)
	}
	return p.write(ctx, source.Resource, key, desired)
}

func (p *Publisher) keyOf(key controller.Request) client.Key {
	return client.Key{Shard: p.cfg.Shard, Cluster: key.ClusterName, Namespace: key.Namespace, Name: key.Name}
}

// desired returns the object to publish, nil for none.
func (p *Publisher) desired(ctx context.Context, source Source, key controller.Request) (*unstructured.Unstructured, error) {
	obj, err := source.Desired(ctx, key)
	if err != nil || obj == nil {
		return nil, err
	}
	resource, ok := client.FindResource(source.Resource)
	if !ok {
		return nil, fmt.Errorf("caches do not store %s", source.Resource)
	}
	raw, err := replica.Encode(resource, obj)
	if err != nil {
		return nil, err
	}
	content := &unstructured.Unstructured{}
	if err := exactjson.Unmarshal(raw, &content.Object); err != nil {
		return nil, fmt.Errorf("decoding the encoded object: %w", err)
	}
	if content.GetName() != key.Name || content.GetNamespace() != key.Namespace {
		return nil, fmt.Errorf("the source returned %s/%s for this key", content.GetNamespace(), content.GetName())
	}
	global, err := p.hasGlobalReach(ctx, source.Resource, key)
	if err != nil {
		return nil, err
	}
	p.annotate(content, key, global)
	return content, nil
}

// annotate sets the origin and reach of an object. Tenants cannot set the annotations of caches.
func (p *Publisher) annotate(content *unstructured.Unstructured, key controller.Request, global bool) {
	annotations := content.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	delete(annotations, client.ViaAnnotation)
	delete(annotations, client.DownAnnotation)
	annotations[client.ShardAnnotation] = p.cfg.Shard
	annotations[logicalcluster.AnnotationKey] = key.ClusterName.String()
	if version := content.GetResourceVersion(); version != "" {
		annotations[client.OriginalResourceVersionAnnotation] = version
	}
	if uid := content.GetUID(); uid != "" {
		annotations[client.OriginalUIDAnnotation] = string(uid)
	}
	if global {
		annotations[client.ReachAnnotation] = client.ReachGlobal
	}
	content.SetAnnotations(annotations)
	content.SetResourceVersion("")
}

// hasGlobalReach returns whether all caches of an installation need an object: kinds that shards exchange, Shards in system:shard and
// objects of the logical cluster root always do; others if their logical cluster is annotated so. Caches of earlier versions rely
// on the annotation for all of them.
func (p *Publisher) hasGlobalReach(ctx context.Context, resource schema.GroupResource, key controller.Request) (bool, error) {
	if p.cfg.Registry.IsRemoteOnly(resource) || key.ClusterName == logicalcluster.Root || key.ClusterName == logicalcluster.Shard {
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

// write brings the object in the cache to the desired state.
func (p *Publisher) write(ctx context.Context, resource schema.GroupResource, key controller.Request, desired *unstructured.Unstructured) error {
	current, exists, known := p.cfg.Informer.Published(resource, p.keyOf(key))
	if !known {
		return errCacheUnavailable
	}
	return p.apply(ctx, resource, key, current, exists, desired)
}

// step is an operation on an object in the cache.
type step int

const (
	leave step = iota
	create
	update
	remove
)

// nextStep returns the step from the current to the desired state; desired is nil for none.
func nextStep(desired *replica.Digest, current replica.Version, exists bool) step {
	switch {
	case desired == nil && exists:
		return remove
	case desired == nil, exists && *desired == current.Digest:
		return leave
	case exists:
		return update
	}
	return create
}

// apply creates, updates or deletes an object in the cache. It returns a conflict if the informer is behind the cache.
func (p *Publisher) apply(ctx context.Context, resource schema.GroupResource, key controller.Request, current replica.Version, exists bool, desired *unstructured.Unstructured) error {
	cacheResource, ok := client.FindResource(resource)
	if !ok {
		return fmt.Errorf("caches do not store %s", resource)
	}
	var digest *replica.Digest
	if desired != nil {
		d, err := replica.DigestOf(desired.Object)
		if err != nil {
			return err
		}
		digest = &d
	}
	cacheKey, gvr := p.keyOf(key), cacheResource.GroupVersionResource
	var written *client.Object
	var err error
	switch nextStep(digest, current, exists) {
	case leave:
		return nil
	case remove:
		err = p.cfg.Cache.Delete(ctx, gvr, cacheKey, current.UID)
		if err == nil || apierrors.IsNotFound(err) {
			return p.cfg.Informer.RecordWrite(resource, cacheKey, nil)
		}
		return err
	case update:
		desired.SetResourceVersion(current.ResourceVersion)
		desired.SetUID(current.UID)
		if written, err = p.cfg.Cache.Update(ctx, gvr, key.ClusterName, desired); apierrors.IsNotFound(err) {
			return apierrors.NewConflict(resource, key.Name, err)
		}
	case create:
		if written, err = p.cfg.Cache.Create(ctx, gvr, key.ClusterName, desired); apierrors.IsAlreadyExists(err) {
			return apierrors.NewConflict(resource, key.Name, err)
		}
	}
	if err != nil {
		return err
	}
	return p.cfg.Informer.RecordWrite(resource, cacheKey, written)
}
