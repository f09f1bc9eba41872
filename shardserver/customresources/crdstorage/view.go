package crdstorage

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/utils/keymutex"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// View is the storage of one compiled CRD in one version, for the upstream store of custom resources: a storage.Interface of
// *unstructured.Unstructured over the shared storage of *Object. Methods that it does not override concern the whole shared
// storage: readiness, watch progress, statistics, the current revision.
type View struct {
	storage.Interface // of *Object
	storage           *Storage
	// id is unique among all views of a storage, closed ones included.
	id     string
	viewID *viewToken
	// variantLocks are held by UID while variants are computed.
	variantLocks keymutex.KeyMutex
	// identical is the variant of all objects that the view serves as they are stored.
	identical *variant
	// codec decodes stored objects into the version of the view, with conversion, defaulting and pruning, and encodes
	// objects in the storage version.
	codec runtime.Codec
	// version is the version of the objects of the view; newFunc returns an empty object.
	version schema.GroupVersion
	newFunc func() runtime.Object
	// versions are those of Views.
	versions []string
	// getAttrs returns the labels and fields of a decoded object.
	getAttrs storage.AttrFunc
	// ctx ends with the view.
	ctx   context.Context // the lifetime of the view, which bounds its watches
	close func()
}

var _ storage.Interface = &View{}

// decode decodes an object into the version of the view.
func (v *View) decode(obj *Object, into runtime.Object) error {
	if err := v.decodeStored(obj.stored, into); err != nil {
		return err
	}
	return v.Versioner().UpdateObject(into, obj.resourceVersion)
}

// decodeStored is decode without the resource version. An object with a cached variant needs no codec and no conversion
// webhook.
func (v *View) decodeStored(s *storedObject, into runtime.Object) error {
	f := s.findVariant(v.viewID)
	if f == nil {
		return v.decodeConverted(s, into)
	}
	if f.stored != nil {
		s = f.stored
	}
	_, _, err := unstructured.UnstructuredJSONScheme.Decode(unsafeBytes(s.text()), nil, into)
	return err
}

// decodeJSON decodes stored JSON.
func (v *View) decodeJSON(json string, into runtime.Object) error {
	_, _, err := v.codec.Decode(unsafeBytes(json), nil, into)
	return err
}

// decodeConverted decodes a stored object with the codec. It restores the annotation of the logical cluster, which a
// tenant's conversion webhook could change.
func (v *View) decodeConverted(s *storedObject, into runtime.Object) error {
	if err := v.decodeJSON(s.text(), into); err != nil {
		return err
	}
	obj, ok := into.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("a custom resource cannot be a %T", into)
	}
	if found, _, _ := unstructured.NestedString(obj.Object, "metadata", "annotations", logicalcluster.AnnotationKey); s.cluster != "" && found != s.cluster {
		setClusterAnnotation(obj, s.cluster)
	}
	return nil
}

// encode returns the object to store. Like the upstream storage it removes the resource version of obj, and like the
// decorator of the shared storage it sets the logical cluster, as that is expensive on the encoded object.
func (v *View) encode(ctx context.Context, obj runtime.Object) (*Object, error) {
	if err := setLogicalCluster(ctx, obj); err != nil {
		return nil, err
	}
	if err := v.Versioner().PrepareObjectForStorage(obj); err != nil {
		return nil, fmt.Errorf("PrepareObjectForStorage failed: %w", err)
	}
	data, err := runtime.Encode(v.codec, obj)
	if err != nil {
		return nil, err
	}
	s, err := parseObject(data)
	if err != nil {
		return nil, err
	}
	return &Object{stored: s}, nil
}

func setLogicalCluster(ctx context.Context, obj runtime.Object) error {
	cluster, ok := logicalcluster.From(ctx)
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	if ok && accessor.GetAnnotations()[logicalcluster.AnnotationKey] != cluster.String() {
		setClusterAnnotation(accessor, cluster.String())
	}
	return nil
}

// setClusterAnnotation sets the annotation of the logical cluster.
func setClusterAnnotation(object metav1.Object, cluster string) {
	annotations := object.GetAnnotations() // a copy
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[logicalcluster.AnnotationKey] = cluster
	object.SetAnnotations(annotations)
}

