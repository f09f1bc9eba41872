package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	exactjson "k8s.io/apimachinery/pkg/util/json"

	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// Annotations of objects in a cache.
const (
	// ShardAnnotation names the shard that published the object. The server sets it from the URL.
	ShardAnnotation = "kcp.io/shard"
	// OriginalResourceVersionAnnotation and OriginalUIDAnnotation are those of the object at its shard.
	OriginalResourceVersionAnnotation = "cache.kcp.io/original-resource-version"
	OriginalUIDAnnotation             = "cache.kcp.io/original-resource-UID"
	// ReachAnnotation is the reach of an object across caches. Shards set it also where HasGlobalReach implies it, for
	// caches of earlier versions. Caches return it only to shards and caches.
	ReachAnnotation = "cache.kcp.io/reach"
	// ReachGlobal is the reach of objects that all caches of an installation need. All other objects stay in the cache
	// in which they were published.
	ReachGlobal = "global"
	// ViaAnnotation and DownAnnotation are set by caches on copies from another cache (package hierarchy). No shard
	// publishes an object with one.
	ViaAnnotation  = "cache.kcp.io/via"
	DownAnnotation = "cache.kcp.io/down"
)

// Key is the identity of an object of one resource in a cache.
type Key struct {
	Shard   string
	Cluster logicalcluster.Name
	// Namespace is empty for objects of the logical cluster.
	Namespace, Name string
}

// String returns "<shard>|<cluster>|[<namespace>/]<name>".
func (k Key) String() string {
	name := types.NamespacedName{Namespace: k.Namespace, Name: k.Name}.String()
	if k.Namespace == "" {
		name = k.Name
	}
	return k.Shard + "|" + k.Cluster.String() + "|" + name
}

// Object is an object of a cache.
type Object struct {
	Key
	metav1.TypeMeta
	// Meta is its metadata; the resource version is that of the cache.
	Meta metav1.ObjectMeta
	// Raw is the complete object as JSON. It must not be changed.
	Raw json.RawMessage
}

// HasGlobalReach returns whether all caches of an installation need an object: those that shards exchange and those of the
// logical cluster root, and others with the annotation.
func (o *Object) HasGlobalReach() bool {
	return o.GroupVersionKind().Group == shardingv1alpha1.GroupName || o.Cluster == logicalcluster.Root || o.Meta.Annotations[ReachAnnotation] == ReachGlobal
}

// GetObjectMeta implements metav1.ObjectMetaAccessor.
func (o *Object) GetObjectMeta() metav1.Object { return &o.Meta }

// DeepCopyObject implements runtime.Object.
func (o *Object) DeepCopyObject() runtime.Object {
	return &Object{Key: o.Key, TypeMeta: o.TypeMeta, Meta: *o.Meta.DeepCopy(), Raw: bytes.Clone(o.Raw)}
}

// objectList is a list of objects of a cache. It implements runtime.Object.
type objectList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []*Object
}

// DeepCopyObject implements runtime.Object.
func (l *objectList) DeepCopyObject() runtime.Object {
	items := make([]*Object, 0, len(l.Items))
	for _, item := range l.Items {
		items = append(items, item.DeepCopyObject().(*Object))
	}
	return &objectList{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy(), Items: items}
}

// String returns its key.
func (o *Object) String() string { return o.Key.String() }

// Decode reads the object into one of its Go type in its stored version.
func (o *Object) Decode(into any) error {
	if err := exactjson.Unmarshal(o.Raw, into); err != nil {
		return fmt.Errorf("decoding %s %s: %w", o.Kind, o.Key, err)
	}
	return nil
}

// Unstructured returns the object as generic JSON, which the caller may change.
func (o *Object) Unstructured() (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(o.Raw); err != nil {
		return nil, fmt.Errorf("decoding %s %s: %w", o.Kind, o.Key, err)
	}
	return u, nil
}

// parseObject decodes the metadata of an object. Field names are case-sensitive: the standard library folds case, which
// would let a shard add annotations next to those that the server sets.
func parseObject(raw json.RawMessage) (*Object, error) {
	var partial struct {
		metav1.TypeMeta
		Metadata metav1.ObjectMeta `json:"metadata"`
	}
	if err := exactjson.Unmarshal(raw, &partial); err != nil {
		return nil, fmt.Errorf("decoding the metadata of an object of the cache: %w", err)
	}
	meta := partial.Metadata
	cluster, err := logicalcluster.ParseName(meta.Annotations[logicalcluster.AnnotationKey])
	if err != nil {
		return nil, fmt.Errorf("%s %q of the cache: annotation %s: %w", partial.Kind, meta.Name, logicalcluster.AnnotationKey, err)
	}
	shard := meta.Annotations[ShardAnnotation]
	if shard == "" || meta.Name == "" {
		return nil, errors.New("an object of the cache has no name or no annotation " + ShardAnnotation)
	}
	key := Key{Shard: shard, Cluster: cluster, Namespace: meta.Namespace, Name: meta.Name}
	return &Object{Key: key, TypeMeta: partial.TypeMeta, Meta: meta, Raw: raw}, nil
}
