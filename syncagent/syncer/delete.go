package syncer

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/atoll-dev/atoll/syncagent/publication"
)

// delete deletes the copy of a source that is being deleted, with its related objects and its state, and then removes the finalizer. It
// ignores filters, because a source with a finalizer has been synced.
func (p *pass) delete(ctx context.Context) (Result, error) {
	held := slices.Contains(p.source.GetFinalizers(), publication.Finalizer)
	if err := p.loadState(ctx); err != nil {
		return Result{}, err
	}
	copied, err := p.findCopy(ctx)
	if err == nil && copied == nil && held {
		copied, err = p.findUnrecordedCopy(ctx)
	}
	if err != nil || copied == nil && !held && !p.state.Exists() {
		return Result{}, err
	}
	if err := p.takeOver(ctx, copied); err != nil {
		return Result{}, err
	}
	if copied == nil || copied.GetDeletionTimestamp() == nil {
		if result, done, err := p.cleanUpRelated(ctx, copied); err != nil || !done {
			return result, err
		}
	}
	if copied != nil {
		return p.deleteCopy(ctx, copied)
	}
	if err := p.Syncer.state.Delete(ctx, p.state); err != nil || !held {
		return Result{}, err
	}
	return Result{}, p.removeFinalizer(ctx)
}

// findUnrecordedCopy lists copies if the state does not record the location of the copy: an earlier pass may have created a copy that no
// cache has yet.
func (p *pass) findUnrecordedCopy(ctx context.Context) (*unstructured.Unstructured, error) {
	if _, recorded := p.state.Copy(); recorded {
		return nil, nil
	}
	found, err := ListedCopies{p.config.Service, p.config.ServiceResource.GroupVersionKind, p.config.AgentName}.Find(ctx, p.request.Source())
	if err != nil {
		return nil, err
	}
	own, err := p.theCopy(found)
	if err != nil || own == nil || claimOf(own, p.identification()) == claimOther {
		return nil, err
	}
	return own, nil
}

func (p *pass) deleteCopy(ctx context.Context, copied *unstructured.Unstructured) (Result, error) {
	if copied.GetDeletionTimestamp() != nil {
		return p.awaitDeletion(copied), nil
	}
	if err := p.service().delete(ctx, copied); err != nil {
		return Result{}, err
	}
	p.record(ctx, ReasonCleanup)
	return p.awaitDeletion(copied), nil
}

func (p *pass) removeFinalizer(ctx context.Context) error {
	finalizers := slices.DeleteFunc(slices.Clone(p.source.GetFinalizers()), func(f string) bool { return f == publication.Finalizer })
	err := p.workspace().setFinalizers(ctx, p.source, finalizers)
	if err == nil {
		p.record(ctx, ReasonDeleted)
	}
	return err
}
