package raw

import (
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apiserver/pkg/storage"
)

// predicate returns what the shared storage must select by for the selectors of a content.
func (v *View) predicate(predicate storage.SelectionPredicate) storage.SelectionPredicate {
	predicate.GetAttrs = attributes
	if predicate.Field == nil {
		return predicate
	}
	for _, requirement := range predicate.Field.Requirements() {
		if requirement.Field != nameField && requirement.Field != namespaceField {
			predicate.Field = schemaSelector{Selector: predicate.Field, view: v}
			break
		}
	}
	return predicate
}

// schemaSelector selects by fields that only the schema of a content makes selectable. It runs inside the shared
// storage and its watch cache, because only there is it known whether the state of an object before a change was
// selected, which turns the change into an addition or a deletion. It decodes what it looks at: fields may be
// defaulted or converted.
type schemaSelector struct {
	fields.Selector
	view *View
}

// Matches implements fields.Selector, given the attributes of the shared storage.
func (s schemaSelector) Matches(attributes fields.Fields) bool {
	obj := s.view.newFunc()
	if err := s.view.decodeJSON(attributes.Get(jsonField), obj); err != nil {
		return false // as the stock storage: what cannot be selected by is left out
	}
	_, fieldSet, err := s.view.getAttrs(obj)
	return err == nil && s.Selector.Matches(fieldSet)
}

// DeepCopySelector implements fields.Selector.
func (s schemaSelector) DeepCopySelector() fields.Selector {
	return schemaSelector{Selector: s.Selector.DeepCopySelector(), view: s.view}
}
