package apply

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// EnqueueNamespace is an event handler: when an object changes, all objects of the list's kind in its namespace are looked at. A
// namespace holds few of them, and most of its Secrets are theirs; references need no index this way.
func (c Cluster) EnqueueNamespace(kind client.ObjectList) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, changed client.Object) []reconcile.Request {
		list := kind.DeepCopyObject().(client.ObjectList)
		var out []reconcile.Request
		err := c.List(ctx, list, client.InNamespace(changed.GetNamespace()))
		if err == nil {
			err = meta.EachListItem(list, func(item runtime.Object) error {
				out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(item.(client.Object))})
				return nil
			})
		}
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "cannot list objects to wake them", "list", fmt.Sprintf("%T", kind), "namespace", changed.GetNamespace())
			return nil
		}
		return out
	})
}