// Create implements storage.Interface.
func (v *View) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	if version, err := v.Versioner().ObjectResourceVersion(obj); err == nil && version != 0 {
		return storage.ErrResourceVersionSetOnCreate
	}
	encoded, err := v.encode(ctx, obj)
	if err != nil {
		return err
	}
	created := &Object{}
	if err := v.Interface.Create(ctx, key, encoded, created, ttl); err != nil || out == nil {
		return err
	}
	return v.decode(created, out)
}

// Get implements storage.Interface.
func (v *View) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	obj := &Object{}
	if err := v.Interface.Get(ctx, key, opts, obj); err != nil {
		return err
	}
	if err := v.decodeAndCache(obj, out); err != nil {
		return newCorruptObjectError(key, obj, err)
	}
	return nil
}

// decodeAndCache decodes an object, or sets the zero value for an object that was not found. It caches the variant, which
// makes further reads of the object cheap.
func (v *View) decodeAndCache(obj *Object, out runtime.Object) error {
	if obj.stored == nil {
		return runtime.SetZeroValue(out)
	}
	if _, err := v.getVariant(obj); err != nil {
		return err
	}
	return v.decode(obj, out)
}

// decodeOnce decodes an object that is about to be updated, or for one watcher. It caches the variant only if the
// conversion may need a webhook.
func (v *View) decodeOnce(obj *Object, out runtime.Object) error {
	if obj.stored == nil || obj.GroupVersionKind().GroupVersion() != v.version {
		return v.decodeAndCache(obj, out)
	}
	return v.decode(obj, out)
}

// GetList implements storage.Interface.
func (v *View) GetList(ctx context.Context, key string, opts storage.ListOptions, out runtime.Object) error {
	list, ok := out.(*unstructured.UnstructuredList)
	if !ok {
		return fmt.Errorf("listing custom resources into %T is not possible", out)
	}
	objects := &List{}
	if err := v.listObjects(ctx, key, opts, objects); err != nil {
		return err
	}
	list.Items = make([]unstructured.Unstructured, len(objects.Items))
	for i := range objects.Items {
		item := v.newFunc()
		if err := v.decodeAndCache(&objects.Items[i], item); err != nil {
			return err
		}
		into, ok := item.(*unstructured.Unstructured)
		if !ok {
			return fmt.Errorf("a custom resource cannot be a %T", item)
		}
		list.Items[i] = *into
	}
	version, err := v.Versioner().ParseResourceVersion(objects.ResourceVersion)
	if err != nil {
		return err
	}
	return v.Versioner().UpdateList(list, version, objects.Continue, objects.RemainingItemCount)
}

// Delete implements storage.Interface. It does not pass on the cached existing object: the watch cache of the shared
// storage has a better one.
func (v *View) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, _ runtime.Object, opts storage.DeleteOptions) error {
	validateDecoded := func(ctx context.Context, obj runtime.Object) error {
		object, _ := obj.(*Object)
		if object == nil { // unreadable, and deleted nevertheless
			return validate(ctx, nil)
		}
		existing := v.newFunc()
		if err := v.decodeOnce(object, existing); err != nil {
			return err
		}
		return validate(ctx, existing)
	}
	deleted := &Object{}
	if err := v.Interface.Delete(ctx, key, deleted, preconditions, validateDecoded, nil, opts); err != nil || deleted.stored == nil {
		return err
	}
	return v.decode(deleted, out)
}

// GuaranteedUpdate implements storage.Interface. For the cached existing object see Delete.
func (v *View) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, _ runtime.Object) error {
	tryDecoded := func(input runtime.Object, response storage.ResponseMeta) (runtime.Object, *uint64, error) {
		existing := v.newFunc()
		object, ok := input.(*Object)
		if !ok {
			return nil, nil, fmt.Errorf("a stored custom resource cannot be a %T", input)
		}
		if err := v.decodeOnce(object, existing); err != nil {
			return nil, nil, err
		}
		v.moveOwners(existing)
		updated, ttl, err := tryUpdate(existing, response)
		if err != nil {
			return nil, nil, err
		}
		encoded, err := v.encode(ctx, updated)
		return encoded, ttl, err
	}
	updated := &Object{}
	if err := v.Interface.GuaranteedUpdate(ctx, key, updated, ignoreNotFound, preconditions, tryDecoded, nil); err != nil {
		return err
	}
	return v.decode(updated, out)
}
