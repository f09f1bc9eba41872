package crdregistry

import (
	"context"
	"fmt"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"

	"github.com/atoll-dev/atoll/shardserver/customresources/crdstorage"
	"github.com/atoll-dev/atoll/shardserver/purge"
)

// fallbackDeleter deletes objects together with their definition. It removes objects that cannot be decoded in the current
// version from storage directly: their version was removed from the definition, or the conversion webhook is gone, and
// the deletion of the definition, the binding or the workspace would never end. Finalizers are honored either way.
//
// It also removes objects that are stored in the other scope, which older versions of the server let an export change. No
// request can name them, so that their finalizers are not honored.
type fallbackDeleter struct {
	rest.GracefulDeleter
	store      *crdstorage.Storage
	namespaced bool
	// foundUnreadable is set by the first object that cannot be decoded. Further objects are removed directly, as each
	// attempt to decode one may take the timeout of a webhook.
	foundUnreadable atomic.Bool
}

// Delete implements rest.GracefulDeleter. It returns no object if it removed one directly, and purge.ErrHasFinalizers if it
// could not, because of finalizers.
func (d *fallbackDeleter) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	if isNamespaced := request.NamespaceValue(ctx) != ""; isNamespaced != d.namespaced {
		return nil, true, d.store.DeleteUnreachable(ctx, name, storagePreconditions(options))
	}
	if d.foundUnreadable.Load() {
		if err := d.remove(ctx, name, options); err == nil || apierrors.IsNotFound(err) {
			return nil, true, err
		}
	}
	obj, immediately, err := d.GracefulDeleter.Delete(ctx, name, validate, options)
	if err == nil || !mayBeUnreadable(err) || ctx.Err() != nil {
		return obj, immediately, err
	}
	removeErr := d.remove(ctx, name, options)
	switch {
	case removeErr == nil:
		d.foundUnreadable.Store(true)
		return nil, true, nil
	case apierrors.IsConflict(removeErr):
		d.foundUnreadable.Store(true)
		return obj, immediately, fmt.Errorf("%w: %w", purge.ErrHasFinalizers, err)
	}
	return obj, immediately, err
}

// mayBeUnreadable returns whether a failed conversion can be the cause of an error.
func mayBeUnreadable(err error) bool {
	reason := apierrors.ReasonForError(err)
	return reason == metav1.StatusReasonInternalError || reason == metav1.StatusReasonUnknown
}

func (d *fallbackDeleter) remove(ctx context.Context, name string, options *metav1.DeleteOptions) error {
	return d.store.DeleteUndecoded(ctx, name, storagePreconditions(options))
}

func storagePreconditions(options *metav1.DeleteOptions) *storage.Preconditions {
	preconditions := &storage.Preconditions{}
	if options != nil && options.Preconditions != nil {
		preconditions.UID, preconditions.ResourceVersion = options.Preconditions.UID, options.Preconditions.ResourceVersion
	}
	return preconditions
}
