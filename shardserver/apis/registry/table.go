package registry

import (
	"context"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Columns are the printed columns after the name.
type Columns []apiextensionsv1.CustomResourceColumnDefinition

// Column returns a column of type string with the value at a JSON path.
func Column(name, jsonPath string) apiextensionsv1.CustomResourceColumnDefinition {
	return apiextensionsv1.CustomResourceColumnDefinition{Name: name, Type: "string", JSONPath: jsonPath}
}

// LabelColumn returns a column with the value of a label.
func LabelColumn(name, label string) apiextensionsv1.CustomResourceColumnDefinition {
	return Column(name, fmt.Sprintf(".metadata.labels['%s']", label))
}

// Age is the column with the age of an object.
var Age = apiextensionsv1.CustomResourceColumnDefinition{
	Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp",
	Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"],
}

// table prints the columns of the requested version, as the stock convertor of custom resources prints them.
type table struct {
	rest.TableConvertor
	versions map[string]rest.TableConvertor
}

// newTable returns the table convertor of a kind. The only column of a kind that has none is its age.
func newTable(columns Columns, versionColumns map[string]Columns) (rest.TableConvertor, error) {
	if columns == nil {
		columns = Columns{Age}
	}
	printer := table{versions: map[string]rest.TableConvertor{}}
	var err error
	if printer.TableConvertor, err = tableconvertor.New(columns); err != nil {
		return nil, err
	}
	for version, columns := range versionColumns {
		if printer.versions[version], err = tableconvertor.New(columns); err != nil {
			return nil, err
		}
	}
	return printer, nil
}

// ConvertToTable implements rest.TableConvertor.
func (t table) ConvertToTable(ctx context.Context, obj, tableOptions runtime.Object) (*metav1.Table, error) {
	if info, ok := request.RequestInfoFrom(ctx); ok && t.versions[info.APIVersion] != nil {
		return t.versions[info.APIVersion].ConvertToTable(ctx, obj, tableOptions)
	}
	return t.TableConvertor.ConvertToTable(ctx, obj, tableOptions)
}
