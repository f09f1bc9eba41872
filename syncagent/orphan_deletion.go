package syncagent

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/syncagent/endpoints"
	"github.com/atoll-dev/atoll/syncagent/informer"
	"github.com/atoll-dev/atoll/syncagent/publication"
	"github.com/atoll-dev/atoll/syncagent/syncer"
)

// deleteOrphan deletes a copy and its state, if every endpoint confirms that its primary object is gone.
func (o *orphans) deleteOrphan(ctx context.Context, key informer.Key) error {
	object := o.copies.Get(key)
	if object == nil || object.GetDeletionTimestamp() != nil {
		return nil
	}
	source, ok := syncer.SourceOf(object)
	if !ok {
		return nil // it does not say of what it is a copy
	}
	connections := o.known.all()
	if len(connections) == 0 {
		return nil // nobody can confirm
	}
	for _, endpoint := range connections {
		exists, err := existsAt(ctx, endpoint.Endpoint, o.workspaceResource, source)
		if err != nil || exists {
			return err
		}
	}
	log.FromContext(ctx).Info("Deleting an orphan", "namespace", key.Namespace, "name", key.Name, "cluster", source.Cluster)
	done, err := syncer.New(o.syncerConfig()).DeleteOrphan(ctx, object)
	if err == nil && !done {
		o.trigger()
	}
	return err
}

// existsAt asks an endpoint whether a primary object exists. A workspace that is not bound any more would refuse to be asked, so all are.
func existsAt(ctx context.Context, endpoint *endpoints.Endpoint, resource publication.Resource, source syncer.Source) (bool, error) {
	dynamic, err := endpoint.Dynamic()
	if err != nil {
		return false, err
	}
	selector := fields.Set{"metadata.name": source.Name}
	if source.Namespace != "" {
		selector["metadata.namespace"] = source.Namespace
	}
	list, err := dynamic.Resource(resource.GroupVersionResource()).List(ctx, metav1.ListOptions{FieldSelector: selector.String()})
	if err != nil {
		return false, fmt.Errorf("asking %s for %s: %w", endpoint.URL, source.NamespacedName, err)
	}
	for i := range list.Items {
		if logicalcluster.Of(&list.Items[i]) == source.Cluster {
			return true, nil
		}
	}
	return false, nil
}
