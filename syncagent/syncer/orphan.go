package syncer

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
)

// DeleteOrphan deletes a copy whose primary object is gone, with all that the agent has on the service cluster for it. The workspace is
// not accessed. done is false while something is being deleted. Callers must know that the primary object does not exist.
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
		return false, nil // the copy leads to what is left
	}
	if err := p.service().delete(ctx, copied); err != nil {
		return false, err
	}
	return true, p.Syncer.state.Delete(ctx, p.state)
}
