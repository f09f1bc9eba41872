package crdstorage

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apiserver/pkg/storage"
)

type filterKey struct{}

// Filter reports whether an object is shown, by its metadata. It always returns the same for the same metadata.
type Filter func(object metav1.Object) bool

// WithFilter returns a context whose lists and watches show only objects that match a filter, in addition to the selectors of
// the request. Objects that start or stop matching enter and leave watches, as with selectors.
func WithFilter(ctx context.Context, filter Filter) context.Context {
	return context.WithValue(ctx, filterKey{}, filter)
}

// filterPredicate adds the filter of a context to a predicate of the shared storage.
func filterPredicate(ctx context.Context, predicate storage.SelectionPredicate) storage.SelectionPredicate {
	filter, ok := ctx.Value(filterKey{}).(Filter)
	if !ok {
		return predicate
	}
	if predicate.Field == nil {
		predicate.Field = fields.Everything()
	}
	predicate.Field = filterSelector{Selector: predicate.Field, matches: filter}
	return predicate
}

// filterSelector is a selector with a filter. Like schemaSelector it runs inside the watch cache, which has the previous state of
// changed objects.
type filterSelector struct {
	fields.Selector
	matches Filter
}

// Empty implements fields.Selector.
func (filterSelector) Empty() bool { return false }

// Matches implements fields.Selector, given the attributes of the shared storage.
func (s filterSelector) Matches(attributes fields.Fields) bool {
	if !s.Selector.Matches(attributes) {
		return false
	}
	object, err := NewObject([]byte(attributes.Get(headField)+attributes.Get(payloadField)+attributes.Get(tailField)), 0)
	return err == nil && s.matches(object)
}

// DeepCopySelector implements fields.Selector.
func (s filterSelector) DeepCopySelector() fields.Selector {
	return filterSelector{s.Selector.DeepCopySelector(), s.matches}
}
