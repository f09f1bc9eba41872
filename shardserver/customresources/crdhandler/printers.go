package crdhandler

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/networking/install" // kinds that are served by definitions only
	_ "k8s.io/kubernetes/pkg/apis/node/install"
	"k8s.io/kubernetes/pkg/printers"
	printersinternal "k8s.io/kubernetes/pkg/printers/internalversion"
	printerstorage "k8s.io/kubernetes/pkg/printers/storage"
)

// builtInTableConvertor prints tables of a kind of Kubernetes with Kubernetes' columns (contract 8.8), whatever columns the
// definition has.
type builtInTableConvertor struct {
	// TableConvertor prints objects that are not valid for that kind: a definition may have any schema.
	rest.TableConvertor
	kind schema.GroupVersionKind
}

// tableConvertor prints the kinds of Kubernetes, in their internal versions.
var tableConvertor = sync.OnceValue(func() rest.TableConvertor {
	return printerstorage.TableConvertor{TableGenerator: printers.NewTableGenerator().With(printersinternal.AddHandlers)}
})

// hasBuiltInPrinter returns whether a kind is one of Kubernetes.
func hasBuiltInPrinter(kind schema.GroupVersionKind) bool {
	return legacyscheme.Scheme.Recognizes(kind) && legacyscheme.Scheme.Recognizes(internalKind(kind, "List"))
}

func internalKind(kind schema.GroupVersionKind, suffix string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: kind.Group, Version: runtime.APIVersionInternal, Kind: kind.Kind + suffix}
}

// ConvertToTable implements rest.TableConvertor.
func (c builtInTableConvertor) ConvertToTable(ctx context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	table, err := c.printTable(ctx, obj, options)
	if err != nil {
		return c.TableConvertor.ConvertToTable(ctx, obj, options)
	}
	return table, nil
}

// printTable fails for everything but valid objects, and lists of objects, of the kind. Upstream's printers expect validated
// objects and may panic on others.
func (c builtInTableConvertor) printTable(ctx context.Context, obj, options runtime.Object) (table *metav1.Table, err error) {
	defer func() {
		if recovered := recover(); recovered != nil {
			err = fmt.Errorf("printing: %v", recovered)
		}
	}()
	var items []runtime.Object
	var printed runtime.Object
	switch obj := obj.(type) {
	case *unstructured.Unstructured:
		items = []runtime.Object{obj}
		printed, err = c.toInternal(obj)
	case *unstructured.UnstructuredList:
		for i := range obj.Items {
			items = append(items, &obj.Items[i])
		}
		printed, err = c.toInternalList(ctx, obj)
	default:
		err = fmt.Errorf("a %T is not of the kind", obj)
	}
	if err != nil {
		return nil, err
	}
	if table, err = tableConvertor().ConvertToTable(ctx, printed, options); err != nil {
		return nil, err
	}
	if len(table.Rows) != len(items) {
		return nil, fmt.Errorf("%d rows of %d objects", len(table.Rows), len(items))
	}
	for i := range table.Rows { // a table may include the objects, which are the served ones
		table.Rows[i].Object.Object = items[i]
	}
	return table, nil
}

// toInternal returns an object in the internal version of its kind.
func (c builtInTableConvertor) toInternal(obj *unstructured.Unstructured) (runtime.Object, error) {
	external, err := legacyscheme.Scheme.New(c.kind)
	if err != nil {
		return nil, err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, external); err != nil {
		return nil, err
	}
	return legacyscheme.Scheme.ConvertToVersion(external, internalKind(c.kind, "").GroupVersion())
}

// toInternalList returns a list in the internal version of its kind.
func (c builtInTableConvertor) toInternalList(ctx context.Context, list *unstructured.UnstructuredList) (runtime.Object, error) {
	items := make([]runtime.Object, 0, len(list.Items))
	for i := range list.Items {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		item, err := c.toInternal(&list.Items[i])
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	typed, err := legacyscheme.Scheme.New(internalKind(c.kind, "List"))
	if err != nil {
		return nil, err
	}
	accessor, err := meta.ListAccessor(typed)
	if err != nil {
		return nil, err
	}
	accessor.SetResourceVersion(list.GetResourceVersion())
	accessor.SetContinue(list.GetContinue())
	accessor.SetRemainingItemCount(list.GetRemainingItemCount())
	return typed, meta.SetList(typed, items)
}
