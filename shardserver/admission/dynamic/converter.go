package dynamic

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// lazyConverter is a type converter that is created at its first use.
type lazyConverter struct {
	make func() (managedfields.TypeConverter, error)
}

// ObjectToTyped implements managedfields.TypeConverter.
func (l lazyConverter) ObjectToTyped(object runtime.Object, options ...typed.ValidationOptions) (*typed.TypedValue, error) {
	converter, err := l.make()
	if err != nil {
		return nil, err
	}
	return converter.ObjectToTyped(object, options...)
}

// TypedToObject implements managedfields.TypeConverter.
func (l lazyConverter) TypedToObject(value *typed.TypedValue) (runtime.Object, error) {
	converter, err := l.make()
	if err != nil {
		return nil, err
	}
	return converter.TypedToObject(value)
}
