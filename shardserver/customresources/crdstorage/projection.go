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

type projectionKey struct{}

// projection is how objects appear that are read on behalf of another logical cluster.
type projection struct {
	cluster         logicalcluster.Name
	omitAnnotations []string
}

// WithProjection returns a context whose reads return objects as if they were in another logical cluster, without certain
// annotations. The logical cluster of the context still determines which objects are read. It is not for writes.
func WithProjection(ctx context.Context, cluster logicalcluster.Name, omitAnnotations ...string) context.Context {
	return context.WithValue(ctx, projectionKey{}, &projection{cluster, omitAnnotations})
}

// WithoutProjection returns a context whose reads return objects as stored.
func WithoutProjection(ctx context.Context) context.Context {
	return context.WithValue(ctx, projectionKey{}, (*projection)(nil))
}

// projectionFrom returns the projection of a context, nil for objects as stored.
func projectionFrom(ctx context.Context) *projection {
	p, _ := ctx.Value(projectionKey{}).(*projection)
	return p
}

// project returns the projection of an object, which shares no memory with the stored one.
func (p *projection) project(obj *Object) (*Object, error) {
	if p == nil || obj.stored == nil || obj.GetName() == "" { // bookmarks have no name
		return obj, nil
	}
	content, err := obj.Unstructured()
	if err != nil {
		return nil, fmt.Errorf("decoding %s: %w", obj.GetName(), err)
	}
	annotations := content.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	for _, key := range p.omitAnnotations {
		delete(annotations, key)
	}
	annotations[logicalcluster.AnnotationKey] = p.cluster.String()
	content.SetAnnotations(annotations)
	content.SetResourceVersion("")
	data, err := json.Marshal(content.Object)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", obj.GetName(), err)
	}
	return NewObject(data, obj.resourceVersion)
}

// projectInto replaces an object by its projection.
func (p *projection) projectInto(out runtime.Object) error {
	obj, ok := out.(*Object)
	if p == nil || !ok {
		return nil
	}
	projected, err := p.project(obj)
	if err == nil {
		*obj = *projected
	}
	return err
}

// projectList replaces the objects of a list. The items may be modified, but not what they point to.
func (p *projection) projectList(list runtime.Object) error {
	objects, ok := list.(*List)
	if p == nil || !ok {
		return nil
	}
	objects.Items = slices.Clone(objects.Items)
	for i := range objects.Items {
		if err := p.projectInto(&objects.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

// projectWatch projects the objects of a watch.
func (p *projection) projectWatch(stream watch.Interface) watch.Interface {
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
		projected, err := p.project(obj)
		if err != nil {
			return watch.Event{Type: watch.Error, Object: newErrorStatus(err)}, true
		}
		event.Object = projected
		return event, true
	})
}
