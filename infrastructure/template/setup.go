package template

import (
	"context"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/template/export"
)

const (
	// workers is the number of Templates that are reconciled concurrently, so that a slow backend does not block others.
	workers = 8
	// reconcileTimeout bounds one reconciliation of a Template.
	reconcileTimeout = 2 * time.Minute
	// indexName is the index of Templates by the names that must be unique.
	indexName = "name"
)

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	index := func(object client.Object) []string {
		return namesOf(&object.(*infrastructurev1alpha1.Template).Spec.InstanceCRD) // kinds begin with a capital
	}
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &infrastructurev1alpha1.Template{}, indexName, index); err != nil {
		return err
	}
	if err := mgr.Add(observed.during(mgr.GetCache())); err != nil {
		return err
	}
	gone := predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false }, UpdateFunc: func(event.UpdateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("template").
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, ReconciliationTimeout: reconcileTimeout, RecoverPanic: ptr.To(true)}).
		For(&infrastructurev1alpha1.Template{}, builder.WithPredicates(predicate.Or(
			predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, predicate.LabelChangedPredicate{}))).
		// When a Template is gone, another one may take its names.
		Watches(&infrastructurev1alpha1.Template{}, handler.EnqueueRequestsFromMapFunc(r.rivals), builder.WithPredicates(gone)).
		Watches(&apiextensionsv1.CustomResourceDefinition{}, handler.EnqueueRequestsFromMapFunc(r.ofDefinition)).
		Watches(&infrastructurev1alpha1.Catalogue{}, handler.EnqueueRequestsFromMapFunc(r.all)).
		// The generation changes when somebody edits an entry or deletes the export.
		Watches(&apisv1alpha2.APIExport{}, r.ofEntries(), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(r)
}

// rivals returns the requests for the Templates that want a name of another one.
func (r *Reconciler) rivals(ctx context.Context, object client.Object) []reconcile.Request {
	var requests []reconcile.Request
	for _, name := range namesOf(&object.(*infrastructurev1alpha1.Template).Spec.InstanceCRD) {
		requests = append(requests, r.requests(ctx, client.MatchingFields{indexName: name})...)
	}
	return requests
}

// ofDefinition returns the requests for the Templates that want the resource of a CRD.
func (r *Reconciler) ofDefinition(ctx context.Context, object client.Object) []reconcile.Request {
	definition := object.(*apiextensionsv1.CustomResourceDefinition)
	if definition.Spec.Group != r.Group {
		return nil
	}
	return r.requests(ctx, client.MatchingFields{indexName: definition.Spec.Names.Plural})
}

// ofEntries enqueues the Templates whose entries of an export have changed. When the export is being deleted, it enqueues all Templates,
// because the export cannot list any.
func (r *Reconciler) ofEntries() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	enqueue := func(q queue, requests []reconcile.Request) {
		for _, request := range requests {
			q.Add(request)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { enqueue(q, r.all(ctx, e.Object)) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { enqueue(q, r.all(ctx, e.Object)) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, after := e.ObjectOld.(*apisv1alpha2.APIExport), e.ObjectNew.(*apisv1alpha2.APIExport)
			if !before.DeletionTimestamp.Equal(after.DeletionTimestamp) {
				enqueue(q, r.all(ctx, after))
				return
			}
			for _, resource := range export.ChangedEntries(before.Spec.Resources, after.Spec.Resources, r.Group) {
				enqueue(q, r.requests(ctx, client.MatchingFields{indexName: resource}))
			}
		},
	}
}

// all returns the requests for all Templates.
func (r *Reconciler) all(ctx context.Context, _ client.Object) []reconcile.Request {
	return r.requests(ctx)
}

func (r *Reconciler) requests(ctx context.Context, options ...client.ListOption) []reconcile.Request {
	var list infrastructurev1alpha1.TemplateList
	if err := r.Client.List(ctx, &list, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Failed to list templates")
		return nil
	}
	requests := make([]reconcile.Request, len(list.Items))
	for i := range list.Items {
		requests[i].Name = list.Items[i].Name
	}
	return requests
}
