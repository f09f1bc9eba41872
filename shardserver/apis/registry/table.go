package registry

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metatable "k8s.io/apimachinery/pkg/api/meta/table"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Column is one printed column of type string.
type Column[T Object] struct {
	Name string
	// Path is the JSON path of the value, for the description of the column only.
	Path string
	// Value returns the cell. An empty one is printed as absent.
	Value func(T) string
}

// NewLabelColumn returns a column with the value of a label.
func NewLabelColumn[T Object](name, label string) Column[T] {
	return Column[T]{
		Name:  name,
		Path:  fmt.Sprintf(".metadata.labels['%s']", label),
		Value: func(obj T) string { return obj.GetObjectMeta().GetLabels()[label] },
	}
}

type table[T Object] struct {
	layout   layout[T]
	versions map[string]layout[T]
}

// layout are the columns of one version.
type layout[T Object] struct {
	headers  []metav1.TableColumnDefinition
	columns  []Column[T]
	ageFirst bool
}

// newTable returns the table convertor of a kind: name, columns and age.
func newTable[T Object](kind *Kind[T]) rest.TableConvertor {
	printer := &table[T]{layout: newLayout(kind.Columns, kind.AgeFirst), versions: map[string]layout[T]{}}
	for version, columns := range kind.VersionColumns {
		printer.versions[version] = newLayout(columns, kind.AgeFirst)
	}
	return printer
}

func newLayout[T Object](columns []Column[T], ageFirst bool) layout[T] {
	descriptions := metav1.ObjectMeta{}.SwaggerDoc()
	age := metav1.TableColumnDefinition{Name: "Age", Type: "date", Description: descriptions["creationTimestamp"]}
	headers := []metav1.TableColumnDefinition{{Name: "Name", Type: "string", Format: "name", Description: descriptions["name"]}}
	if ageFirst {
		headers = append(headers, age)
	}
	for _, column := range columns {
		headers = append(headers, metav1.TableColumnDefinition{Name: column.Name, Type: "string", Description: "Value of " + column.Path})
	}
	if !ageFirst {
		headers = append(headers, age)
	}
	return layout[T]{headers: headers, columns: columns, ageFirst: ageFirst}
}

// layoutFor returns the layout of the requested version.
func (t *table[T]) layoutFor(ctx context.Context) layout[T] {
	if info, ok := request.RequestInfoFrom(ctx); ok && len(t.versions) > 0 {
		if special, ok := t.versions[info.APIVersion]; ok {
			return special
		}
	}
	return t.layout
}

// ConvertToTable implements rest.TableConvertor.
func (t *table[T]) ConvertToTable(ctx context.Context, obj, tableOptions runtime.Object) (*metav1.Table, error) {
	layout, result := t.layoutFor(ctx), &metav1.Table{}
	if options, ok := tableOptions.(*metav1.TableOptions); !ok || options == nil || !options.NoHeaders {
		result.ColumnDefinitions = layout.headers
	}
	if list, err := meta.ListAccessor(obj); err == nil {
		result.ResourceVersion = list.GetResourceVersion()
		result.Continue = list.GetContinue()
		result.RemainingItemCount = list.GetRemainingItemCount()
	} else if object, err := meta.CommonAccessor(obj); err == nil {
		result.ResourceVersion = object.GetResourceVersion()
	}
	var err error
	result.Rows, err = metatable.MetaToTableRow(obj, layout.printRow)
	return result, err
}

func (l layout[T]) printRow(obj runtime.Object, _ metav1.Object, name, age string) ([]any, error) {
	typed, ok := obj.(T)
	if !ok {
		return nil, fmt.Errorf("printing %T: it is not of the kind that this table prints", obj)
	}
	cells := make([]any, 0, len(l.columns)+2)
	cells = append(cells, name)
	if l.ageFirst {
		cells = append(cells, age)
	}
	for _, column := range l.columns {
		if value := column.Value(typed); value != "" {
			cells = append(cells, value)
		} else {
			cells = append(cells, nil)
		}
	}
	if !l.ageFirst {
		cells = append(cells, age)
	}
	return cells, nil
}
