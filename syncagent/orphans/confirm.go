package orphans

import (
	"context"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/syncagent/options"
	"github.com/atoll-dev/atoll/syncagent/syncer"
)

// confirm returns the candidates whose primary object no endpoint has. It sends one list request to each endpoint. It does not confirm a
// copy again that it has confirmed before and that the agent only reports.
func (f *Finder) confirm(ctx context.Context, endpoints []*workspaces.Endpoint, candidates []workspaces.Key) ([]workspaces.Key, error) {
	before := map[workspaces.Key]bool{}
	if f.config.Policy != options.DeleteOrphans {
		for _, key := range f.Keys() {
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
		object := f.config.Copies.Get(key)
		if object == nil {
			continue
		}
		if source, ok := syncer.SourceOf(object); ok { // otherwise the copy does not identify its source
			unconfirmed[source] = key
		}
	}
	for _, endpoint := range endpoints {
		if len(unconfirmed) == 0 {
			break
		}
		err := endpoint.Each(ctx, f.config.Resource, func(cluster logicalcluster.Name, name types.NamespacedName) {
			delete(unconfirmed, syncer.Source{Cluster: cluster, NamespacedName: name})
		})
		if err != nil {
			return nil, err
		}
	}
	confirmed = slices.AppendSeq(confirmed, maps.Values(unconfirmed))
	slices.SortFunc(confirmed, workspaces.Key.Compare)
	return confirmed, nil
}

// deleteOrphan deletes a copy and its state.
func (f *Finder) deleteOrphan(ctx context.Context, key workspaces.Key) error {
	object := f.config.Copies.Get(key)
	stores, _ := f.config.Primaries()
	if object == nil || object.GetDeletionTimestamp() != nil || !f.isOwn(object) || isIn(stores, f.config.Copies.IndexOf(key)) {
		return nil
	}
	log.FromContext(ctx).Info("Deleting an orphan", "namespace", key.Namespace, "name", key.Name)
	done, err := syncer.New(f.config.Syncer).DeleteOrphan(ctx, object)
	if err == nil && !done {
		f.Trigger()
	}
	return err
}
