package replica

import (
	"context"
	"fmt"
	"net/http"
	"path"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/customresources/crdregistry"
	"github.com/atoll-dev/atoll/shardserver/customresources/crdstorage"
)

const (
	// segment is the first part of the keys of replicas, where other keys have the API group. No API group can have this
	// name.
	segment = "~copies"
	// idleTimeout is how long an unused storage stays open.
	idleTimeout = 5 * time.Minute
	// closeInterval is the interval at which idle storages are closed.
	closeInterval = time.Minute
	// completeTimeout is how long a request waits for replicas to be complete: it may be the first after a binding.
	completeTimeout = 3 * time.Second
	completePoll    = 50 * time.Millisecond
)

// completeMarkers has one object for each source with complete replicas. No user has this logical cluster.
var completeMarkers = logicalcluster.MustParseName("system:copies")

// Prefix returns the key prefix of replicas for the prefix of all keys of a shard.
func Prefix(shardPrefix string) string { return path.Join("/", shardPrefix, segment) }

// Store serves objects of cached resources with the schemas that consumers have bound: replicas, or over the pool of the shard's
// own objects, originals. It opens storages on demand, and closes them when they are idle.
type Store struct {
	pool     *crdstorage.Pool
	registry definitions

	mu       sync.Mutex
	storages map[storageKey]*openStorage
	closed   bool
}

// definitions are what a *crdregistry.Registry has of definitions.
type definitions interface {
	Acquire(ctx context.Context, gr schema.GroupResource, writes bool) (*crdregistry.Lease, error)
	CompileFor(ctx context.Context, gr schema.GroupResource, uid types.UID, store *crdstorage.Storage, publication *crdstorage.Publication) (*crdregistry.CompiledCRD, error)
	IsCurrent(uid types.UID, crd *crdregistry.CompiledCRD) bool
}

// openStorage is a storage with its users.
type openStorage struct {
	storage *crdstorage.Storage
	release func()
	users   int
	// lastUsed is when the last user left.
	lastUsed time.Time
	// compiled are the definitions that serve it. One is removed when it is stale, or the storage is closed.
	compiled map[definitionKey]*crdregistry.CompiledCRD
}

// definitionKey identifies what serves a storage.
type definitionKey struct {
	// schema is what consumers have bound.
	schema types.UID
	// publisher converts originals to the published version; nil if they are stored in it, as replicas are.
	publisher *crdregistry.CompiledCRD
	version   string
}

// isStale reports whether a compiled definition is not used any more.
func (s *Store) isStale(key definitionKey, compiled *crdregistry.CompiledCRD) bool {
	return !s.registry.IsCurrent(key.schema, compiled) || key.publisher != nil && key.publisher.IsClosed()
}

// NewStore returns a store over a pool: for replicas its own, whose keys start with Prefix.
func NewStore(pool *crdstorage.Pool, registry definitions) *Store {
	return &Store{pool: pool, registry: registry, storages: map[storageKey]*openStorage{}}
}

// Run closes idle storages until the context ends.
func (s *Store) Run(ctx context.Context) {
	wait.UntilWithContext(ctx, func(context.Context) { s.closeIdle(time.Now()) }, closeInterval)
}

// Close closes all storages at the end of the process. Requests may be in flight.
func (s *Store) Close() {
	s.mu.Lock()
	storages := s.storages
	s.storages, s.closed = map[storageKey]*openStorage{}, true
	s.mu.Unlock()
	for _, h := range storages {
		h.close()
	}
}

// close closes a storage that is not reachable any more, or whose store is closed. Its objects stay in etcd.
func (o *openStorage) close() {
	for _, compiled := range o.compiled {
		compiled.Close()
	}
	o.release()
}

// closeIdle closes storages that have not been used for idleTimeout, and compiled definitions that are outdated.
func (s *Store) closeIdle(now time.Time) {
	var idle []*openStorage
	var stale []*crdregistry.CompiledCRD
	s.mu.Lock()
	for key, h := range s.storages {
		for key, compiled := range h.compiled {
			if s.isStale(key, compiled) {
				delete(h.compiled, key)
				stale = append(stale, compiled)
			}
		}
		if h.users == 0 && now.Sub(h.lastUsed) >= idleTimeout {
			delete(s.storages, key)
			idle = append(idle, h)
		}
	}
	s.mu.Unlock()
	for _, compiled := range stale {
		compiled.Close()
	}
	for _, h := range idle {
		h.close()
	}
}

// acquire returns an open storage. Call done when it is not used any more.
func (s *Store) acquire(key storageKey) (h *openStorage, done func(), err error) {
	s.mu.Lock()
	h, closed := s.storages[key], s.closed
	if h != nil {
		h.users++
	}
	s.mu.Unlock()
	if h == nil {
		if closed {
			return nil, nil, errClosed()
		}
		// Outside of the lock: this may wait for etcd.
		storage, release, err := s.pool.Acquire(key.resource, key.identity)
		if err != nil {
			return nil, nil, err
		}
		if h = s.addStorage(key, storage, release); h == nil {
			release()
			return nil, nil, errClosed()
		}
	}
	return h, sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		h.users--
		h.lastUsed = time.Now()
	}), nil
}

