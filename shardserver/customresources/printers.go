package customresources

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
	_ "k8s.io/kubernetes/pkg/apis/networking/install" // kinds that only definitions bring
	_ "k8s.io/kubernetes/pkg/apis/node/install"
	"k8s.io/kubernetes/pkg/printers"
	printersinternal "k8s.io/kubernetes/pkg/printers/internalversion"
	printerstorage "k8s.io/kubernetes/pkg/printers/storage"
)

// builtinColumns prints tables of a kind that Kubernetes itself has as Kubernetes does (contract 8.8), whatever columns
// the definition lists.
type builtinColumns struct {
	// TableConvertor prints what is not a valid object of that kind: a definition may have any schema.
	rest.TableConvertor
	kind schema.GroupVersionKind
}

// generator prints the kinds of Kubernetes, in their internal versions.
var generator = sync.OnceValue(func() rest.TableConvertor {
	return printerstorage.TableConvertor{TableGenerator: printers.NewTableGenerator().With(printersinternal.AddHandlers)}
})

// printedByKubernetes tells whether Kubernetes knows a kind.
func printedByKubernetes(kind schema.GroupVersionKind) bool {
	return legacyscheme.Scheme.Recognizes(kind) && legacyscheme.Scheme.Recognizes(internal(kind, "List"))
}

func internal(kind schema.GroupVersionKind, suffix string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: kind.Group, Version: runtime.APIVersionInternal, Kind: kind.Kind + suffix}
}

// ConvertToTable implements rest.TableConvertor.
func (b builtinColumns) ConvertToTable(ctx context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	table, err := b.print(ctx, obj, options)
	if err != nil {
		return b.TableConvertor.ConvertToTable(ctx, obj, options)
	}
	return table, nil
}

// print fails for what is no object, or list of objects, of the kind. Upstream's printers expect what its validation lets
// through, and may panic over less.
func (b builtinColumns) print(ctx context.Context, obj, options runtime.Object) (table *metav1.Table, err error) {
	defer func() {
		if problem := recover(); problem != nil {
			err = fmt.Errorf("printing: %v", problem)
		}
	}()
	var items []runtime.Object
	var printed runtime.Object
	switch obj := obj.(type) {
	case *unstructured.Unstructured:
		items = []runtime.Object{obj}
		printed, err = b.typed(obj)
	case *unstructured.UnstructuredList:
		for i := range obj.Items {
			items = append(items, &obj.Items[i])
		}
		printed, err = b.typedList(obj)
	default:
		err = fmt.Errorf("a %T is not of the kind", obj)
	}
	if err != nil {
		return nil, err
	}
	if table, err = generator().ConvertToTable(ctx, printed, options); err != nil {
		return nil, err
	}
	if len(table.Rows) != len(items) {
		return nil, fmt.Errorf("%d rows of %d objects", len(table.Rows), len(items))
	}
	for i := range table.Rows { // clients may get the objects along, as they are served
		table.Rows[i].Object.Object = items[i]
	}
	return table, nil
}

// typed returns an object in the internal version of its kind.
func (b builtinColumns) typed(obj *unstructured.Unstructured) (runtime.Object, error) {
	external, err := legacyscheme.Scheme.New(b.kind)
	if err != nil {
		return nil, err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, external); err != nil {
		return nil, err
	}
	return legacyscheme.Scheme.ConvertToVersion(external, internal(b.kind, "").GroupVersion())
}

// typedList is typed for all items of a list.
func (b builtinColumns) typedList(list *unstructured.UnstructuredList) (runtime.Object, error) {
	items := make([]runtime.Object, 0, len(list.Items))
	for i := range list.Items {
		item, err := b.typed(&list.Items[i])
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	typed, err := legacyscheme.Scheme.New(internal(b.kind, "List"))
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
