package sync

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
	"github.com/atoll-dev/atoll/syncagent/servers"
)

// emptyNamespaces deletes namespaces that the agent has created when they become empty. The service may have created objects in them that
// must not be deleted, so the agent does not delete a namespace in which it cannot list all resources.
type emptyNamespaces struct {
	shared   *shared
	metadata metadata.Interface
	wake     background.Signal

	mu sync.Mutex
	// suspects are namespaces that may have become empty. The worker processes all of them together.
	suspects map[string]bool
}

func newEmptyNamespaces(d *shared, client metadata.Interface) *emptyNamespaces {
	return &emptyNamespaces{shared: d, metadata: client, wake: background.NewSignal(), suspects: map[string]bool{}}
}

// check schedules a check of a namespace.
func (n *emptyNamespaces) check(namespace string) {
	if namespace == "" {
		return
	}
	n.mu.Lock()
	n.suspects[namespace] = true
	n.mu.Unlock()
	n.wake.Set()
}

// Start implements manager.Runnable. It first checks all namespaces of the agent, because some may have become empty while no agent was
// running.
func (n *emptyNamespaces) Start(ctx context.Context) error {
	own := client.MatchingLabels{publication.LabelAgentName: n.shared.config.AgentName}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := n.shared.service.List(ctx, list, own); err != nil {
		n.shared.log.Error(err, "Failed to list the namespaces of the agent") // each is checked when a copy in it is deleted
	}
	for _, namespace := range list.Items {
		n.check(namespace.Name)
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-n.wake:
		}
		if !background.Sleep(ctx, n.shared.orphanDelay) {
			return nil
		}
		n.mu.Lock()
		suspects := slices.Sorted(maps.Keys(n.suspects))
		clear(n.suspects)
		n.mu.Unlock()
		n.deleteEmpty(ctx, suspects)
	}
}

func (n *emptyNamespaces) deleteEmpty(ctx context.Context, suspects []string) {
	for _, name := range suspects {
		if err := n.deleteIfEmpty(ctx, name); err != nil {
			n.shared.log.Info("Not deleting a namespace, because it may not be empty", "namespace", name, "err", err)
		}
	}
}

func (n *emptyNamespaces) deleteIfEmpty(ctx context.Context, name string) error {
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(workspaces.Namespaces.GroupVersionKind)
	if err := n.shared.service.Get(ctx, client.ObjectKey{Name: name}, namespace); err != nil {
		return client.IgnoreNotFound(err)
	}
	if !createdByAgent(namespace, n.shared.config.AgentName) || namespace.DeletionTimestamp != nil {
		return nil
	}
	empty, err := isEmpty(ctx, n.shared.serviceDiscovery, n.metadata, name)
	if err != nil || !empty {
		return err
	}
	n.shared.log.Info("Deleting an empty namespace", "namespace", name)
	return client.IgnoreNotFound(n.shared.service.Delete(ctx, namespace, client.Preconditions{UID: &namespace.UID, ResourceVersion: &namespace.ResourceVersion}))
}

// createdByAgent reports whether the agent created a namespace for copies. A namespace that is itself a copy has the same label, and
// additional ones.
func createdByAgent(namespace metav1.Object, agentName string) bool {
	labels := namespace.GetLabels()
	return labels[publication.LabelAgentName] == agentName && labels[publication.LabelRemoteCluster] == ""
}

// isEmpty reports whether a namespace contains only the objects that every namespace contains.
func isEmpty(ctx context.Context, d discovery.DiscoveryInterface, client metadata.Interface, namespace string) (bool, error) {
	resources, err := servers.Listable(d)
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
