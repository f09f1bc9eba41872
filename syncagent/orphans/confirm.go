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

// confirm returns the candidates whose primary object no endpoint has, also together with an error about others. It does not confirm a copy again that
// it has confirmed before and that the agent only reports.
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
	for _, source := range missing {
		confirmed = append(confirmed, unconfirmed[source])
	}
	slices.SortFunc(confirmed, workspaces.Key.Compare)
	return confirmed, err
}

// stillReported returns the orphans to report if some candidates are unknown: those that are confirmed, and the candidates that were orphans before.
func stillReported(confirmed, before, candidates []workspaces.Key) []workspaces.Key {
	all := slices.Clone(confirmed)
	for _, key := range before {
		if slices.Contains(candidates, key) {
			all = append(all, key)
		}
	}
	slices.SortFunc(all, workspaces.Key.Compare)
	return slices.Compact(all)
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
