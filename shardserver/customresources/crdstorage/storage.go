package crdstorage

import (
	"fmt"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"

	clusterstorage "github.com/atoll-dev/atoll/shardserver/storage"
)

// Storage holds the objects of one resource under one key segment, for all logical clusters.
type Storage struct {
	resource schema.GroupResource
	segment  string
	options  Options
	// objects is the upstream storage and watch cache of *Object, behind the decorator that isolates logical clusters.
	objects storage.Interface
	destroy func()
	// viewCount counts the views that were created, for their ids.
	viewCount atomic.Uint64
}

// open creates the storage and, if enabled, its watch cache, which fills in the background.
func open(options Options, payloads *clusterstorage.Interner, resource schema.GroupResource, segment string) (*Storage, error) {
	s := &Storage{resource: resource, segment: segment, options: options}
	config := options.Storage.ForResource(resource)
	config.Codec = Codec
	config.EncodeVersioner = nil
	if options.Transformers != nil {
		config.Transformer = options.Transformers.TransformerForResource(resource)
	}
	config.Transformer = clusterstorage.WithMeter(config.Transformer, options.Meter)
	decorate := clusterstorage.WithoutCache()
	if options.WatchCache {
		decorate = clusterstorage.WithCache(clusterstorage.CacheOptions{Compact: func(obj runtime.Object) {
			if object, ok := obj.(*Object); ok {
				object.sharePayload(payloads, clusterstorage.MinInternedSize)
			}
		}})
	}
	objects, destroy, err := clusterstorage.WithGuard(decorate, options.Guard)(config, s.Prefix(), s.key, newObject, newList, getAttrs, nil, nil)
	if err != nil {
		return nil, err
	}
	s.objects, s.destroy = &sharedStorage{Interface: objects, cached: options.WatchCache}, destroy
	return s, nil
}

func newObject() runtime.Object { return &Object{} }
func newList() runtime.Object   { return &List{} }

// Resource returns the stored resource.
func (s *Storage) Resource() schema.GroupResource { return s.resource }

// Segment returns the key segment between resource and logical cluster.
func (s *Storage) Segment() string { return s.segment }

// Prefix returns the key prefix, "/<group or core>/<resource>/<segment>", below the prefix of the shard.
func (s *Storage) Prefix() string { return Prefix(s.resource, s.segment) }

// Prefix returns the key prefix of a resource and a segment.
func Prefix(resource schema.GroupResource, segment string) string {
	group := resource.Group
	if group == "" {
		group = "core"
	}
	return "/" + group + "/" + resource.Resource + "/" + segment
}

// key returns the key of an object without the logical cluster. Logical clusters may define a resource with different scopes.
func (s *Storage) key(obj runtime.Object) (string, error) {
	object, ok := obj.(*Object)
	if !ok {
		return "", fmt.Errorf("a stored custom resource cannot be a %T", obj)
	}
	name, namespace := object.GetName(), object.GetNamespace()
	if name == "" {
		return "", fmt.Errorf("a stored object of %s has no name", s.resource)
	}
	if namespace != "" {
		return s.Prefix() + "/" + namespace + "/" + name, nil
	}
	return s.Prefix() + "/" + name, nil
}

const (
	nameField      = "metadata.name"
	namespaceField = "metadata.namespace"
	// These pass the JSON of the object to selectors of a view, in three parts. Requests cannot select by them.
	headField    = "\x00head"
	payloadField = "\x00body"
	tailField    = "\x00tail"
)

// getAttrs returns the labels and fields that the shared storage selects by.
func getAttrs(obj runtime.Object) (labels.Set, fields.Set, error) {
	object, ok := obj.(*Object)
	if !ok {
		return nil, nil, fmt.Errorf("a stored custom resource cannot be a %T", obj)
	}
	set := fields.Set{nameField: object.GetName(), namespaceField: object.GetNamespace()}
	if object.stored != nil {
		set[headField], set[payloadField], set[tailField] = object.stored.split()
	}
	return object.GetLabels(), set, nil
}
