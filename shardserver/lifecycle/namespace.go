package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/controller/namespace/deletion"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/lifecycle/content"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// settlePeriod is the minimum time between the deletion of a namespace and its removal. Create requests that were
// admitted before the deletion, or by a replica that had not received it yet, complete within this time. Upstream uses
// 5 seconds.
const settlePeriod = 2 * time.Second

// namespaceWorkers is the number of namespaces that are emptied concurrently. Workers mostly wait for watch caches.
const namespaceWorkers = 32

// namespaceController empties and finalizes terminating namespaces with upstream's deleter, whose clients take the
// logical cluster from the context. A deleter is created for each reconcile because its discovery function has no
// context.
type namespaceController struct {
	cfg        Config
	namespaces *storage.Reader[*core.Namespace]
	clusters   *storage.Reader[*corev1alpha1.LogicalCluster]
}

func newNamespaceController(cfg Config) controller.Controller {
	c := &namespaceController{
		cfg:        cfg,
		namespaces: storage.NewReader[*core.Namespace](cfg.Registry, namespaces),
		clusters:   storage.NewReader[*corev1alpha1.LogicalCluster](cfg.Registry, corev1alpha1.Resource("logicalclusters")),
	}
	return controller.Controller{
		Name:                    "namespace",
		Sources:                 []controller.Source{{Resource: namespaces, MapFunc: terminatingKey}},
		MaxConcurrentReconciles: namespaceWorkers,
		Reconcile:               c.reconcile,
	}
}

func terminatingKey(event watch.Event) []controller.Request {
	namespace, ok := event.Object.(*core.Namespace)
	if !ok || namespace.DeletionTimestamp == nil || event.Type == watch.Deleted || len(namespace.Spec.Finalizers) == 0 {
		return nil
	}
	return controller.RequestForObject(event)
}

func (c *namespaceController) reconcile(ctx context.Context, key controller.Request) (controller.Result, error) {
	resources, err := c.namespacedResources(ctx)
	if err != nil {
		return controller.Result{}, fmt.Errorf("emptying namespace %q: %w", key.Name, err)
	}
	ctx, wait, done, err := c.prepare(ctx, key.Name, resources)
	if err != nil {
		return controller.Result{}, fmt.Errorf("emptying namespace %q: %w", key.Name, err)
	}
	if done || wait > 0 {
		return controller.Result{RequeueAfter: wait}, nil
	}
	deleter := deletion.NewNamespacedResourcesDeleter(ctx, c.cfg.Clients.Kubernetes.CoreV1().Namespaces(), skipEmptyClient{c.cfg.Clients.Metadata},
		c.cfg.Clients.Kubernetes.CoreV1(), func() ([]*metav1.APIResourceList, error) { return resourceLists(resources), nil }, corev1.FinalizerKubernetes)
	err = deleter.Delete(ctx, key.Name)
	var remaining *deletion.ResourcesRemainingError
	switch {
	case errors.As(err, &remaining):
		return controller.Result{RequeueAfter: time.Duration(remaining.Estimate)*time.Second/2 + time.Second}, nil
	case err != nil:
		return controller.Result{}, fmt.Errorf("emptying namespace %q: %w", key.Name, err)
	}
	return controller.Result{}, nil
}

// prepare deletes the objects in a namespace according to the watch cache. If none are left, it finalizes the namespace
// (done), without the conditions that the deleter would write first. Otherwise it returns a context with the resources
// that have no objects, which spares the deleter two requests for each. wait is set while the settle period lasts.
//
// A resource without objects stays so, as nothing can be created in a namespace whose phase is Terminating.
func (c *namespaceController) prepare(ctx context.Context, name string, resources []*storage.Resource) (_ context.Context, wait time.Duration, done bool, err error) {
	namespace, err := c.namespaces.Get(ctx, "", name)
	if apierrors.IsNotFound(err) || (err == nil && namespace.Status.Phase != core.NamespaceTerminating) {
		return ctx, 0, false, nil
	}
	if err != nil {
		return nil, 0, false, err
	}
	if _, err := content.Delete(ctx, c.cfg.Clients.Metadata, resources, name, content.Cached, nil); err != nil {
		return nil, 0, false, err
	}
	if wait, err := c.settleDelay(ctx, namespace, time.Now()); err != nil || wait > 0 {
		return ctx, wait, false, err
	}
	empty, err := content.FindEmpty(ctx, c.cfg.Keys, resources, name)
	if err != nil {
		return nil, 0, false, err
	}
	if len(namespace.Finalizers) == 0 && allEmpty(empty) {
		return ctx, 0, true, c.finalize(ctx, namespace)
	}
	return context.WithValue(ctx, emptyResourcesKey{}, empty), 0, false, nil
}

