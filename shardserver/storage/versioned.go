package storage

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// tooLargeRetrySeconds is after how many seconds a client repeats a request with a version of which this replica does not know.
const tooLargeRetrySeconds = 1

// versionedStorage translates resource versions between requests and the revisions of etcd, for logical clusters that have an
// epoch. In a range over all logical clusters, objects have the versions that requests to their own logical cluster return; the
// version of the range itself is the bare revision, and the epoch of a given version is ignored, because clients continue from
// the version of the last object that they have received.
type versionedStorage struct {
	storage.Interface
	guard  Guard
	exempt bool
}

type versionsKey struct{}

// WithVersionsOf returns a context for reads on behalf of another logical cluster, which get the resource versions of that one:
// its clients see when it has moved.
func WithVersionsOf(ctx context.Context, cluster logicalcluster.Name) context.Context {
	return context.WithValue(ctx, versionsKey{}, cluster)
}

// epochOf returns the epoch of the context's logical cluster.
func (s *versionedStorage) epochOf(ctx context.Context) epoch {
	if !s.guard.HasEpochs() {
		return 0
	}
	cluster, ok := ctx.Value(versionsKey{}).(logicalcluster.Name)
	if !ok {
		if cluster, ok = logicalcluster.From(ctx); !ok || cluster.IsWildcard() {
			return 0
		}
	}
	return epoch(s.guard.Epoch(cluster))
}

// Create implements storage.Interface.
func (s *versionedStorage) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	e := s.epochOf(ctx)
	if err := s.Interface.Create(ctx, key, obj, out, ttl); err != nil || e == 0 || out == nil {
		return err
	}
	return e.setOn(out)
}

// Get implements storage.Interface. A version from before a move is older than everything here, so that the read is a consistent
// one.
func (s *versionedStorage) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	e := s.epochOf(ctx)
	switch from, bare := e.parse(opts.ResourceVersion); from {
	case newerEpoch:
		return e.newTooLargeError(opts.ResourceVersion)
	case olderEpoch:
		opts.ResourceVersion = ""
	default:
		opts.ResourceVersion = bare
	}
	if err := s.Interface.Get(ctx, key, opts, out); err != nil || e == 0 {
		return err
	}
	return e.setOn(out)
}

// GetCurrentResourceVersion implements storage.Interface.
func (s *versionedStorage) GetCurrentResourceVersion(ctx context.Context) (uint64, error) {
	current, err := s.Interface.GetCurrentResourceVersion(ctx)
	return s.epochOf(ctx).addTo(current), err
}

// Delete implements storage.Interface. A required version is compared here, because it may be one from before a move.
func (s *versionedStorage) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions) error {
	e := s.epochOf(ctx)
	if e == 0 {
		return s.Interface.Delete(ctx, key, out, preconditions, validate, cached, opts)
	}
	below, version := withoutVersion(preconditions)
	validateVersioned := func(ctx context.Context, obj runtime.Object) error {
		if obj != nil { // nil: unreadable, and deleted nevertheless
			if err := e.setOn(obj); err != nil {
				return err
			}
			if err := version.Check(key, obj); err != nil {
				return err
			}
		}
		if validate == nil {
			return nil
		}
		return validate(ctx, obj)
	}
	if err := s.Interface.Delete(ctx, key, out, below, validateVersioned, cached, opts); err != nil {
		return err
	}
	return e.setOn(out)
}

// GuaranteedUpdate implements storage.Interface. For the required version see Delete.
func (s *versionedStorage) GuaranteedUpdate(ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, cached runtime.Object) error {
	e := s.epochOf(ctx)
	if e == 0 {
		return s.Interface.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, tryUpdate, cached)
	}
	below, version := withoutVersion(preconditions)
	updateVersioned := func(input runtime.Object, response storage.ResponseMeta) (runtime.Object, *uint64, error) {
		if err := e.setOn(input); err != nil {
			return nil, nil, err
		}
		if err := version.Check(key, input); err != nil {
			return nil, nil, err
		}
		response.ResourceVersion = e.addTo(response.ResourceVersion)
		return tryUpdate(input, response)
	}
	if err := s.Interface.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, below, updateVersioned, cached); err != nil {
		return err
	}
	return e.setOn(destination)
}

// withoutVersion splits preconditions into those of the storage below and the required version.
func withoutVersion(preconditions *storage.Preconditions) (below, version *storage.Preconditions) {
	if preconditions == nil || preconditions.ResourceVersion == nil {
		return preconditions, nil
	}
	return &storage.Preconditions{UID: preconditions.UID}, &storage.Preconditions{ResourceVersion: preconditions.ResourceVersion}
}

// GetList implements storage.Interface.
func (s *versionedStorage) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	if cluster, ok := logicalcluster.From(ctx); !ok || cluster.IsWildcard() {
		opts.ResourceVersion = bareVersion(opts.ResourceVersion)
		if err := s.Interface.GetList(ctx, key, opts, list); err != nil || !hasEpochs(s.guard, s.exempt) {
			return err
		}
		return eachItem(list, func(obj metav1.Object) { epochOf(s.guard, s.exempt, obj).setOnMeta(obj) })
	}
	e := s.epochOf(ctx)
	opts, err := e.parseOptions(opts)
	if err != nil {
		return err
	}
	if err := s.Interface.GetList(ctx, key, opts, list); err != nil || e == 0 {
		return e.setOnError(err)
	}
	return e.setOnList(list)
}

