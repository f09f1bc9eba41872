package crdstorage

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"

	"github.com/atoll-dev/atoll/logicalcluster"
)

type projectionKey struct{}

// Projection is how objects appear that are read on behalf of other logical clusters.
type Projection struct {
	// Cluster is the logical cluster in which objects appear.
	Cluster logicalcluster.Name
	// Audience, if not nil, is used instead of Cluster, and for lists and watches only.
	Audience Audience
	// OmitAnnotations are the annotations that objects appear without.
	OmitAnnotations []string
	// OmitFields are the paths of fields that objects appear without. Metadata that could repeat them is omitted, too:
	// managedFields, and the annotation of kubectl apply.
	OmitFields [][]string
}

// WithProjection returns a context whose reads return objects as if they were in other logical clusters. The logical
// cluster of the context still determines which objects are read. It is not for writes.
func WithProjection(ctx context.Context, p Projection) context.Context {
	return context.WithValue(ctx, projectionKey{}, &p)
}

// WithoutProjection returns a context whose reads return objects as stored.
func WithoutProjection(ctx context.Context) context.Context {
	return context.WithValue(ctx, projectionKey{}, (*Projection)(nil))
}

// projectionFrom returns the projection of a context, nil for objects as stored.
func projectionFrom(ctx context.Context) *Projection {
	p, _ := ctx.Value(projectionKey{}).(*Projection)
	return p
}

// project returns the projection of an object to a logical cluster, which shares no memory with the stored one.
func (p *Projection) project(obj *Object, cluster logicalcluster.Name) (*Object, error) {
	if isBookmark(obj) {
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
	for _, key := range p.OmitAnnotations {
		delete(annotations, key)
	}
	if len(p.OmitFields) > 0 {
		delete(annotations, corev1.LastAppliedConfigAnnotation)
		content.SetManagedFields(nil)
	}
	for _, path := range p.OmitFields {
		unstructured.RemoveNestedField(content.Object, path...)
	}
	annotations[logicalcluster.AnnotationKey] = cluster.String()
	content.SetAnnotations(annotations)
	content.SetResourceVersion("")
	data, err := json.Marshal(content.Object)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", obj.GetName(), err)
	}
	return NewObject(data, obj.resourceVersion)
}

// isBookmark reports whether an object of a watch is that of a bookmark, which has no name.
func isBookmark(obj *Object) bool { return obj.stored == nil || obj.GetName() == "" }

// projectInto replaces an object by its projection.
func (p *Projection) projectInto(out runtime.Object) error {
	obj, ok := out.(*Object)
	if p == nil || !ok {
		return nil
	}
	projected, err := p.project(obj, p.Cluster)
	if err == nil {
		*obj = *projected
	}
	return err
}

// projectList replaces the objects of a list. The items may be modified, but not what they point to.
func (p *Projection) projectList(ctx context.Context, list runtime.Object) error {
	objects, ok := list.(*List)
	if p == nil || !ok {
		return nil
	}
	if p.Audience != nil {
		return p.projectListToAudience(ctx, objects)
	}
	objects.Items = slices.Clone(objects.Items)
	for i := range objects.Items {
		if err := p.projectInto(&objects.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

// projectWatch projects the objects of a watch with options.
func (p *Projection) projectWatch(ctx context.Context, stream watch.Interface, opts storage.ListOptions) (watch.Interface, error) {
	switch {
	case p == nil:
		return stream, nil
	case p.Audience != nil:
		return p.projectWatchToAudience(ctx, stream, opts)
	}
	return watch.Filter(stream, func(event watch.Event) (watch.Event, bool) { return p.projectEvent(event, p.Cluster), true }), nil
}

// projectEvent projects the object of an event of a watch to a logical cluster.
func (p *Projection) projectEvent(event watch.Event, cluster logicalcluster.Name) watch.Event {
	obj, ok := objectOf(event)
	if !ok { // an error
		return event
	}
	projected, err := p.project(obj, cluster)
	if err != nil {
		return watch.Event{Type: watch.Error, Object: newErrorStatus(err)}
	}
	event.Object = projected
	return event
}

// objectOf returns the object of an event; false for an error.
func objectOf(event watch.Event) (*Object, bool) {
	object := event.Object
	if envelope, ok := object.(runtime.CacheableObject); ok {
		object = envelope.GetObject()
	}
	obj, ok := object.(*Object)
	return obj, ok
}
