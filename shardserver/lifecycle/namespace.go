package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/controller/namespace/deletion"

	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// namespaceController empties and finalizes namespaces that are being deleted. Upstream's deleter does the work; its
// clients take the cluster from the context, so that one serves all.
type namespaceController struct {
	cfg Config

	once    sync.Once
	deleter deletion.NamespacedResourcesDeleterInterface
}

func newNamespaceController(cfg Config) controller.Controller {
	c := &namespaceController{cfg: cfg}
	return controller.Controller{
		Name:      "namespace",
		Inputs:    []controller.Input{{Resource: namespaces, Keys: terminating}},
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
	// The deleter asks for the resources once when it is built and ends the process if there are none. There are some
	// now: a namespace led here.
	c.once.Do(func() {
		c.deleter = deletion.NewNamespacedResourcesDeleter(ctx, c.cfg.Clients.Kubernetes.CoreV1().Namespaces(), c.cfg.Clients.Metadata,
			c.cfg.Clients.Kubernetes.CoreV1(), c.namespacedResources, corev1.FinalizerKubernetes)
	})
	err := c.deleter.Delete(ctx, key.Name)
	var remaining *deletion.ResourcesRemainingError
	switch {
	case errors.As(err, &remaining):
		return controller.Result{RequeueAfter: time.Duration(remaining.Estimate)*time.Second/2 + time.Second}, nil
	case err != nil:
		return controller.Result{}, fmt.Errorf("emptying namespace %q: %w", key.Name, err)
	}
	return controller.Result{}, nil
}

// namespacedResources lists what the shard stores inside namespaces, as discovery would, for all clusters alike: a
// resource that a cluster does not show cannot have objects there.
func (c *namespaceController) namespacedResources() ([]*metav1.APIResourceList, error) {
	return resourceLists(c.cfg.Registry.All()), nil
}

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