// settleDelay returns the rest of the settle period of a namespace. It is zero if the logical cluster is being deleted,
// because the last step of that finds all remaining objects.
func (c *namespaceController) settleDelay(ctx context.Context, namespace *core.Namespace, now time.Time) (time.Duration, error) {
	if namespace.DeletionTimestamp == nil {
		return 0, nil
	}
	cluster, err := c.clusters.Get(ctx, "", corev1alpha1.LogicalClusterName)
	if apierrors.IsNotFound(err) || err == nil && cluster.DeletionTimestamp != nil {
		return 0, nil
	}
	return remainingSettlePeriod(ctx, now.Sub(namespace.DeletionTimestamp.Time)), err
}

// remainingSettlePeriod returns the rest of the settle period of a namespace that was deleted age ago. A negative age
// means that the clock of another replica is ahead, so that the age cannot be used: the function then waits for the
// whole period.
func remainingSettlePeriod(ctx context.Context, age time.Duration) time.Duration {
	if age >= -settlePeriod {
		return settlePeriod - age
	}
	select {
	case <-ctx.Done():
	case <-time.After(settlePeriod):
	}
	return 0
}

func allEmpty(empty map[schema.GroupVersionResource]bool) bool {
	for _, isEmpty := range empty {
		if !isEmpty {
			return false
		}
	}
	return true
}

// finalize removes the finalizer of a namespace without objects.
func (c *namespaceController) finalize(ctx context.Context, namespace *core.Namespace) error {
	external := &corev1.Namespace{ObjectMeta: *namespace.ObjectMeta.DeepCopy()}
	for _, finalizer := range namespace.Spec.Finalizers {
		if finalizer != core.FinalizerKubernetes {
			external.Spec.Finalizers = append(external.Spec.Finalizers, corev1.FinalizerName(finalizer))
		}
	}
	_, err := c.cfg.Clients.Kubernetes.CoreV1().Namespaces().Finalize(ctx, external, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("finalizing it: %w", err)
	}
	return nil
}

// namespacedResources returns the namespaced resources of the context's logical cluster. Upstream's deleter exits the
// process if there are none, but config maps are built in.
func (c *namespaceController) namespacedResources(ctx context.Context) ([]*storage.Resource, error) {
	all, err := c.cfg.Registry.List(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(resource *storage.Resource) bool { return !resource.Namespaced || !resource.Deletable }), nil
}

// resourceLists describes resources as discovery would.
func resourceLists(resources []*storage.Resource) []*metav1.APIResourceList {
	var lists []*metav1.APIResourceList
	for _, resource := range resources {
		if !resource.Namespaced || !resource.Deletable {
			continue
		}
		verbs := metav1.Verbs{"list", "delete"}
		if _, ok := resource.Store.(rest.CollectionDeleter); ok {
			verbs = append(verbs, "deletecollection")
		}
		groupVersion := resource.GVR.GroupVersion().String()
		at := slices.IndexFunc(lists, func(list *metav1.APIResourceList) bool { return list.GroupVersion == groupVersion })
		if at < 0 {
			at = len(lists)
			lists = append(lists, &metav1.APIResourceList{GroupVersion: groupVersion})
		}
		lists[at].APIResources = append(lists[at].APIResources, metav1.APIResource{
			Name: resource.GVR.Resource, Kind: resource.Kind.Kind, Namespaced: true, Verbs: verbs,
		})
	}
	return lists
}
