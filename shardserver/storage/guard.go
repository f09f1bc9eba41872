package storage

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// Guard refuses writes to logical clusters, hides logical clusters, and knows the epochs of their resource versions.
type Guard interface {
	// Enter is called before a write is sent to etcd. The caller calls leave when it has ended. If leave returns an error, the caller does
	// not acknowledge the write, even if it has succeeded.
	Enter(ctx context.Context, cluster logicalcluster.Name) (leave func() error, err error)
	// Restricts reports whether hidden logical clusters are hidden from the caller. It returns when they are known.
	Restricts(ctx context.Context) (bool, error)
	// IsExempt reports whether the objects of a resource are never hidden.
	IsExempt(resource schema.GroupResource) bool
	// HidesAny reports whether any logical cluster is hidden, Hides whether one is.
	HidesAny() bool
	Hides(cluster logicalcluster.Name) bool
	// Lacks reports whether the content of a logical cluster is not complete yet, and the caller may not see it: reads find nothing.
	Lacks(ctx context.Context, cluster logicalcluster.Name) bool
	// Subscribe returns a channel of the logical clusters that are hidden or shown from then on. The channel is closed if its
	// reader is too slow.
	Subscribe() (changes <-chan HiddenChange, unsubscribe func())
	// ChangedAt returns a revision that is not older than the last change of what is hidden: a list of an older one may lack what is
	// shown, or have what is hidden.
	ChangedAt() int64
	// HasEpochs reports whether any logical cluster has an epoch, Epoch the one of the content that this shard has of a logical
	// cluster. A logical cluster is not shown before its epoch is known.
	HasEpochs() bool
	Epoch(cluster logicalcluster.Name) uint64
	// EpochIn returns the epoch that an exempt object has in its annotations. Exempt objects are shown before it is known otherwise.
	EpochIn(annotations map[string]string) uint64
}

// HiddenChange is the change of whether a logical cluster is hidden.
type HiddenChange struct {
	Cluster logicalcluster.Name
	// Gone is true if the logical cluster is not hidden any more because it does not exist.
	Gone bool
}

// WithGuard returns a decorator with a guard of its storage. A nil guard adds nothing.
func WithGuard(decorator generic.StorageDecorator, guard Guard) generic.StorageDecorator {
	if guard == nil {
		return decorator
	}
	return func(
		config *storagebackend.ConfigForResource,
		resourcePrefix string,
		keyFunc func(obj runtime.Object) (string, error),
		newFunc, newListFunc func() runtime.Object,
		getAttrs storage.AttrFunc,
		trigger storage.IndexerFuncs,
		indexers *cache.Indexers,
	) (storage.Interface, factory.DestroyFunc, error) {
		base, destroy, err := decorator(config, resourcePrefix, keyFunc, newFunc, newListFunc, getAttrs, trigger, indexers)
		if err != nil {
			return nil, nil, err
		}
		guarded := &guardedStorage{Interface: base, guard: guard, exempt: guard.IsExempt(config.GroupResource), prefix: "/" + strings.Trim(resourcePrefix, "/"), newList: newListFunc}
		return &versionedStorage{guarded, guard, guarded.exempt}, destroy, nil
	}
}

// guardedStorage asks a guard before each write, filters ranges over all logical clusters, and finds nothing in those whose content
// is not complete.
type guardedStorage struct {
	storage.Interface
	guard   Guard
	exempt  bool
	prefix  string
	newList func() runtime.Object
}

// Create implements storage.Interface.
func (s *guardedStorage) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	write := s.newWrite(ctx)
	defer write.abandon()
	if err := write.begin(); err != nil {
		return err
	}
	return write.end(s.Interface.Create(ctx, key, obj, out, ttl))
}

// Delete implements storage.Interface. The write begins after the validation, which is admission and may take long.
func (s *guardedStorage) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions) error {
	write := s.newWrite(ctx)
	defer write.abandon()
	entering := func(ctx context.Context, obj runtime.Object) error {
		write.abandon() // of an attempt before
		if validate != nil {
			if err := validate(ctx, obj); err != nil {
				return err
			}
		}
		return write.begin()
	}
	return write.end(s.Interface.Delete(ctx, key, out, preconditions, entering, cached, opts))
}

