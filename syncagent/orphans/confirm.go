package orphans

import (
	"context"
	"maps"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/syncagent/options"
	"github.com/atoll-dev/atoll/syncagent/syncer"
)

// confirm returns the candidates whose primary object no endpoint has. It does not confirm a copy again that it has confirmed before and that
// the agent only reports.
func (f *Finder) confirm(ctx context.Context, endpoints []*workspaces.Endpoint, candidates []workspaces.Key) ([]workspaces.Key, error) {
	before := map[workspaces.Key]bool{}
	if f.config.Policy != options.DeleteOrphans {
		for _, key := range f.Keys() {
			before[key] = true
		}
	}
	var confirmed []workspaces.Key
	unconfirmed := map[workspaces.Object]workspaces.Key{}
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
			unconfirmed[workspaces.Object(source)] = key
		}
	}
	missing, err := workspaces.Missing(ctx, endpoints, f.config.Resource, slices.Collect(maps.Keys(unconfirmed)))
	if err != nil {
		return nil, err
	}
	for _, source := range missing {
		confirmed = append(confirmed, unconfirmed[source])
	}
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
