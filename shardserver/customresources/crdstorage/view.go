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

	"github.com/atoll-dev/atoll/logicalcluster"
)

// View is the storage of one content in one version, for the stock store of custom resources: a storage.Interface of
// *unstructured.Unstructured above the shared storage of *Object. What it does not override concerns the whole shared
// storage: readiness, progress of watches, statistics, the current revision.
type View struct {
	storage.Interface // of *Object
	storage           *Storage
	// id tells the views of a storage apart, for those that end as well as for those that come.
	id       string
	identity *identity
	// computing are held while forms are computed.
	computing computing
	// asIs is the form of all objects that the view shows as they are stored.
	asIs *form
	// codec decodes what is stored into the version of the view, converted, defaulted and pruned, and encodes it in
	// the version in which the content stores.
	codec runtime.Codec
	// version is that of the objects of the view; newFunc returns an empty one of its kind.
	version schema.GroupVersion
	newFunc func() runtime.Object
	// getAttrs computes what selectors of the content see, for a decoded object.
	getAttrs storage.AttrFunc
	// ctx ends with the view.
	ctx   context.Context //nolint:containedctx // it is the lifetime of the view, which watches share
	close func()
}

var _ storage.Interface = &View{}

// decode fills into with what the JSON means in the version of the view.
func (v *View) decode(obj *Object, into runtime.Object) error {
	if err := v.decodeStored(obj.stored, into); err != nil {
		return err
	}
	return v.Versioner().UpdateObject(into, obj.resourceVersion)
}

// decodeStored is decode without a resource version. An object whose form in the view is known needs no codec, hence
// no conversion webhook, again.
func (v *View) decodeStored(s *stored, into runtime.Object) error {
	f := s.form(v.identity)
	if f == nil {
		return v.decodeFully(s, into)
	}
	if f.stored != nil {
		s = f.stored
	}
	_, _, err := unstructured.UnstructuredJSONScheme.Decode(bytesOf(s.text()), nil, into)
	return err
}

// decodeJSON decodes JSON as it is stored.
func (v *View) decodeJSON(json string, into runtime.Object) error {
	_, _, err := v.codec.Decode(bytesOf(json), nil, into)
	return err
}

// decodeFully decodes what is stored. The logical cluster stays what it is: a conversion webhook may change
// annotations, but is a tenant's.
func (v *View) decodeFully(s *stored, into runtime.Object) error {
	if err := v.decodeJSON(s.text(), into); err != nil {
		return err
	}
	obj, ok := into.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("a custom resource cannot be a %T", into)
	}
	if found, _, _ := unstructured.NestedString(obj.Object, "metadata", "annotations", logicalcluster.AnnotationKey); s.cluster != "" && found != s.cluster {
		annotate(obj, s.cluster)
	}
	return nil
}

// encode returns the object to store for one in the version of the view. Like the stock storage it takes the resource
// version out of obj, and like the decorator of the shared storage it stamps the logical cluster on it, which that
// decorator would else have to do on the encoded object.
func (v *View) encode(ctx context.Context, obj runtime.Object) (*Object, error) {
	if err := stamp(ctx, obj); err != nil {
		return nil, err
	}
	if err := v.Versioner().PrepareObjectForStorage(obj); err != nil {
		return nil, fmt.Errorf("PrepareObjectForStorage failed: %w", err)
	}
	data, err := runtime.Encode(v.codec, obj)
	if err != nil {
		return nil, err
	}
	s, err := parse(data)
	if err != nil {
		return nil, err
	}
	return &Object{stored: s}, nil
}

func stamp(ctx context.Context, obj runtime.Object) error {
	cluster, ok := logicalcluster.From(ctx)
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	if ok && accessor.GetAnnotations()[logicalcluster.AnnotationKey] != cluster.String() {
		annotate(accessor, cluster.String())
	}
	return nil
}

// annotate says in an object which logical cluster it is of.
func annotate(object metav1.Object, cluster string) {
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
	return v.found(obj, out)
}

// found decodes an object that was read, or sets the zero value for one that was not found and need not be. Having its
// form computed first costs more once, and makes every further read of the object cheap.
func (v *View) found(obj *Object, out runtime.Object) error {
	if obj.stored == nil {
		return runtime.SetZeroValue(out)
	}
	if _, err := v.form(obj); err != nil {
		return err
	}
	return v.decode(obj, out)
}

// changing is found for an object that is about to be changed, or to be shown to one watcher: its form is of no use
// later, unless a webhook had to be asked for it.
func (v *View) changing(obj *Object, out runtime.Object) error {
	if obj.stored == nil || obj.GroupVersionKind().GroupVersion() != v.version {
		return v.found(obj, out)
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
	if err := v.list(ctx, key, opts, objects); err != nil {
		return err
	}
	list.Items = make([]unstructured.Unstructured, len(objects.Items))
	for i := range objects.Items {
		item := v.newFunc()
		if err := v.found(&objects.Items[i], item); err != nil {
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

// Delete implements storage.Interface. The suggested existing object is not passed on: the watch cache of the shared
// storage knows a better one.
func (v *View) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, _ runtime.Object, opts storage.DeleteOptions) error {
	validateDecoded := func(ctx context.Context, obj runtime.Object) error {
		object, _ := obj.(*Object)
		if object == nil { // unreadable, and to be deleted nevertheless
			return validate(ctx, nil)
		}
		existing := v.newFunc()
		if err := v.changing(object, existing); err != nil {
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

// GuaranteedUpdate implements storage.Interface. For the suggested existing object see Delete.
func (v *View) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, _ runtime.Object) error {
	tryDecoded := func(input runtime.Object, response storage.ResponseMeta) (runtime.Object, *uint64, error) {
		existing := v.newFunc()
		object, ok := input.(*Object)
		if !ok {
			return nil, nil, fmt.Errorf("a stored custom resource cannot be a %T", input)
		}
		if err := v.changing(object, existing); err != nil {
			return nil, nil, err
		}
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
