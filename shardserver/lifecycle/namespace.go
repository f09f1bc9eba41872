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

// settling is how long a namespace is kept after its deletion, to the second: requests that were admitted before it, by
// this replica or by one that learns of it a moment later, have written by then. Upstream keeps it for five.
const settling = 2 * time.Second

// namespaceWorkers is how many namespaces are emptied at once. They mostly wait for watch caches to catch up.
const namespaceWorkers = 32

// namespaceController empties and finalizes namespaces that are being deleted. Upstream's deleter does the work; its
// clients take the cluster from the context. It is made for each pass, which costs next to nothing, because the function
// that tells it what the logical cluster serves has no context.
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
		Name:      "namespace",
		Inputs:    []controller.Input{{Resource: namespaces, Keys: terminating}},
		Workers:   namespaceWorkers,
		Reconcile: c.reconcile,
	}
}

func terminating(event watch.Event) []controller.Key {
	namespace, ok := event.Object.(*core.Namespace)
	if !ok || namespace.DeletionTimestamp == nil || event.Type == watch.Deleted || len(namespace.Spec.Finalizers) == 0 {
		return nil
	}
	return controller.ObjectKey(event)
}

func (c *namespaceController) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
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
	deleter := deletion.NewNamespacedResourcesDeleter(ctx, c.cfg.Clients.Kubernetes.CoreV1().Namespaces(), knowing{c.cfg.Clients.Metadata},
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

// prepare deletes what the watch cache knows to be in a namespace. If nothing is left it lets go of the namespace at
// once; the deleter would write conditions first that nobody has time to read. Otherwise it returns a context that says
// which resources hold nothing any more: the deleter would send two requests for each to find that out, one after the
// other. It returns how long to wait before any of that, if the namespace has to settle.
//
// What is empty stays so: nothing can be created in a namespace whose phase is Terminating, and only then is it looked at.
func (c *namespaceController) prepare(ctx context.Context, name string, resources []*storage.Resource) (_ context.Context, wait time.Duration, done bool, err error) {
	namespace, err := c.namespaces.Get(ctx, "", name)
	if apierrors.IsNotFound(err) || (err == nil && namespace.Status.Phase != core.NamespaceTerminating) {
		return ctx, 0, false, nil
	}
	if err != nil {
		return nil, 0, false, err
	}
	if _, err := content.Delete(ctx, c.cfg.Clients.Metadata, resources, name, content.Cached); err != nil {
		return nil, 0, false, err
	}
	if wait, err := c.settles(ctx, namespace, time.Now()); err != nil || wait > 0 {
		return ctx, wait, false, err
	}
	empty, err := content.Empty(ctx, c.cfg.Keys, resources, name)
	if err != nil {
		return nil, 0, false, err
	}
	if len(namespace.Finalizers) == 0 && allEmpty(empty) {
		return ctx, 0, true, c.finalize(ctx, namespace)
	}
	return context.WithValue(ctx, emptyKey{}, empty), 0, false, nil
}

// settles returns how long to wait until nothing that was admitted before the deletion can be written any more. Where the
// logical cluster goes as a whole nobody waits: whatever is left of it is found in the end.
func (c *namespaceController) settles(ctx context.Context, namespace *core.Namespace, now time.Time) (time.Duration, error) {
	if namespace.DeletionTimestamp == nil {
		return 0, nil
	}
	cluster, err := c.clusters.Get(ctx, "", corev1alpha1.LogicalClusterName)
	if apierrors.IsNotFound(err) || err == nil && cluster.DeletionTimestamp != nil {
		return 0, nil
	}
	return settled(ctx, now.Sub(namespace.DeletionTimestamp.Time)), err
}

// settled returns how much longer a namespace of an age has to settle. One from the future was deleted through a replica
// whose clock is ahead, so that its age says nothing, and goes on saying so: it settles here and now.
func settled(ctx context.Context, age time.Duration) time.Duration {
	if age >= -settling {
		return settling - age
	}
	select {
	case <-ctx.Done():
	case <-time.After(settling):
	}
	return 0
}

func allEmpty(empty map[schema.GroupVersionResource]bool) bool {
	for _, is := range empty {
		if !is {
			return false
		}
	}
	return true
}

// finalize takes the finalizer off a namespace that holds nothing, which ends it.
func (c *namespaceController) finalize(ctx context.Context, namespace *core.Namespace) error {
	external := &corev1.Namespace{ObjectMeta: *namespace.ObjectMeta.DeepCopy()}
	for _, finalizer := range namespace.Spec.Finalizers {
		if finalizer != core.FinalizerKubernetes {
			external.Spec.Finalizers = append(external.Spec.Finalizers, corev1.FinalizerName(finalizer))
		}
	}
	_, err := c.cfg.Clients.Kubernetes.CoreV1().Namespaces().Finalize(ctx, external, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("letting go of it: %w", err)
	}
	return nil
}

// namespacedResources returns what the logical cluster of the context stores inside namespaces. Upstream's deleter ends
// the process if there is nothing at all, which cannot be: config maps are compiled in.
func (c *namespaceController) namespacedResources(ctx context.Context) ([]*storage.Resource, error) {
	all, err := c.cfg.Registry.In(ctx)
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
