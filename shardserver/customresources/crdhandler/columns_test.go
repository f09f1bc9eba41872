package crdhandler

import (
	"context"
	"fmt"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
)

// countingConvertor counts the rows that the stock convertor makes, and cancels the request after the second.
type countingConvertor struct {
	rest.TableConvertor
	cancel context.CancelFunc
	rows   int
}

func (c *countingConvertor) ConvertToTable(ctx context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	table, err := c.TableConvertor.ConvertToTable(ctx, obj, options)
	if err == nil {
		c.rows += len(table.Rows)
	}
	if c.rows == 2 {
		c.cancel()
	}
	return table, err
}

func newTexts(n int, text string) *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{Object: map[string]any{"metadata": map[string]any{"resourceVersion": "7"}}}
	for i := range n {
		list.Items = append(list.Items, unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": fmt.Sprint("n", i)}, "text": text,
		}})
	}
	return list
}

func newStockConvertor(t *testing.T) rest.TableConvertor {
	t.Helper()
	column := apiextensionsv1.CustomResourceColumnDefinition{Name: "Text", Type: "string", JSONPath: ".text"}
	stock, err := tableconvertor.New([]apiextensionsv1.CustomResourceColumnDefinition{column, column, column})
	if err != nil {
		t.Fatal(err)
	}
	return stock
}

func TestTableEndsWithItsRequest(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	counting := &countingConvertor{newStockConvertor(t), cancel, 0}
	if _, err := (boundedTableConvertor{counting, 100}).ConvertToTable(ctx, newTexts(5, "a"), nil); !apierrors.IsTimeout(err) {
		t.Errorf("got %v, want Timeout", err)
	}
	if counting.rows != 2 {
		t.Errorf("%d rows were converted, although the request ended after the second", counting.rows)
	}
}

func TestTableOfAList(t *testing.T) {
	table, err := boundedTableConvertor{newStockConvertor(t), 100}.ConvertToTable(t.Context(), newTexts(2, "a"), nil)
	if err != nil || table.ResourceVersion != "7" || len(table.ColumnDefinitions) != 4 || len(table.Rows) != 2 || table.Rows[1].Cells[0] != "n1" || table.Rows[1].Cells[3] != "a" {
		t.Errorf("got %+v, %v", table, err)
	}
	if object, ok := table.Rows[1].Object.Object.(*unstructured.Unstructured); !ok || object.GetName() != "n1" {
		t.Errorf("the object of the row is %v", table.Rows[1].Object.Object)
	}
	table, err = boundedTableConvertor{newStockConvertor(t), 100}.ConvertToTable(t.Context(), newTexts(1, "a"), &metav1.TableOptions{NoHeaders: true})
	if err != nil || len(table.ColumnDefinitions) != 0 || len(table.Rows) != 1 {
		t.Errorf("without headers: %+v, %v", table, err)
	}
}

// Two bytes for the name, and 20 for the texts, of which the first has 16.
func TestTextsOfARowAreTruncated(t *testing.T) {
	table, err := boundedTableConvertor{newStockConvertor(t), 22}.ConvertToTable(t.Context(), newTexts(1, strings.Repeat("ä", 8)), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []any{"n0", strings.Repeat("ä", 8), "ää...", "..."}
	if got := table.Rows[0].Cells; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
