package storage

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
)

// smallPages is the storage below a watch cache for voluminous objects. Filling the watch cache, and its periodic
// comparison with etcd, request pages of ten thousand objects, which would take too much memory. Returning smaller
// pages is correct, because callers that set a limit have to continue.
type smallPages struct {
	storage.Interface
	maxPageSize int64
}

// GetList implements storage.Interface.
func (s smallPages) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	if opts.Recursive && opts.Predicate.Limit > s.maxPageSize {
		opts.Predicate.Limit = s.maxPageSize
	}
	return s.Interface.GetList(ctx, key, opts, list)
}
