package registry

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metatable "k8s.io/apimachinery/pkg/api/meta/table"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Column is one printed column of type string.
type Column[T Object] struct {
	Name string
	// Path is where the value stands, as JSON path; it only explains the column to readers.
	Path string
	// Value returns the cell. An empty one is printed as absent.
	Value func(T) string
}

// Label returns a column that shows a label.
func Label[T Object](name, label string) Column[T] {
	return Column[T]{
		Name:  name,
		Path:  fmt.Sprintf(".metadata.labels['%s']", label),
		Value: func(obj T) string { return obj.GetObjectMeta().GetLabels()[label] },
	}
}

type table[T Object] struct {
	headers []metav1.TableColumnDefinition
	columns []Column[T]
}

// newTable returns the printer of a kind: name, the given columns, age.
func newTable[T Object](columns []Column[T]) rest.TableConvertor {
	descriptions := metav1.ObjectMeta{}.SwaggerDoc()
	headers := []metav1.TableColumnDefinition{{Name: "Name", Type: "string", Format: "name", Description: descriptions["name"]}}
	for _, column := range columns {
		headers = append(headers, metav1.TableColumnDefinition{Name: column.Name, Type: "string", Description: "Value of " + column.Path})
	}
	headers = append(headers, metav1.TableColumnDefinition{Name: "Age", Type: "date", Description: descriptions["creationTimestamp"]})
	return &table[T]{headers: headers, columns: columns}
}

// ConvertToTable implements rest.TableConvertor.
func (t *table[T]) ConvertToTable(_ context.Context, obj, tableOptions runtime.Object) (*metav1.Table, error) {
	result := &metav1.Table{}
	if options, ok := tableOptions.(*metav1.TableOptions); !ok || options == nil || !options.NoHeaders {
		result.ColumnDefinitions = t.headers
	}
	if list, err := meta.ListAccessor(obj); err == nil {
		result.ResourceVersion = list.GetResourceVersion()
		result.Continue = list.GetContinue()
		result.RemainingItemCount = list.GetRemainingItemCount()
	} else if object, err := meta.CommonAccessor(obj); err == nil {
		result.ResourceVersion = object.GetResourceVersion()
	}
	var err error
	result.Rows, err = metatable.MetaToTableRow(obj, t.cells)
	return result, err
}

func (t *table[T]) cells(obj runtime.Object, _ metav1.Object, name, age string) ([]any, error) {
	typed, ok := obj.(T)
	if !ok {
		return nil, fmt.Errorf("printing %T: it is not of the kind that this table prints", obj)
	}
	cells := make([]any, 0, len(t.columns)+2)
	cells = append(cells, name)
	for _, column := range t.columns {
		if value := column.Value(typed); value != "" {
			cells = append(cells, value)
		} else {
			cells = append(cells, nil)
		}
	}
	return append(cells, age), nil
}
