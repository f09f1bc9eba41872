package cleanup

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/syncagent/publication"
	"github.com/atoll-dev/atoll/syncagent/servers"
	"github.com/atoll-dev/atoll/syncagent/state"
	"github.com/atoll-dev/atoll/syncagent/syncer"
)

// living contains what running synchronizations are responsible for, at all endpoints.
type living struct {
	// services and workspaces are the resources of PublishedResources that are synced.
	services, workspaces map[schema.GroupResource]bool
	// copies has the primary objects by the resource of their copies.
	copies map[schema.GroupResource]map[syncer.Source]bool
	// states are the names of the Secrets of primary objects, finalizers those on their related objects.
	states, finalizers map[string]bool
}

// leftover is an object that may have no running synchronization that is responsible for it.
type leftover struct {
	// describe returns one line for the user, or an empty string if a running synchronization is responsible for the object.
	describe func(*living) string
	remove   func(context.Context, *living) error
}

// findCopies finds copies on the service cluster.
func (c *command) findCopies(ctx context.Context) ([]leftover, error) {
	resources, err := servers.Listable(c.serviceDiscovery, "delete")
	if err != nil {
		return nil, err
	}
	var found []leftover
	for _, resource := range resources {
		gvr := resource.GroupVersionResource()
		selector := publication.LabelAgentName + "=" + c.config.AgentName + "," + publication.LabelRemoteNameHash
		err := workspaces.ListMetadata(ctx, c.serviceMetadata.Resource(gvr).List, selector, func(object *metav1.PartialObjectMetadata) {
			source, ok := syncer.SourceOf(object)
			if !ok {
				return
			}
			name, key := objectName(object), client.ObjectKeyFromObject(object)
			found = append(found, leftover{
				describe: func(alive *living) string {
					if alive.copies[gvr.GroupResource()][source] {
						return ""
					}
					reason := "no enabled PublishedResource syncs it"
					if alive.services[gvr.GroupResource()] {
						reason = "its source is in no workspace that binds the export"
					}
					return fmt.Sprintf("copy %s %s on the service cluster, of %s in logical cluster %s: %s", gvr.GroupResource(), name, source.NamespacedName, source.Cluster, reason)
				},
				remove: func(ctx context.Context, _ *living) error { return c.removeCopy(ctx, resource, key, source) },
			})
		})
		if client.IgnoreNotFound(err) != nil && !isNotListable(err) {
			return nil, fmt.Errorf("listing %s on the service cluster: %w", gvr.GroupResource(), err)
		}
	}
	return found, nil
}

// findStates finds states of primary objects of this agent. States of copies that the previous step has removed no longer exist.
func (c *command) findStates(ctx context.Context) ([]leftover, error) {
	var found []leftover
	secrets := c.serviceMetadata.Resource(workspaces.Secrets.GroupVersionResource()).Namespace(c.config.Namespace)
	err := workspaces.ListMetadata(ctx, secrets.List, state.Selector(c.config.AgentName), func(object *metav1.PartialObjectMetadata) {
		found = append(found, leftover{
			describe: func(alive *living) string {
				if alive.states[object.Name] {
					return ""
				}
				return fmt.Sprintf("state %s on the service cluster: its source is not synced", objectName(object))
			},
			remove: func(ctx context.Context, _ *living) error {
				if previous := state.PreviousName(object); previous != "" {
					if err := secrets.Delete(ctx, previous, metav1.DeleteOptions{}); client.IgnoreNotFound(err) != nil {
						return err
					}
				}
				return client.IgnoreNotFound(secrets.Delete(ctx, object.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &object.UID}}))
			},
		})
	})
	if err != nil {
		return nil, fmt.Errorf("listing states: %w", err)
	}
	return found, nil
}

// findFinalizers finds finalizers in the workspaces of an endpoint.
func (c *command) findFinalizers(ctx context.Context, endpoint *workspaces.Endpoint, exported map[schema.GroupResource]bool) ([]leftover, error) {
	discovery, err := endpoint.Discovery()
	if err != nil {
		return nil, err
	}
	resources, err := servers.Listable(discovery, "patch")
	if err != nil {
		return nil, err
	}
	metadata, err := endpoint.Metadata()
	if err != nil {
		return nil, err
	}
	var found []leftover
	for _, resource := range resources {
		gvr := resource.GroupVersionResource()
		isOurs := func(finalizer string) bool {
			return finalizer == publication.Finalizer && exported[gvr.GroupResource()] || syncer.IsRelatedFinalizer(c.config.AgentName, finalizer)
		}
		isLeft := func(alive *living, finalizer string) bool {
			if finalizer == publication.Finalizer {
				return isOurs(finalizer) && !alive.workspaces[gvr.GroupResource()]
			}
			return isOurs(finalizer) && !alive.finalizers[finalizer]
		}
		err := workspaces.ListMetadata(ctx, metadata.Resource(gvr).List, "", func(object *metav1.PartialObjectMetadata) {
			if !slices.ContainsFunc(object.Finalizers, isOurs) {
				return
			}
			cluster := logicalcluster.Of(object)
			found = append(found, leftover{
				describe: func(alive *living) string {
					if !slices.ContainsFunc(object.Finalizers, func(finalizer string) bool { return isLeft(alive, finalizer) }) {
						return ""
					}
					return fmt.Sprintf("finalizer of %s %s in logical cluster %s: nothing of the agent depends on it", gvr.GroupResource(), objectName(object), cluster)
				},
				remove: func(ctx context.Context, alive *living) error {
					return releaseFinalizers(ctx, endpoint, resource, cluster, client.ObjectKeyFromObject(object), func(finalizers []string) []string {
						maybePrimary := resource.Group != "" || exported[gvr.GroupResource()]
						return syncer.WithoutRelatedFinalizers(finalizers, func(finalizer string) bool { return isLeft(alive, finalizer) }, maybePrimary)
					})
				},
			})
		})
		if client.IgnoreNotFound(err) != nil && !isNotListable(err) {
			return nil, fmt.Errorf("listing %s at %s: %w", gvr.GroupResource(), endpoint.URL, err)
		}
	}
	return found, nil
}

// releaseFinalizers removes finalizers from an object of a workspace.
func releaseFinalizers(ctx context.Context, endpoint *workspaces.Endpoint, resource workspaces.Resource, cluster logicalcluster.Name, key types.NamespacedName, remaining func([]string) []string) error {
	clients, err := endpoint.Clients(servers.Scheme, resource)
	if err != nil {
		return err
	}
	workspace := clients.Client(cluster)
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(resource.GroupVersionKind)
	if err := workspace.Get(ctx, key, object); err != nil {
		return client.IgnoreNotFound(err)
	}
	before := object.DeepCopy()
	object.SetFinalizers(remaining(object.GetFinalizers()))
	return client.IgnoreNotFound(workspace.Patch(ctx, object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
}

func objectName(object metav1.Object) string {
	return strings.TrimPrefix(object.GetNamespace()+"/"+object.GetName(), "/")
}