// GuaranteedUpdate implements storage.Interface. The write begins after the update is computed, which may include
// admission.
func (s *guardedStorage) GuaranteedUpdate(ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, cached runtime.Object) error {
	write := s.newWrite(ctx)
	defer write.abandon()
	entering := func(input runtime.Object, meta storage.ResponseMeta) (runtime.Object, *uint64, error) {
		write.abandon() // of an attempt before
		output, ttl, err := tryUpdate(input, meta)
		if err != nil {
			return nil, nil, err
		}
		return output, ttl, write.begin()
	}
	return write.end(s.Interface.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, entering, cached))
}

// guardedWrite is one write, which may take several attempts.
type guardedWrite struct {
	ctx   context.Context
	guard Guard
	leave func() error
}

func (s *guardedStorage) newWrite(ctx context.Context) *guardedWrite {
	return &guardedWrite{ctx: ctx, guard: s.guard}
}

func (w *guardedWrite) begin() (err error) {
	cluster, ok := logicalcluster.From(w.ctx)
	if !ok || cluster.IsWildcard() {
		return nil // the storage below refuses it
	}
	w.leave, err = w.guard.Enter(w.ctx, cluster)
	return err
}

// end ends the write with a result, and returns what the caller gets.
func (w *guardedWrite) end(result error) error {
	if w.leave == nil {
		return result
	}
	err := w.leave()
	w.leave = nil
	if result != nil {
		return result
	}
	return err
}

// abandon ends an attempt that has not succeeded.
func (w *guardedWrite) abandon() {
	_ = w.end(nil)
}

// isRestricted reports whether the request is over all logical clusters and may not see all.
func (s *guardedStorage) isRestricted(ctx context.Context) (bool, error) {
	if cluster, ok := logicalcluster.From(ctx); s.exempt || !ok || !cluster.IsWildcard() {
		return false, nil
	}
	return s.guard.Restricts(ctx)
}

// lacks reports whether the request is in a logical cluster whose content is not complete.
func (s *guardedStorage) lacks(ctx context.Context) bool {
	if s.exempt || !s.guard.HidesAny() {
		return false
	}
	cluster, ok := logicalcluster.From(ctx)
	return ok && !cluster.IsWildcard() && s.guard.Lacks(ctx, cluster)
}

// Get implements storage.Interface.
func (s *guardedStorage) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	if !s.lacks(ctx) {
		return s.Interface.Get(ctx, key, opts, out)
	}
	if opts.IgnoreNotFound {
		return runtime.SetZeroValue(out)
	}
	return storage.NewKeyNotFoundError(key, 0)
}

// GetList implements storage.Interface.
func (s *guardedStorage) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	if s.lacks(ctx) {
		if err := s.Interface.GetList(ctx, key, opts, list); err != nil {
			return err
		}
		accessor, err := meta.ListAccessor(list)
		if err != nil {
			return err
		}
		accessor.SetContinue("")
		accessor.SetRemainingItemCount(nil)
		return meta.SetList(list, nil)
	}
	restricted, err := s.isRestricted(ctx)
	if err != nil {
		return err
	}
	if err := s.Interface.GetList(ctx, key, opts, list); err != nil || !restricted || !s.guard.HidesAny() {
		return err
	}
	return removeItems(list, s.guard.Hides)
}

// removeItems removes the objects of logical clusters from a list.
func removeItems(list runtime.Object, of func(logicalcluster.Name) bool) error {
	pointer, err := meta.GetItemsPtr(list)
	if err != nil {
		return err
	}
	items := reflect.ValueOf(pointer).Elem()
	kept := reflect.MakeSlice(items.Type(), 0, items.Len())
	for i := range items.Len() {
		item := items.Index(i)
		accessor, err := meta.Accessor(itemOf(item))
		if err != nil {
			return fmt.Errorf("filtering a list: %w", err)
		}
		if !of(logicalcluster.Of(accessor)) {
			kept = reflect.Append(kept, item)
		}
	}
	items.Set(kept)
	return nil
}

// newChangedError returns the error after which a client lists the objects of all logical clusters again.
func newChangedError() *apierrors.StatusError {
	return apierrors.NewResourceExpired("logical clusters have moved between shards: list again")
}

