package storage

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
)

// largeResources are resources with large objects in etcd that are small in a watch cache, where equal specifications are
// shared.
var largeResources = map[schema.GroupResource]bool{
	{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}: true,
	{Group: "apis.kcp.io", Resource: "apiresourceschemas"}:                 true,
}

// maxPageSize is the page size of reading them from etcd.
const maxPageSize = 500

// smallPages is the storage below a watch cache for voluminous objects. Filling the watch cache, and its periodic
// comparison with etcd, request pages of ten thousand objects, which would take too much memory. Returning smaller
// pages is correct, because callers that set a limit have to continue.
type smallPages struct{ storage.Interface }

// GetList implements storage.Interface.
func (s smallPages) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	if opts.Recursive && opts.Predicate.Limit > maxPageSize {
		opts.Predicate.Limit = maxPageSize
	}
	return s.Interface.GetList(ctx, key, opts, list)
}
