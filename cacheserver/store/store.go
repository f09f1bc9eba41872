package store

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	storeerr "k8s.io/apiserver/pkg/storage/errors"

	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/cacheserver/scope"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// noIdentitySegment is the key segment of resources without an identity.
const noIdentitySegment = "customresources"

// coreSegment is the key segment of the legacy group.
const coreSegment = "core"

// IsReservedIdentity returns whether an identity is reserved: with it, objects of a built-in resource could be written
// without the checks of their kind.
func IsReservedIdentity(identity string) bool { return identity == noIdentitySegment }

// Fields of selectors that are internal to this package: clusterField selects the objects of one logical cluster of all
// shards, shardField those of a shard, markerField the markers of completeness.
const (
	clusterField = "kcp.io/cluster"
	shardField   = "kcp.io/shard"
	markerField  = "kcp.io/marker"
)

type memberKey struct{}

// AsMember returns a context with which lists and watches contain the markers of completeness, and reads the annotation
// of the reach: only shards and caches need them.
func AsMember(ctx context.Context) context.Context {
	return context.WithValue(ctx, memberKey{}, true)
}

func isMember(ctx context.Context) bool { return ctx.Value(memberKey{}) != nil }

// hideReach removes the annotation of the reach from an object that was decoded for this request.
func hideReach(ctx context.Context, obj runtime.Object) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok || isMember(ctx) {
		return
	}
	if annotations := u.GetAnnotations(); annotations[client.ReachAnnotation] != "" {
		delete(annotations, client.ReachAnnotation)
		u.SetAnnotations(annotations)
	}
}

// Store holds the objects of one resource, of all shards. The context of each call has the scope (package scope) and,
// for namespaced resources, the namespace (stock request.WithNamespace).
type Store struct {
	backend  *Backend
	resource client.Resource
	storage  storage.Interface
	root     string
	// allIdentities is set if the store has the objects of several identities. It can only be read.
	allIdentities bool
}

var (
	_ rest.Getter            = &Store{}
	_ rest.Lister            = &Store{}
	_ rest.Watcher           = &Store{}
	_ rest.GracefulDeleter   = &Store{}
	_ rest.CollectionDeleter = &Store{}
	_ rest.TableConvertor    = &Store{}
)

// NewStore returns the store of a resource. Its name may be "<resource>:<identity>".
func (b *Backend) NewStore(resource client.Resource) (*Store, error) {
	name, identity, ok := strings.Cut(resource.Resource, ":")
	if !ok {
		identity = noIdentitySegment
	}
	return b.newStore(resource, "/"+groupSegment(resource.Group)+"/"+name+"/"+identity)
}

// NewStoreOfAllIdentities returns the store of the objects of a user's cached resource, of every identity.
func (b *Backend) NewStoreOfAllIdentities(resource client.Resource) (*Store, error) {
	s, err := b.newStore(resource, "/"+groupSegment(resource.Group)+"/"+resource.Resource)
	if err != nil {
		return nil, err
	}
	s.allIdentities = true
	return s, nil
}

func (b *Backend) newStore(resource client.Resource, root string) (*Store, error) {
	stored := resource.GroupVersion()
	if builtIn, ok := client.FindResource(resource.GroupResource()); ok {
		stored = builtIn.GroupVersion()
	}
	storage, err := b.newStorage(resource.GroupResource(), resource.GroupVersionKind(), stored, root)
	if err != nil {
		return nil, fmt.Errorf("creating the storage of %s: %w", resource.GroupResource(), err)
	}
	return &Store{backend: b, resource: resource, storage: storage, root: root}, nil
}

// groupSegment returns the key segment of an API group.
func groupSegment(group string) string {
	if group == "" {
		return coreSegment
	}
	return group
}

// New implements rest.Storage.
func (s *Store) New() runtime.Object { return &unstructured.Unstructured{} }

// NewList implements rest.Lister.
func (s *Store) NewList() runtime.Object {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(s.resource.GroupVersion().WithKind(s.resource.Kind + "List"))
	return list
}

// Destroy implements rest.Storage. The backend owns the connection.
func (s *Store) Destroy() {}

// Get implements rest.Getter.
func (s *Store) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	key, err := s.key(ctx, name)
	if err != nil {
		return nil, err
	}
	obj := &unstructured.Unstructured{}
	if err := s.storage.Get(ctx, key, storage.GetOptions{ResourceVersion: options.ResourceVersion}, obj); err != nil {
		return nil, storeerr.InterpretGetError(err, s.resource.GroupResource(), name)
	}
	hideReach(ctx, obj)
	return obj, nil
}

// List implements rest.Lister.
func (s *Store) List(ctx context.Context, options *internalversion.ListOptions) (runtime.Object, error) {
	prefix, predicate, err := s.selectionPredicate(ctx, options)
	if err != nil {
		return nil, err
	}
	predicate.Limit, predicate.Continue = options.Limit, options.Continue
	list := s.NewList().(*unstructured.UnstructuredList)
	opts := storage.ListOptions{ResourceVersion: options.ResourceVersion, ResourceVersionMatch: options.ResourceVersionMatch, Predicate: predicate, Recursive: true}
	if err := s.storage.GetList(ctx, prefix, opts, list); err != nil {
		return nil, storeerr.InterpretListError(err, s.resource.GroupResource())
	}
	for i := range list.Items {
		hideReach(ctx, &list.Items[i])
	}
	return list, nil
}

