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
	// objects is the stock storage and watch cache of *Object, behind the decorator that keeps clusters apart.
	objects storage.Interface
	destroy func()
	// opened counts the views that there ever were.
	opened atomic.Uint64
}

// open makes the storage and, if there is to be one, its watch cache, which fills in the background.
func open(options Options, texts *clusterstorage.Shared, resource schema.GroupResource, segment string) (*Storage, error) {
	s := &Storage{resource: resource, segment: segment, options: options}
	config := options.Storage.ForResource(resource)
	config.Codec = Codec
	config.EncodeVersioner = nil
	if options.Transformers != nil {
		config.Transformer = options.Transformers.TransformerForResource(resource)
	}
	decorate := clusterstorage.WithoutCache()
	if options.WatchCache {
		decorate = clusterstorage.WithCacheOf(func(obj runtime.Object) {
			if object, ok := obj.(*Object); ok {
				object.share(texts, clusterstorage.SharedTextSize)
			}
		})
	}
	objects, destroy, err := decorate(config, s.Prefix(), s.key, newObject, newList, attributes, nil, nil)
	if err != nil {
		return nil, err
	}
	s.objects, s.destroy = &shared{Interface: objects, cached: options.WatchCache}, destroy
	return s, nil
}

func newObject() runtime.Object { return &Object{} }
func newList() runtime.Object   { return &List{} }

// Resource returns what is stored.
func (s *Storage) Resource() schema.GroupResource { return s.resource }

// Segment returns what stands between resource and logical cluster in the keys.
func (s *Storage) Segment() string { return s.segment }

// Prefix returns what all keys begin with, "/<group or core>/<resource>/<segment>", behind the prefix of the shard.
func (s *Storage) Prefix() string { return Prefix(s.resource, s.segment) }

// Prefix returns what the keys of a resource under a segment begin with.
func Prefix(resource schema.GroupResource, segment string) string {
	group := resource.Group
	if group == "" {
		group = "core"
	}
	return "/" + group + "/" + resource.Resource + "/" + segment
}

// key is where an object stands inside its logical cluster. Clusters may disagree about the scope of a resource.
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
	// These give selectors of a view the JSON of the object itself, in three parts. No request can name them.
	headField = "\x00head"
	bodyField = "\x00body"
	tailField = "\x00tail"
)

// attributes are what the shared storage selects objects by.
func attributes(obj runtime.Object) (labels.Set, fields.Set, error) {
	object, ok := obj.(*Object)
	if !ok {
		return nil, nil, fmt.Errorf("a stored custom resource cannot be a %T", obj)
	}
	set := fields.Set{nameField: object.GetName(), namespaceField: object.GetNamespace()}
	if object.stored != nil {
		set[headField], set[bodyField], set[tailField] = object.stored.parts()
	}
	return object.GetLabels(), set, nil
}
