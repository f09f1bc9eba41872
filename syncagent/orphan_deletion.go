package syncagent

import (
	"context"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/syncagent/options"
	"github.com/atoll-dev/atoll/syncagent/syncer"
)

// confirm returns the candidates whose primary object no endpoint has. It sends one list request to each endpoint. It does not confirm a
// copy again that it has confirmed before and that the agent only reports.
func (o *orphans) confirm(ctx context.Context, connections []*endpointConnection, candidates []workspaces.Key) ([]workspaces.Key, error) {
	before := map[workspaces.Key]bool{}
	if o.config.OrphanPolicy != options.DeleteOrphans {
		for _, key := range o.found() {
			before[key] = true
		}
	}
	var confirmed []workspaces.Key
	unconfirmed := map[syncer.Source]workspaces.Key{}
	for _, key := range candidates {
		if before[key] {
			confirmed = append(confirmed, key)
			continue
		}
		object := o.copies.Get(key)
		if object == nil {
			continue
		}
		if source, ok := syncer.SourceOf(object); ok { // otherwise the copy does not identify its source
			unconfirmed[source] = key
		}
	}
	for _, connection := range connections {
		if len(unconfirmed) == 0 {
			break
		}
		err := eachSource(ctx, connection.Endpoint, o.workspaceResource, "", func(source syncer.Source) { delete(unconfirmed, source) })
		if err != nil {
			return nil, err
		}
	}
	confirmed = slices.AppendSeq(confirmed, maps.Values(unconfirmed))
	slices.SortFunc(confirmed, workspaces.Key.Compare)
	return confirmed, nil
}

// deleteOrphan deletes a copy and its state.
func (o *orphans) deleteOrphan(ctx context.Context, key workspaces.Key) error {
	object := o.copies.Get(key)
	if object == nil || object.GetDeletionTimestamp() != nil || !o.isOwn(object) || isIn(o.currentEndpoints(), o.copies.IndexOf(key)) {
		return nil
	}
	log.FromContext(ctx).Info("Deleting an orphan", "namespace", key.Namespace, "name", key.Name)
	done, err := syncer.New(o.syncerConfig()).DeleteOrphan(ctx, object)
	if err == nil && !done {
		o.trigger()
	}
	return err
}

// existsAt reports whether an endpoint has a primary object. It lists all workspaces, because a workspace that does not bind the export
// any more would refuse the request.
func existsAt(ctx context.Context, endpoint *workspaces.Endpoint, resource workspaces.Resource, source syncer.Source) (exists bool, err error) {
	selector := fields.Set{"metadata.name": source.Name}
	if source.Namespace != "" {
		selector["metadata.namespace"] = source.Namespace
	}
	err = eachSource(ctx, endpoint, resource, selector.String(), func(found syncer.Source) { exists = exists || found == source })
	return exists, err
}

// eachSource calls visit with all primary objects of an endpoint that match a field selector.
func eachSource(ctx context.Context, endpoint *workspaces.Endpoint, resource workspaces.Resource, fieldSelector string, visit func(syncer.Source)) error {
	client, err := endpoint.Metadata()
	if err != nil {
		return err
	}
	list := func(ctx context.Context, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
		options.FieldSelector = fieldSelector
		return client.Resource(resource.GroupVersionResource()).List(ctx, options)
	}
	err = listMetadata(ctx, list, "", func(object *metav1.PartialObjectMetadata) {
		visit(syncer.Source{Cluster: logicalcluster.Of(object), NamespacedName: types.NamespacedName{Namespace: object.Namespace, Name: object.Name}})
	})
	if err != nil {
		return fmt.Errorf("reading %s at %s: %w", resource.GroupVersionResource().GroupResource(), endpoint.URL, err)
	}
	return nil
}
