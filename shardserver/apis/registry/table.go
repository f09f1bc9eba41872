package registry

import (
	"context"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
)

// Columns are the printed columns after the name.
type Columns []PrintedColumn

// PrintedColumn is a column with the value at a JSON path, or the one that a function computes.
type PrintedColumn struct {
	apiextensionsv1.CustomResourceColumnDefinition
	compute func(runtime.Object) string
}

// Column returns a column of type string with the value at a JSON path.
func Column(name, jsonPath string) PrintedColumn {
	return PrintedColumn{CustomResourceColumnDefinition: apiextensionsv1.CustomResourceColumnDefinition{Name: name, Type: "string", JSONPath: jsonPath}}
}

// LabelColumn returns a column with the value of a label.
func LabelColumn(name, label string) PrintedColumn {
	return Column(name, fmt.Sprintf(".metadata.labels['%s']", label))
}

// ComputedColumn returns a column whose value no JSON path has, such as one of several list items. The function gets
// objects of the stored version; other objects have no value.
func ComputedColumn[T runtime.Object](name string, compute func(T) string) PrintedColumn {
	return PrintedColumn{
		CustomResourceColumnDefinition: apiextensionsv1.CustomResourceColumnDefinition{Name: name, Type: "string"},
		compute: func(obj runtime.Object) string {
			if typed, ok := obj.(T); ok {
				return compute(typed)
			}
			return ""
		},
	}
}

// Problem returns columns with the reason and the message of the worst condition of an object; empty if all is well.
func Problem[T interface {
	runtime.Object
	conditionsv1alpha1.Getter
}]() Columns {
	column := func(name string, of func(*conditionsv1alpha1.Condition) string) PrintedColumn {
		return ComputedColumn(name, func(obj T) string {
			if worst := conditionsv1alpha1.Worst(obj); worst != nil {
				return of(worst)
			}
			return ""
		})
	}
	return Columns{
		column("Reason", func(c *conditionsv1alpha1.Condition) string { return c.Reason }),
		column("Message", func(c *conditionsv1alpha1.Condition) string { return c.Message }),
	}
}

// Age is the column with the age of an object.
var Age = PrintedColumn{CustomResourceColumnDefinition: apiextensionsv1.CustomResourceColumnDefinition{
	Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp",
	Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"],
}}

// table prints the columns of the requested version.
type table struct {
	rest.TableConvertor
	versions map[string]rest.TableConvertor
}

// printer prints values at JSON paths as the stock convertor of custom resources prints them, and adds computed ones.
type printer struct {
	stock   rest.TableConvertor
	columns Columns
}

func newPrinter(columns Columns) (rest.TableConvertor, error) {
	var withPath []apiextensionsv1.CustomResourceColumnDefinition
	for _, column := range columns {
		if column.compute == nil {
			withPath = append(withPath, column.CustomResourceColumnDefinition)
		}
	}
	stock, err := tableconvertor.New(withPath)
	if err != nil || len(withPath) == len(columns) {
		return stock, err
	}
	return printer{stock: stock, columns: columns}, nil
}

// ConvertToTable implements rest.TableConvertor.
func (p printer) ConvertToTable(ctx context.Context, obj, tableOptions runtime.Object) (*metav1.Table, error) {
	result, err := p.stock.ConvertToTable(ctx, obj, tableOptions)
	if err != nil {
		return nil, err
	}
	for i, column := range p.columns {
		if column.compute == nil {
			continue
		}
		at := i + 1 // after the name
		if len(result.ColumnDefinitions) > 0 {
			result.ColumnDefinitions = slices.Insert(slices.Clone(result.ColumnDefinitions), at, metav1.TableColumnDefinition{Name: column.Name, Type: column.Type, Priority: column.Priority})
		}
		for row := range result.Rows {
			result.Rows[row].Cells = slices.Insert(result.Rows[row].Cells, at, any(column.compute(result.Rows[row].Object.Object)))
		}
	}
	return result, nil
}

// newTable returns the table convertor of a kind. The only column of a kind that has none is its age.
func newTable(columns Columns, versionColumns map[string]Columns) (rest.TableConvertor, error) {
	if columns == nil {
		columns = Columns{Age}
	}
	out := table{versions: map[string]rest.TableConvertor{}}
	var err error
	if out.TableConvertor, err = newPrinter(columns); err != nil {
		return nil, err
	}
	for version, columns := range versionColumns {
		if out.versions[version], err = newPrinter(columns); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// ConvertToTable implements rest.TableConvertor.
func (t table) ConvertToTable(ctx context.Context, obj, tableOptions runtime.Object) (*metav1.Table, error) {
	if info, ok := request.RequestInfoFrom(ctx); ok && t.versions[info.APIVersion] != nil {
		return t.versions[info.APIVersion].ConvertToTable(ctx, obj, tableOptions)
	}
	return t.TableConvertor.ConvertToTable(ctx, obj, tableOptions)
}
