package crdstorage

import (
	"context"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/storage"
)

// predicate returns what the shared storage must select by for the selectors of a content.
func (v *View) predicate(predicate storage.SelectionPredicate) storage.SelectionPredicate {
	if bySchema(predicate.Field) {
		predicate.Field = schemaSelector{Selector: predicate.Field, view: v}
	}
	predicate.GetAttrs = attributes
	return predicate
}

// bySchema tells whether a selector needs more than the fields that all objects have.
func bySchema(selector fields.Selector) bool {
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

// list lists objects of the shared storage by the selectors of the content. Whole lists are selected from here, where
// the forms of objects are known, which spares decoding; pages must be selected from below, so that they are full.
func (v *View) list(ctx context.Context, key string, opts storage.ListOptions, list *List) error {
	selector := opts.Predicate.Field
	if opts.Predicate.Limit > 0 || opts.Predicate.Continue != "" || !bySchema(selector) {
		opts.Predicate = v.predicate(opts.Predicate)
		return v.Interface.GetList(ctx, key, opts, list)
	}
	opts.Predicate.Field, opts.Predicate.GetAttrs = ofMetadata(selector), attributes
	if err := v.Interface.GetList(ctx, key, opts, list); err != nil {
		return err
	}
	selected := list.Items[:0]
	for i := range list.Items {
		obj := v.newFunc()
		if err := v.found(&list.Items[i], obj); err != nil {
			return err
		}
		if _, fieldSet, err := v.getAttrs(obj); err == nil && selector.Matches(fieldSet) {
			selected = append(selected, list.Items[i])
		}
	}
	list.Items = selected
	return nil
}

// ofMetadata returns the part of a selector that every object can be selected by.
func ofMetadata(selector fields.Selector) fields.Selector {
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

// schemaSelector selects by fields that only the schema of a content makes selectable. It runs inside the shared
// storage and its watch cache, because only there is it known whether the state of an object before a change was
// selected, which turns the change into an addition or a deletion. It decodes what it looks at: fields may be
// defaulted or converted. A watch does so in its own goroutine, at the cost of nobody else.
type schemaSelector struct {
	fields.Selector
	view *View
}

// Matches implements fields.Selector, given the attributes of the shared storage.
func (s schemaSelector) Matches(attributes fields.Fields) bool {
	obj := s.view.newFunc()
	if err := s.view.decodeJSON(attributes.Get(headField)+attributes.Get(bodyField)+attributes.Get(tailField), obj); err != nil {
		return false // as the stock storage: what cannot be selected by is left out
	}
	_, fieldSet, err := s.view.getAttrs(obj)
	return err == nil && s.Selector.Matches(fieldSet)
}

// DeepCopySelector implements fields.Selector.
func (s schemaSelector) DeepCopySelector() fields.Selector {
	return schemaSelector{Selector: s.Selector.DeepCopySelector(), view: s.view}
}
