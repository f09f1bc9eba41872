package crdstorage

import (
	"context"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/storage"
)

// adaptPredicate returns the predicate of the shared storage for a predicate of the compiled CRD.
func (v *View) adaptPredicate(predicate storage.SelectionPredicate) storage.SelectionPredicate {
	if needsSchema(predicate.Field) {
		predicate.Field = schemaSelector{Selector: predicate.Field, view: v}
	}
	predicate.GetAttrs = getAttrs
	return predicate
}

// needsSchema returns whether a selector selects by other fields than name and namespace.
func needsSchema(selector fields.Selector) bool {
	if selector == nil {
		return false
	}
	for _, requirement := range selector.Requirements() {
		if requirement.Field != nameField && requirement.Field != namespaceField {
			return true
		}
	}
	return false
}

// listObjects lists objects of the shared storage by the selectors of the compiled CRD. Lists without pages are filtered here, with
// the cached variants of objects; pages are filtered by the shared storage, so that they are full.
func (v *View) listObjects(ctx context.Context, key string, opts storage.ListOptions, list *List) error {
	selector := opts.Predicate.Field
	if opts.Predicate.Limit > 0 || opts.Predicate.Continue != "" || !needsSchema(selector) {
		opts.Predicate = v.adaptPredicate(opts.Predicate)
		return v.Interface.GetList(ctx, key, opts, list)
	}
	opts.Predicate.Field, opts.Predicate.GetAttrs = metadataFields(selector), getAttrs
	if err := v.Interface.GetList(ctx, key, opts, list); err != nil {
		return err
	}
	selected := list.Items[:0]
	for i := range list.Items {
		obj := v.newFunc()
		if err := v.decodeAndCache(&list.Items[i], obj); err != nil {
			return err
		}
		if _, fieldSet, err := v.getAttrs(obj); err == nil && selector.Matches(fieldSet) {
			selected = append(selected, list.Items[i])
		}
	}
	list.Items = selected
	return nil
}

// metadataFields returns the requirements of a selector on name and namespace.
func metadataFields(selector fields.Selector) fields.Selector {
	var parts []fields.Selector
	for _, r := range selector.Requirements() {
		switch {
		case r.Field != nameField && r.Field != namespaceField:
		case r.Operator == selection.NotEquals:
			parts = append(parts, fields.OneTermNotEqualSelector(r.Field, r.Value))
		default:
			parts = append(parts, fields.OneTermEqualSelector(r.Field, r.Value))
		}
	}
	return fields.AndSelectors(parts...)
}

// schemaSelector selects by the selectable fields of a definition. It runs inside the shared storage and its watch cache,
// which have the previous state of a changed object, needed to turn a modification into an addition or a deletion. It
// decodes objects, as fields may be defaulted or converted. Each watch does so in its own goroutine.
type schemaSelector struct {
	fields.Selector
	view *View
}

// Matches implements fields.Selector, given the attributes of the shared storage.
func (s schemaSelector) Matches(attributes fields.Fields) bool {
	obj := s.view.newFunc()
	if err := s.view.decodeJSON(attributes.Get(headField)+attributes.Get(payloadField)+attributes.Get(tailField), obj); err != nil {
		return false // as in the upstream storage, objects that cannot be decoded do not match
	}
	_, fieldSet, err := s.view.getAttrs(obj)
	return err == nil && s.Selector.Matches(fieldSet)
}

// DeepCopySelector implements fields.Selector.
func (s schemaSelector) DeepCopySelector() fields.Selector {
	return schemaSelector{Selector: s.Selector.DeepCopySelector(), view: s.view}
}