// addStorage registers an open storage with one more user, unless another request has registered one. It returns nil if
// the store was closed meanwhile, as the storage would never be closed.
func (s *Store) addStorage(key storageKey, storage *crdstorage.Storage, release func()) *openStorage {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	h := s.storages[key]
	if h == nil {
		h = &openStorage{storage: storage, release: release, compiled: map[definitionKey]*crdregistry.CompiledCRD{}}
		s.storages[key] = h
	} else {
		release() // not the last: the other one has acquired it, too
	}
	h.users++
	return h
}

func errClosed() error { return apierrors.NewServiceUnavailable("the server is shutting down") }

// getCompiled returns the compiled definition that serves a storage.
func (s *Store) getCompiled(ctx context.Context, h *openStorage, storage storageKey, key definitionKey) (*crdregistry.CompiledCRD, error) {
	s.mu.Lock()
	cached := h.compiled[key]
	s.mu.Unlock()
	if cached != nil && !s.isStale(key, cached) {
		return cached, nil
	}
	compiled, err := s.compile(ctx, h, storage, key)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed { // it would never be closed
		return nil, errClosed()
	}
	if current := h.compiled[key]; current != nil && current != cached { // another request has added one
		return current, nil
	}
	if cached != nil {
		cached.Close()
	}
	h.compiled[key] = compiled
	return compiled, nil
}

// Serve serves a get, list or watch of the objects of a source with a schema (the name of a definition in
// system:bound-crds). The logical cluster of the request is that of the source; crdstorage.WithProjection determines
// how objects are presented. If it returns an error, nothing was written; it is a ServiceUnavailable while the replicas
// are not complete.
func (s *Store) Serve(w http.ResponseWriter, req *http.Request, source Source, uid types.UID) error {
	h, done, err := s.acquire(source.storageKey())
	if err != nil {
		return err
	}
	defer done()
	if err := h.waitForComplete(req.Context(), source); err != nil {
		return err
	}
	compiled, err := s.getCompiled(req.Context(), h, source.storageKey(), definitionKey{schema: uid})
	if err != nil {
		return err
	}
	return compiled.ServeReads(w, req)
}

// Labels returns the labels of one object of a source. Its errors are those of Serve, and NotFound.
func (s *Store) Labels(ctx context.Context, source Source, name string) (labels.Set, error) {
	h, done, err := s.acquire(source.storageKey())
	if err != nil {
		return nil, err
	}
	defer done()
	if err := h.waitForComplete(ctx, source); err != nil {
		return nil, err
	}
	object, err := h.get(ctx, source.Cluster, name, "")
	if err != nil {
		return nil, err
	}
	return object.GetLabels(), nil
}

// get reads an object, at the resource version "0" from the watch cache.
func (o *openStorage) get(ctx context.Context, cluster logicalcluster.Name, name, version string) (*crdstorage.Object, error) {
	ctx = request.WithNamespace(logicalcluster.With(crdstorage.WithoutProjection(ctx), cluster), "")
	object, err := o.storage.Store().Get(ctx, name, &metav1.GetOptions{ResourceVersion: version})
	if err != nil {
		return nil, err
	}
	found, ok := object.(*crdstorage.Object)
	if !ok {
		return nil, fmt.Errorf("reading a replica: got %T", object)
	}
	return found, nil
}

// waitForComplete returns nil when the replicas of a source are complete. It waits up to completeTimeout.
func (o *openStorage) waitForComplete(ctx context.Context, source Source) error {
	var reason error
	err := wait.PollUntilContextTimeout(ctx, completePoll, completeTimeout, true, func(ctx context.Context) (bool, error) {
		marker, err := o.get(ctx, completeMarkers, source.Cluster.String(), "0")
		switch {
		case err == nil && marker.GetAnnotations()[client.ShardAnnotation] == source.Shard:
			return true, nil
		case err == nil:
			reason = fmt.Errorf("they are replicas of shard %q", marker.GetAnnotations()[client.ShardAnnotation])
		default:
			reason = err
		}
		return false, nil
	})
	if err == nil {
		return nil
	}
	status := apierrors.NewServiceUnavailable(fmt.Sprintf("the %s of shard %q are not replicated yet", source.Resource.GroupResource(), source.Shard))
	status.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	klog.FromContext(ctx).V(2).Info("Failed to serve a request for replicas that are not complete", "resource", source.Resource, "cluster", source.Cluster, "shard", source.Shard, "err", reason)
	return status
}