// epochOf returns the epoch of the logical cluster of an object. A LogicalCluster, which is exempt, says it itself: it is shown as soon as
// the watch cache has it, which may be before the guard has seen it.
func epochOf(guard Guard, exempt bool, obj metav1.Object) epoch {
	if exempt {
		return epoch(guard.EpochIn(obj.GetAnnotations()))
	}
	return epoch(guard.Epoch(logicalcluster.Of(obj)))
}

// hasEpochs reports whether any object of a range may have an epoch.
func hasEpochs(guard Guard, exempt bool) bool { return exempt || guard.HasEpochs() }

// parseOptions returns the options of a list or watch that the storage below understands. Versions from before a move have
// expired.
func (e epoch) parseOptions(opts storage.ListOptions) (storage.ListOptions, error) {
	from, version := e.parse(opts.ResourceVersion)
	tokenFrom, token := e.parseToken(opts.Predicate.Continue)
	switch {
	case from == olderEpoch:
		return opts, apierrors.NewResourceExpired(fmt.Sprintf("resource version %s is from before a move of the logical cluster to another shard: list again", opts.ResourceVersion))
	case tokenFrom == olderEpoch:
		return opts, apierrors.NewResourceExpired("the continue token is from before a move of the logical cluster to another shard: list again")
	case from == newerEpoch:
		return opts, e.newTooLargeError(opts.ResourceVersion)
	case tokenFrom == newerEpoch:
		return opts, storage.NewTooLargeResourceVersionError((uint64(e)+1)<<revisionBits, uint64(e)<<revisionBits, tooLargeRetrySeconds)
	}
	opts.ResourceVersion, opts.Predicate.Continue = version, token
	return opts, nil
}

// newTooLargeError returns the error for a version of an epoch that this replica does not know of yet.
func (e epoch) newTooLargeError(resourceVersion string) error {
	of, _ := splitVersion(resourceVersion)
	return storage.NewTooLargeResourceVersionError(uint64(of)<<revisionBits, uint64(e)<<revisionBits, tooLargeRetrySeconds)
}

// setOn adds the epoch to the version of an object, which the caller owns. The metadata of a copy of a struct from the watch
// cache is its own.
func (e epoch) setOn(obj runtime.Object) error {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	e.setOnMeta(accessor)
	return nil
}

func (e epoch) setOnMeta(obj metav1.Object) {
	if e != 0 {
		obj.SetResourceVersion(e.add(obj.GetResourceVersion()))
	}
}

// setOnList adds the epoch to the versions of a list and its objects, and to its continue token.
func (e epoch) setOnList(list runtime.Object) error {
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return err
	}
	accessor.SetResourceVersion(e.add(accessor.GetResourceVersion()))
	accessor.SetContinue(e.addToToken(accessor.GetContinue()))
	return eachItem(list, e.setOnMeta)
}

// setOnError adds the epoch to the token with which a client can continue a list whose revision has been compacted.
func (e epoch) setOnError(err error) error {
	if e == 0 || err == nil {
		return err
	}
	var status *apierrors.StatusError
	if !errors.As(err, &status) || status.ErrStatus.Continue == "" {
		return err
	}
	versioned := *status
	versioned.ErrStatus.Continue = e.addToToken(status.ErrStatus.Continue)
	return &versioned
}

// eachItem visits the objects of a list that a storage has filled, in place.
func eachItem(list runtime.Object, visit func(metav1.Object)) error {
	pointer, err := meta.GetItemsPtr(list)
	if err != nil {
		return err
	}
	items := reflect.ValueOf(pointer).Elem()
	for i := range items.Len() {
		accessor, err := meta.Accessor(itemOf(items.Index(i)))
		if err != nil {
			return fmt.Errorf("reading a list: %w", err)
		}
		visit(accessor)
	}
	return nil
}

// itemOf returns an item of a list as a pointer.
func itemOf(item reflect.Value) any {
	if item.Kind() == reflect.Struct {
		return item.Addr().Interface()
	}
	return item.Interface()
}

// Watch implements storage.Interface. Like the storage below it reports an expired version as an event. Watches over all logical
// clusters are translated by guardedWatch.
func (s *versionedStorage) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	if cluster, ok := logicalcluster.From(ctx); !ok || cluster.IsWildcard() {
		opts.ResourceVersion = bareVersion(opts.ResourceVersion)
		return s.Interface.Watch(ctx, key, opts)
	}
	e := s.epochOf(ctx)
	opts, err := e.parseOptions(opts)
	if err != nil {
		return newFailedWatch(err), nil
	}
	inner, err := s.Interface.Watch(ctx, key, opts)
	if err != nil || e == 0 {
		return inner, err
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &versionedWatch{
		stream: &stream{events: make(chan watch.Event), cancel: cancel},
		inner:  inner, epoch: e, isCurrent: func() bool { return s.epochOf(ctx) == e },
	}
	go w.run(ctx)
	return w, nil
}
