package customresources

import (
	"context"
	"fmt"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"

	"github.com/atoll-dev/atoll/shardserver/customresources/crdstorage"
	"github.com/atoll-dev/atoll/shardserver/customresources/drain"
)

// remover deletes objects that go with what defines them. Those which cannot be read in the version that is stored now go
// as they are: their version was taken out of the definition, or the webhook that converted them is gone, and a
// definition, a binding or a whole workspace would wait for ever. Finalizers are waited for all the same.
type remover struct {
	rest.GracefulDeleter
	store *crdstorage.Storage
	// unreadable tells that an object was met that cannot be read. Further ones are not tried, which may take a
	// webhook's timeout each.
	unreadable atomic.Bool
}

// Delete implements rest.GracefulDeleter. Of what was removed as it was it returns no object; for what cannot be because of
// its finalizers, drain.ErrHeld.
func (r *remover) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	if r.unreadable.Load() {
		if err := r.remove(ctx, name, options); err == nil || apierrors.IsNotFound(err) {
			return nil, true, err
		}
	}
	obj, immediately, err := r.GracefulDeleter.Delete(ctx, name, validate, options)
	if err == nil || !mayBeUnreadable(err) || ctx.Err() != nil {
		return obj, immediately, err
	}
	removing := r.remove(ctx, name, options)
	switch {
	case removing == nil:
		r.unreadable.Store(true)
		return nil, true, nil
	case apierrors.IsConflict(removing):
		r.unreadable.Store(true)
		return obj, immediately, fmt.Errorf("%w: %w", drain.ErrHeld, err)
	}
	return obj, immediately, err
}

// mayBeUnreadable says whether a deletion failed for what a conversion that fails looks like. Answers of storage that tell
// to try again, or that there is nothing to delete, do not.
func mayBeUnreadable(err error) bool {
	reason := apierrors.ReasonForError(err)
	return reason == metav1.StatusReasonInternalError || reason == metav1.StatusReasonUnknown
}

func (r *remover) remove(ctx context.Context, name string, options *metav1.DeleteOptions) error {
	preconditions := &storage.Preconditions{}
	if options != nil && options.Preconditions != nil {
		preconditions.UID, preconditions.ResourceVersion = options.Preconditions.UID, options.Preconditions.ResourceVersion
	}
	return r.store.Remove(ctx, name, preconditions)
}
