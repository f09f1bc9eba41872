package syncer

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
)

// DeleteOrphan deletes a copy whose primary object does not exist any more, with all other objects that the agent has created for it on
// the service cluster. It does not access the workspace. done is false while an object is being deleted. Callers must have verified that
// the primary object does not exist.
func (s *Syncer) DeleteOrphan(ctx context.Context, copied *unstructured.Unstructured) (done bool, err error) {
	source, identified := SourceOf(copied)
	if !identified {
		return true, s.service().delete(ctx, copied)
	}
	p := &pass{Syncer: s, request: Request{Cluster: source.Cluster, NamespacedName: source.NamespacedName}}
	if err := p.loadState(ctx); err != nil {
		return false, err
	}
	entries, _ := p.state.Related()
	done = true
	for _, entry := range entries {
		if entry.Side != syncagentv1alpha1.RelatedResourceOriginKcp {
			continue
		}
		gone, err := p.removeRelatedCopy(ctx, p.service(), entry)
		if err != nil {
			return false, err
		}
		done = done && gone
	}
	if !done {
		return false, nil // the next attempt finds the remaining objects by the copy
	}
	if err := p.service().delete(ctx, copied); err != nil {
		return false, err
	}
	return true, p.Syncer.state.Delete(ctx, p.state)
}