// Watch implements rest.Watcher. It rejects resource versions ahead of the store: they are of a store that was lost.
func (s *Store) Watch(ctx context.Context, options *internalversion.ListOptions) (watch.Interface, error) {
	prefix, predicate, err := s.selectionPredicate(ctx, options)
	if err != nil {
		return nil, err
	}
	if err := s.checkResourceVersion(ctx, options.ResourceVersion); err != nil {
		return nil, err
	}
	predicate.AllowWatchBookmarks = options.AllowWatchBookmarks
	stream, err := s.storage.Watch(ctx, prefix, storage.ListOptions{
		ResourceVersion: options.ResourceVersion, Predicate: predicate, Recursive: true,
		SendInitialEvents: options.SendInitialEvents, ProgressNotify: options.AllowWatchBookmarks,
	})
	if err != nil || options.AllowWatchBookmarks && isMember(ctx) {
		return stream, err
	}
	return watch.Filter(stream, func(event watch.Event) (watch.Event, bool) {
		hideReach(ctx, event.Object)
		// Backend.Run requests progress notifications for all watches of the process.
		return event, options.AllowWatchBookmarks || event.Type != watch.Bookmark
	}), nil
}

func (s *Store) checkResourceVersion(ctx context.Context, resourceVersion string) error {
	if resourceVersion == "" || resourceVersion == "0" {
		return nil
	}
	requested, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("invalid resource version %q", resourceVersion))
	}
	current, err := s.storage.GetCurrentResourceVersion(ctx)
	if err != nil {
		return fmt.Errorf("reading the current resource version: %w", err)
	}
	if requested > current {
		return apierrors.NewResourceExpired(fmt.Sprintf("resource version %d is ahead of this cache, which is at %d", requested, current))
	}
	return nil
}

// selectionPredicate returns the key prefix of the context's scope, and the predicate of the options.
func (s *Store) selectionPredicate(ctx context.Context, options *internalversion.ListOptions) (string, storage.SelectionPredicate, error) {
	target, ok := scope.FromContext(ctx)
	if !ok {
		return "", storage.SelectionPredicate{}, errNoScope
	}
	predicate := storage.SelectionPredicate{Label: labels.Everything(), Field: fields.Everything(), GetAttrs: getAttrs}
	if options.LabelSelector != nil {
		predicate.Label = options.LabelSelector
	}
	if options.FieldSelector != nil {
		predicate.Field = options.FieldSelector
	}
	if !isMember(ctx) && (s.allIdentities || s.resource.IsCached()) {
		predicate.Field = fields.AndSelectors(predicate.Field, fields.OneTermNotEqualSelector(markerField, "true"))
	}
	namespace := request.NamespaceValue(ctx)
	if s.allIdentities && target.Shard != scope.AllShards { // keys have the identity before the shard
		predicate.Field = fields.AndSelectors(predicate.Field, fields.OneTermEqualSelector(shardField, target.Shard))
		target.Shard = scope.AllShards
	}
	switch {
	case target.Shard == scope.AllShards:
		if !target.Cluster.IsWildcard() {
			predicate.Field = fields.AndSelectors(predicate.Field, fields.OneTermEqualSelector(clusterField, target.Cluster.String()))
		}
		if namespace != "" {
			predicate.Field = fields.AndSelectors(predicate.Field, fields.OneTermEqualSelector("metadata.namespace", namespace))
		}
		return s.root + "/", predicate, nil
	case target.Cluster.IsWildcard():
		if namespace != "" {
			predicate.Field = fields.AndSelectors(predicate.Field, fields.OneTermEqualSelector("metadata.namespace", namespace))
		}
		return s.root + "/" + target.Shard + "/", predicate, nil
	default:
		prefix := s.root + "/" + target.Shard + "/" + target.Cluster.String() + "/"
		if namespace != "" {
			prefix += namespace + "/"
		}
		return prefix, predicate, nil
	}
}

// getAttrs returns the attributes for selectors.
func getAttrs(obj runtime.Object) (labels.Set, fields.Set, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, nil, fmt.Errorf("unexpected type %T in the cache", obj)
	}
	return u.GetLabels(), fields.Set{
		"metadata.name":      u.GetName(),
		"metadata.namespace": u.GetNamespace(),
		clusterField:         u.GetAnnotations()[logicalcluster.AnnotationKey],
		shardField:           u.GetAnnotations()[client.ShardAnnotation],
		markerField:          strconv.FormatBool(u.GetKind() == client.CompleteKind && u.GetNamespace() == client.CompleteNamespace),
	}, nil
}

var errNoScope = errors.New("the request to the cache has no scope")

// key returns the key of one object of the context's scope.
func (s *Store) key(ctx context.Context, name string) (string, error) {
	target, ok := scope.FromContext(ctx)
	if !ok {
		return "", errNoScope
	}
	if target.IsWildcard() {
		return "", &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusMethodNotAllowed, Reason: metav1.StatusReasonMethodNotAllowed,
			Message: "one object is addressed by one shard and one logical cluster; only list and watch take \"*\"",
		}}
	}
	segments := []string{s.root, target.Shard, target.Cluster.String()}
	namespace := request.NamespaceValue(ctx)
	if s.resource.Namespaced && namespace == "" {
		return "", apierrors.NewBadRequest("a namespace is required")
	}
	if namespace != "" {
		segments = append(segments, namespace)
	}
	if err := checkSegments(s.resource.GroupResource(), append(segments[3:], name)); err != nil {
		return "", err
	}
	return strings.Join(append(segments, name), "/"), nil
}

// checkSegments rejects names that would not be one segment of a key.
func checkSegments(gr schema.GroupResource, segments []string) error {
	for _, segment := range segments {
		if segment == "" || segment == "." || segment == ".." || strings.ContainsAny(segment, "/%") {
			return apierrors.NewBadRequest(fmt.Sprintf("%s: %q is not a valid name", gr, segment))
		}
	}
	return nil
}
