package storage

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
)

// voluminous are resources whose objects take a hundred kilobytes in etcd, and hardly anything in a watch cache, where
// equal specifications are held once.
var voluminous = map[schema.GroupResource]bool{
	{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}: true,
	{Group: "apis.kcp.io", Resource: "apiresourceschemas"}:                 true,
}

// atOnce is how many of them are read from etcd at a time.
const atOnce = 500

// smallPages is the storage below a watch cache for objects that are voluminous. What fills the watch cache, and what
// compares it with etcd every five minutes, asks for ten thousand objects at a time, which would be a gigabyte. It goes on
// where an answer ends, as everybody has to who asks for a limited number.
type smallPages struct{ storage.Interface }

// GetList implements storage.Interface.
func (s smallPages) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	if opts.Recursive && opts.Predicate.Limit > atOnce {
		opts.Predicate.Limit = atOnce
	}
	return s.Interface.GetList(ctx, key, opts, list)
}
