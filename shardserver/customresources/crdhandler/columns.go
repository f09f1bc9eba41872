package crdhandler

import (
	"context"
	"slices"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
)

// boundedTableConvertor converts one row at a time, so that a table ends with its request, and no row is much larger than its object.
type boundedTableConvertor struct {
	rest.TableConvertor
	// rowBytes bounds the texts of a row.
	rowBytes int
}

// ConvertToTable implements rest.TableConvertor.
func (c boundedTableConvertor) ConvertToTable(ctx context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	list, ok := obj.(*unstructured.UnstructuredList)
	if !ok {
		return c.convert(ctx, obj, options)
	}
	// An empty list has the header of the table, and its position.
	table, err := c.convert(ctx, &unstructured.UnstructuredList{Object: list.Object}, options)
	if err != nil {
		return nil, err
	}
	table.Rows = slices.Grow(table.Rows, len(list.Items))
	for i := range list.Items {
		if ctx.Err() != nil {
			return nil, apierrors.NewTimeoutError("the request ended before the table was complete", 0)
		}
		row, err := c.convert(ctx, &list.Items[i], &metav1.TableOptions{NoHeaders: true})
		if err != nil {
			return nil, err
		}
		table.Rows = append(table.Rows, row.Rows...)
	}
	return table, nil
}

func (c boundedTableConvertor) convert(ctx context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	table, err := c.TableConvertor.ConvertToTable(ctx, obj, options)
	if err != nil {
		return nil, err
	}
	for i := range table.Rows {
		truncateTexts(table.Rows[i].Cells, c.rowBytes)
	}
	return table, nil
}

// truncated replaces the end of a text that is too long.
const truncated = "..."

// truncateTexts shortens texts, so that the texts of a row have at most that many bytes, and a mark for each that is shortened.
func truncateTexts(cells []any, limit int) {
	for i, cell := range cells {
		text, ok := cell.(string)
		if !ok {
			continue
		}
		if len(text) > limit {
			end := limit
			for end > 0 && !utf8.RuneStart(text[end]) {
				end--
			}
			// A copy, because a slice would keep the whole text in memory.
			cells[i] = string([]byte(text[:end])) + truncated
			limit = 0
			continue
		}
		limit -= len(text)
	}
}
