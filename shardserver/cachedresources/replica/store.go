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
	// segment takes the place of the API group in the keys of replicas. No API group can have this name.
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
func Prefix(ofShard string) string { return path.Join("/", ofShard, segment) }

// Store serves replicas. It opens storages on demand, and closes them when they are idle.
type Store struct {
	pool    *crdstorage.Pool
	catalog *crdregistry.Registry

	mu     sync.Mutex
	open   map[storageKey]*openStorage
	closed bool
}

// openStorage is a storage with its users.
type openStorage struct {
	storage *crdstorage.Storage
	release func()
	users   int
	// left is when the last user left.
	left time.Time
	// contents serve it, by the schemas that consumers have bound.
	contents map[types.UID]*crdregistry.CompiledCRD
}

// NewStore returns a store over its own pool, whose keys start with Prefix.
func NewStore(pool *crdstorage.Pool, catalog *crdregistry.Registry) *Store {
	return &Store{pool: pool, catalog: catalog, open: map[storageKey]*openStorage{}}
}

// Run closes idle storages until the context ends.
func (s *Store) Run(ctx context.Context) {
	wait.UntilWithContext(ctx, func(context.Context) { s.closeIdle(time.Now()) }, closeInterval)
}

// Close closes all storages at the end of the process. Requests may be in flight.
func (s *Store) Close() {
	s.mu.Lock()
	open := s.open
	s.open, s.closed = map[storageKey]*openStorage{}, true
	s.mu.Unlock()
	for _, h := range open {
		h.close()
	}
}

// close closes a storage that nobody can reach any more, or whose store is closed: its contents stay what they are.
func (h *openStorage) close() {
	for _, content := range h.contents {
		content.Close()
	}
	h.release()
}

// closeIdle closes storages that nobody has used for a while, and contents whose definition is not what it was.
func (s *Store) closeIdle(now time.Time) {
	var idle []*openStorage
	var old []*crdregistry.CompiledCRD
	s.mu.Lock()
	for at, h := range s.open {
		for uid, content := range h.contents {
			if !s.catalog.IsCurrent(uid, content) {
				delete(h.contents, uid)
				old = append(old, content)
			}
		}
		if h.users == 0 && now.Sub(h.left) >= idleTimeout {
			delete(s.open, at)
			idle = append(idle, h)
		}
	}
	s.mu.Unlock()
	for _, content := range old {
		content.Close()
	}
	for _, h := range idle {
		h.close()
	}
}

// acquire returns an open storage. Call done when it is not used any more.
func (s *Store) acquire(at storageKey) (h *openStorage, done func(), err error) {
	s.mu.Lock()
	h, closed := s.open[at], s.closed
	if h != nil {
		h.users++
	}
	s.mu.Unlock()
	if h == nil {
		if closed {
			return nil, nil, errClosed()
		}
		// Outside of the lock: this may wait for etcd.
		storage, release, err := s.pool.Acquire(at.resource, at.identity)
		if err != nil {
			return nil, nil, err
		}
		if h = s.keep(at, storage, release); h == nil {
			release()
			return nil, nil, errClosed()
		}
	}
	return h, sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		h.users--
		h.left = time.Now()
	}), nil
}

// keep makes an open storage known, unless somebody was faster, with one user more. It returns nil when everything was
// closed meanwhile: nobody would close this one.
func (s *Store) keep(at storageKey, storage *crdstorage.Storage, release func()) *openStorage {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	h := s.open[at]
	if h == nil {
		h = &openStorage{storage: storage, release: release, contents: map[types.UID]*crdregistry.CompiledCRD{}}
		s.open[at] = h
	} else {
		release() // not the last: the other one has acquired it, too
	}
	h.users++
	return h
}

func errClosed() error { return apierrors.NewServiceUnavailable("the server is shutting down") }

// content returns what serves a storage as a schema describes it.
func (s *Store) content(ctx context.Context, h *openStorage, at storageKey, schema types.UID) (*crdregistry.CompiledCRD, error) {
	s.mu.Lock()
	known := h.contents[schema]
	s.mu.Unlock()
	if known != nil && s.catalog.IsCurrent(schema, known) {
		return known, nil
	}
	made, err := s.catalog.CompileFor(ctx, at.resource, schema, h.storage)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed { // nobody would close it
		return nil, errClosed()
	}
	if now := h.contents[schema]; now != nil && now != known { // somebody was faster
		return now, nil
	}
	if known != nil {
		known.Close()
	}
	h.contents[schema] = made
	return made, nil
}

// Serve answers a get, list or watch of what a source has, as a schema (the name of a definition in system:bound-crds)
// describes it. The logical cluster of the request is that of the source; how objects are shown, crdstorage.WithProjection says. On
// an error nothing was written; it is a ServiceUnavailable while the copies are not complete.
func (s *Store) Serve(w http.ResponseWriter, req *http.Request, source Source, schema types.UID) error {
	h, done, err := s.acquire(source.storageKey())
	if err != nil {
		return err
	}
	defer done()
	if err := h.known(req.Context(), source); err != nil {
		return err
	}
	content, err := s.content(req.Context(), h, source.storageKey(), schema)
	if err != nil {
		return err
	}
	return content.ServeReads(w, req)
}

// Labels returns the labels of one object of a source. It fails as Serve does, or with NotFound.
func (s *Store) Labels(ctx context.Context, source Source, name string) (labels.Set, error) {
	h, done, err := s.acquire(source.storageKey())
	if err != nil {
		return nil, err
	}
	defer done()
	if err := h.known(ctx, source); err != nil {
		return nil, err
	}
	object, err := h.get(ctx, source.Cluster, name, "")
	if err != nil {
		return nil, err
	}
	return object.GetLabels(), nil
}

// get reads an object, at the resource version "0" from memory.
func (h *openStorage) get(ctx context.Context, cluster logicalcluster.Name, name, version string) (*crdstorage.Object, error) {
	ctx = request.WithNamespace(logicalcluster.With(crdstorage.WithoutProjection(ctx), cluster), "")
	object, err := h.storage.Store().Get(ctx, name, &metav1.GetOptions{ResourceVersion: version})
	if err != nil {
		return nil, err
	}
	found, ok := object.(*crdstorage.Object)
	if !ok {
		return nil, fmt.Errorf("a copy is a %T", object)
	}
	return found, nil
}

// known returns nil when the copies of a source are complete. A while is waited for that.
func (h *openStorage) known(ctx context.Context, source Source) error {
	var missing error
	err := wait.PollUntilContextTimeout(ctx, completePoll, completeTimeout, true, func(ctx context.Context) (bool, error) {
		mark, err := h.get(ctx, completeMarkers, source.Cluster.String(), "0")
		switch {
		case err == nil && mark.GetAnnotations()[client.ShardAnnotation] == source.Shard:
			return true, nil
		case err == nil:
			missing = fmt.Errorf("they were copied from shard %q", mark.GetAnnotations()[client.ShardAnnotation])
		default:
			missing = err
		}
		return false, nil
	})
	if err == nil {
		return nil
	}
	status := apierrors.NewServiceUnavailable(fmt.Sprintf("the %s that shard %q offers are not known here yet", source.Resource.GroupResource(), source.Shard))
	status.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	klog.FromContext(ctx).V(2).Info("Copies are asked for that are not complete", "resource", source.Resource, "cluster", source.Cluster, "shard", source.Shard, "reason", missing)
	return status
}
