package store

import (
	"context"

	metatable "k8s.io/apimachinery/pkg/api/meta/table"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// ConvertToTable implements rest.TableConvertor: columns show shard and cluster, since names are not unique.
func (s *Store) ConvertToTable(_ context.Context, object, options runtime.Object) (*metav1.Table, error) {
	table := &metav1.Table{}
	if given, ok := options.(*metav1.TableOptions); !ok || !given.NoHeaders {
		table.ColumnDefinitions = []metav1.TableColumnDefinition{
			{Name: "Name", Type: "string", Format: "name", Description: "Name of the object"},
			{Name: "Shard", Type: "string", Description: "Shard that published it"},
			{Name: "Cluster", Type: "string", Description: "Logical cluster of the object"},
			{Name: "Age", Type: "date", Description: "Creation time of the original"},
		}
	}
	switch given := object.(type) {
	case *unstructured.UnstructuredList:
		table.ResourceVersion = given.GetResourceVersion()
		table.Continue, table.RemainingItemCount = given.GetContinue(), given.GetRemainingItemCount()
	case *unstructured.Unstructured:
		table.ResourceVersion = given.GetResourceVersion()
	}
	var err error
	table.Rows, err = metatable.MetaToTableRow(object, func(_ runtime.Object, m metav1.Object, name, age string) ([]any, error) {
		annotations := m.GetAnnotations()
		return []any{name, annotations[client.ShardAnnotation], annotations[logicalcluster.AnnotationKey], age}, nil
	})
	return table, err
}
