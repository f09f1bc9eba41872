package crdstorage

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/atoll-dev/atoll/logicalcluster"
)

type presentationKey struct{}

// presentation is how objects are shown that are read on behalf of another logical cluster than theirs.
type presentation struct {
	cluster logicalcluster.Name
	without []string
}

// PresentedIn returns a context whose reads show objects as if they were in another logical cluster, without certain
// annotations. Which objects are read is still for the logical cluster of the context to say. Nothing may be written
// with it.
func PresentedIn(ctx context.Context, cluster logicalcluster.Name, without ...string) context.Context {
	return context.WithValue(ctx, presentationKey{}, &presentation{cluster, without})
}

// AsStored takes back what PresentedIn says.
func AsStored(ctx context.Context) context.Context {
	return context.WithValue(ctx, presentationKey{}, (*presentation)(nil))
}

// presentationOf returns how a context wants objects to be shown, nil for as they are.
func presentationOf(ctx context.Context) *presentation {
	p, _ := ctx.Value(presentationKey{}).(*presentation)
	return p
}

// of returns an object as it is shown. It shares nothing with the one in storage.
func (p *presentation) of(obj *Object) (*Object, error) {
	if p == nil || obj.stored == nil || obj.GetName() == "" { // bookmarks have no name
		return obj, nil
	}
	content, err := obj.Unstructured()
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", obj.GetName(), err)
	}
	annotations := content.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	for _, key := range p.without {
		delete(annotations, key)
	}
	annotations[logicalcluster.AnnotationKey] = p.cluster.String()
	content.SetAnnotations(annotations)
	content.SetResourceVersion("")
	data, err := json.Marshal(content.Object)
	if err != nil {
		return nil, fmt.Errorf("writing %s: %w", obj.GetName(), err)
	}
	return NewObject(data, obj.resourceVersion)
}

// into shows an object in its place.
func (p *presentation) into(out runtime.Object) error {
	obj, ok := out.(*Object)
	if p == nil || !ok {
		return nil
	}
	shown, err := p.of(obj)
	if err == nil {
		*obj = *shown
	}
	return err
}

// list shows all objects of a list. Its items belong to the caller, what they point to does not.
func (p *presentation) list(list runtime.Object) error {
	objects, ok := list.(*List)
	if p == nil || !ok {
		return nil
	}
	objects.Items = slices.Clone(objects.Items)
	for i := range objects.Items {
		if err := p.into(&objects.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

// watch shows the objects of a watch.
func (p *presentation) watch(stream watch.Interface) watch.Interface {
	if p == nil {
		return stream
	}
	return watch.Filter(stream, func(event watch.Event) (watch.Event, bool) {
		object := event.Object
		if envelope, ok := object.(runtime.CacheableObject); ok {
			object = envelope.GetObject()
		}
		obj, ok := object.(*Object)
		if !ok { // an error
			return event, true
		}
		shown, err := p.of(obj)
		if err != nil {
			return watch.Event{Type: watch.Error, Object: statusOf(err)}, true
		}
		event.Object = shown
		return event, true
	})
}