// Watch implements storage.Interface. A watch over all logical clusters expires when the objects of one of them are hidden or
// shown, and so does one that continues from before. The caller lists again; it gets no event for objects that have not changed. One of a
// logical cluster whose content is not complete expires at once.
func (s *guardedStorage) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	if s.lacks(ctx) {
		return newFailedWatch(newChangedError()), nil
	}
	if cluster, ok := logicalcluster.From(ctx); !ok || !cluster.IsWildcard() {
		return s.Interface.Watch(ctx, key, opts)
	}
	restricted, err := s.isRestricted(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &guardedWatch{
		stream:  &stream{events: make(chan watch.Event), cancel: cancel},
		storage: s, restricted: restricted, unsubscribe: func() {}, dropped: map[logicalcluster.Name]struct{}{},
	}
	if restricted {
		w.changes, w.unsubscribe = s.guard.Subscribe()
		if revision, err := ParseRevision(opts.ResourceVersion); err == nil && revision > 0 && int64(revision) < s.guard.ChangedAt() && !s.exempt {
			w.unsubscribe()
			cancel()
			return newFailedWatch(newChangedError()), nil
		}
	}
	if w.inner, err = s.Interface.Watch(ctx, key, opts); err != nil {
		w.unsubscribe()
		cancel()
		return nil, err
	}
	go w.run(ctx)
	return w, nil
}

// has reports whether the storage has objects of a logical cluster, as far as its watch cache knows.
func (s *guardedStorage) has(ctx context.Context, cluster logicalcluster.Name) bool {
	list := s.newList()
	options := storage.ListOptions{ResourceVersion: "0", Recursive: true, Predicate: storage.Everything}
	options.Predicate.Limit = 1
	if err := s.Interface.GetList(logicalcluster.With(ctx, cluster), s.prefix, options, list); err != nil {
		return true // unknown: the watch ends needlessly
	}
	return meta.LenList(list) > 0
}

// guardedWatch is a watch over all logical clusters without the events of hidden ones, with the versions of their epochs.
type guardedWatch struct {
	*stream
	storage *guardedStorage
	inner   watch.Interface
	// restricted is whether hidden logical clusters are hidden from the caller.
	restricted bool
	// changes is nil if the caller sees all.
	changes     <-chan HiddenChange
	unsubscribe func()
	// dropped are the hidden logical clusters of which events were left out. Showing or removing one deletes it here.
	dropped map[logicalcluster.Name]struct{}
}

func (w *guardedWatch) run(ctx context.Context) {
	defer close(w.events)
	defer w.cancel()
	defer w.unsubscribe()
	defer w.inner.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case change, ok := <-w.changes:
			if !ok || w.isAffected(ctx, change) {
				// Without an error, clients would watch again from their last version, and miss what is older.
				w.send(ctx, watch.Event{Type: watch.Error, Object: &newChangedError().ErrStatus})
				return
			}
		case event, ok := <-w.inner.ResultChan():
			if !ok {
				return
			}
			if w.isHidden(event) {
				continue
			}
			if !w.send(ctx, w.version(event)) {
				return
			}
		}
	}
}

// isAffected reports whether the watch may have delivered or left out objects of the logical cluster.
func (w *guardedWatch) isAffected(ctx context.Context, change HiddenChange) bool {
	_, dropped := w.dropped[change.Cluster]
	if change.Gone {
		delete(w.dropped, change.Cluster)
		return false
	}
	return dropped || w.storage.has(ctx, change.Cluster)
}

func (w *guardedWatch) isHidden(event watch.Event) bool {
	if !w.restricted || event.Type == watch.Bookmark || event.Type == watch.Error || !w.storage.guard.HidesAny() {
		return false
	}
	accessor, err := meta.Accessor(event.Object)
	if err != nil {
		return false
	}
	cluster := logicalcluster.Of(accessor)
	if !w.storage.guard.Hides(cluster) {
		return false
	}
	w.dropped[cluster] = struct{}{}
	return true
}

// version returns an event with the version that a request to the logical cluster of the object returns. That of a bookmark is
// the revision.
func (w *guardedWatch) version(event watch.Event) watch.Event {
	if event.Type == watch.Bookmark || event.Type == watch.Error || !hasEpochs(w.storage.guard, w.storage.exempt) {
		return event
	}
	accessor, err := meta.Accessor(event.Object)
	if err != nil {
		return event
	}
	return epochOf(w.storage.guard, w.storage.exempt, accessor).versionEvent(event)
}
