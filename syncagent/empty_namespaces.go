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
	"github.com/atoll-dev/atoll/internal/endpoints"
	"github.com/atoll-dev/atoll/syncagent/publication"
)

// emptyNamespaces deletes namespaces that the agent has created when nothing is in them any more. The service may have put something
// there that has to stay, so a namespace in which the agent may not list everything is kept.
type emptyNamespaces struct {
	*dependencies
	metadata metadata.Interface
	wake     chan struct{}

	mu sync.Mutex
	// suspects are namespaces that may have become empty. The worker takes them all at once.
	suspects map[string]bool
}

func newEmptyNamespaces(d *dependencies, client metadata.Interface) *emptyNamespaces {
	return &emptyNamespaces{dependencies: d, metadata: client, wake: make(chan struct{}, 1), suspects: map[string]bool{}}
}

// check has a namespace looked at soon.
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

// Start implements manager.Runnable. What has become empty while no agent was running is looked at first.
func (e *emptyNamespaces) Start(ctx context.Context) error {
	own := client.MatchingLabels{publication.LabelAgentName: e.config.AgentName}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := e.service.List(ctx, list, own); err != nil {
		e.log.Error(err, "Could not list the namespaces of the agent") // they are looked at when a copy goes
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

// createdByAgent reports whether a namespace was created for copies. One that is a copy itself has the same label, and others.
func createdByAgent(namespace metav1.Object, agentName string) bool {
	labels := namespace.GetLabels()
	return labels[publication.LabelAgentName] == agentName && labels[publication.LabelRemoteCluster] == ""
}

// isEmpty reports whether a namespace has nothing but what every namespace has.
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
		// One more than what every namespace has.
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
func isInEveryNamespace(resource endpoints.Resource, name string) bool {
	return resource.Group == "" && (resource.Resource == "configmaps" && name == "kube-root-ca.crt" || resource.Resource == "serviceaccounts" && name == "default")
}
