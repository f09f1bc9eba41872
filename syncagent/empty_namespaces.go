package syncagent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/internal/background"
	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/syncagent/publication"
)

// emptyNamespaces deletes namespaces that the agent has created when they become empty. The service may have created objects in them that
// must not be deleted, so the agent does not delete a namespace in which it cannot list all resources.
type emptyNamespaces struct {
	*dependencies
	metadata metadata.Interface
	wake     chan struct{}

	mu sync.Mutex
	// suspects are namespaces that may have become empty. The worker processes all of them together.
	suspects map[string]bool
}

func newEmptyNamespaces(d *dependencies, client metadata.Interface) *emptyNamespaces {
	return &emptyNamespaces{dependencies: d, metadata: client, wake: make(chan struct{}, 1), suspects: map[string]bool{}}
}

// check schedules a check of a namespace.
func (e *emptyNamespaces) check(namespace string) {
	if namespace == "" {
		return
	}
	e.mu.Lock()
	e.suspects[namespace] = true
	e.mu.Unlock()
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// Start implements manager.Runnable. It first checks all namespaces of the agent, because some may have become empty while no agent was
// running.
func (e *emptyNamespaces) Start(ctx context.Context) error {
	own := client.MatchingLabels{publication.LabelAgentName: e.config.AgentName}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := e.service.List(ctx, list, own); err != nil {
		e.log.Error(err, "Could not list the namespaces of the agent") // each is checked when a copy in it is deleted
	}
	for _, namespace := range list.Items {
		e.check(namespace.Name)
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-e.wake:
		}
		if !background.Sleep(ctx, e.orphanDelay) {
			return nil
		}
		e.mu.Lock()
		suspects := slices.Sorted(maps.Keys(e.suspects))
		clear(e.suspects)
		e.mu.Unlock()
		e.deleteEmpty(ctx, suspects)
	}
}

func (e *emptyNamespaces) deleteEmpty(ctx context.Context, suspects []string) {
	for _, name := range suspects {
		if err := e.deleteIfEmpty(ctx, name); err != nil {
			e.log.Info("A namespace is kept, because it may not be empty", "namespace", name, "reason", err.Error())
		}
	}
}

func (e *emptyNamespaces) deleteIfEmpty(ctx context.Context, name string) error {
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(namespaces.GroupVersionKind)
	if err := e.service.Get(ctx, client.ObjectKey{Name: name}, namespace); err != nil {
		return client.IgnoreNotFound(err)
	}
	if !createdByAgent(namespace, e.config.AgentName) || namespace.DeletionTimestamp != nil {
		return nil
	}
	empty, err := isEmpty(ctx, e.serviceDiscovery, e.metadata, name)
	if err != nil || !empty {
		return err
	}
	e.log.Info("Deleting an empty namespace", "namespace", name)
	return client.IgnoreNotFound(e.service.Delete(ctx, namespace, client.Preconditions{UID: &namespace.UID, ResourceVersion: &namespace.ResourceVersion}))
}

// createdByAgent reports whether the agent created a namespace for copies. A namespace that is itself a copy has the same label, and
// additional ones.
func createdByAgent(namespace metav1.Object, agentName string) bool {
	labels := namespace.GetLabels()
	return labels[publication.LabelAgentName] == agentName && labels[publication.LabelRemoteCluster] == ""
}

// isEmpty reports whether a namespace contains only the objects that every namespace contains.
func isEmpty(ctx context.Context, d discovery.DiscoveryInterface, client metadata.Interface, namespace string) (bool, error) {
	resources, err := listable(d)
	if err != nil {
		return false, err
	}
	for _, resource := range resources {
		if !resource.Namespaced || resource.Resource == "events" {
			continue
		}
		gvr := resource.GroupVersionResource()
		// Every namespace contains at most one such object of a resource, so a second one proves that the namespace is not empty.
		list, err := client.Resource(gvr).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: 2})
		if err != nil {
			return false, fmt.Errorf("listing %s: %w", gvr.GroupResource(), err)
		}
		if slices.ContainsFunc(list.Items, func(object metav1.PartialObjectMetadata) bool { return !isInEveryNamespace(resource, object.Name) }) {
			return false, nil
		}
	}
	return true, nil
}

// isInEveryNamespace reports whether a controller of Kubernetes creates an object in all namespaces.
func isInEveryNamespace(resource workspaces.Resource, name string) bool {
	return resource.Group == "" && (resource.Resource == "configmaps" && name == "kube-root-ca.crt" || resource.Resource == "serviceaccounts" && name == "default")
}
