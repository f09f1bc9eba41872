// Package etcdlist reads all keys below a prefix from etcd, for servers that read very many of them when they start.
//
// It asks for a stream (RangeStream, etcd 3.7). Pages are what servers without it get, older ones and etcd's gRPC proxy: for each page, etcd counts all keys
// that follow, so that the time grows with the square of their number.
//
// The size of a part is bounded by a number of keys which etcd, or this package, chooses before it knows the sizes of their values. Read is therefore for keys
// without values, and for values that are small; ReadValues, which reads all keys before it reads their values, is for all others.
package etcdlist

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
)

const (
	// pageSize is the number of keys in a page.
	pageSize = 10_000
	// partTimeout bounds the time until etcd has sent the next part of the keys.
	partTimeout = 30 * time.Second
)

// errSlow is the cause of the end of a request whose next part does not arrive.
var errSlow = errors.New("etcd has not sent the next part of a list within " + partTimeout.String())

// Read passes the keys below a prefix to a function, in their order and in parts, and ends with its first error. All are of one revision: the given
// one, or the latest for 0. The options are those of a read (clientv3.WithKeysOnly), without a limit or an order. Errors of etcd are rpctypes.EtcdError,
// those of the context, or say that the next part has not arrived in time.
func Read(ctx context.Context, kv clientv3.KV, prefix string, revision int64, visit func([]*mvccpb.KeyValue) error, options ...clientv3.OpOption) error {
	options = append(options, clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)))
	if supported, err := stream(ctx, kv, prefix, revision, visit, options); supported {
		return err
	}
	return pages(ctx, kv, prefix, revision, visit, options)
}

// ReadValues is Read for values of any size: a part has at most that many keys. It returns the revision of all of them.
func ReadValues(ctx context.Context, kv clientv3.KV, prefix string, revision int64, maxKeys int, visit func([]*mvccpb.KeyValue) error) (int64, error) {
	if revision == 0 {
		latest, err := get(ctx, kv, prefix, nil)
		if err != nil {
			return 0, err
		}
		revision = latest.Header.Revision
	}
	return revision, Read(ctx, kv, prefix, revision, func(part []*mvccpb.KeyValue) error {
		for keys := range slices.Chunk(part, maxKeys) {
			// A range that ends with the last key has nothing else that etcd counts.
			end := string(keys[len(keys)-1].Key) + "\x00"
			values, err := get(ctx, kv, string(keys[0].Key), []clientv3.OpOption{clientv3.WithRange(end), clientv3.WithRev(revision)})
			if err != nil {
				return err
			}
			if err := visit(values.Kvs); err != nil {
				return err
			}
		}
		return nil
	}, clientv3.WithKeysOnly())
}

// stream reads the keys by one request. supported is false if etcd does not serve it.
func stream(ctx context.Context, kv clientv3.KV, prefix string, revision int64, visit func([]*mvccpb.KeyValue) error, options []clientv3.OpOption) (supported bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(partTimeout, func() { cancel(errSlow) })
	defer timer.Stop()
	parts, err := kv.GetStream(ctx, prefix, append(options, clientv3.WithRev(revision))...)
	if err != nil {
		cancel(nil)
		return grpcstatus.Code(err) != codes.Unimplemented, withCause(ctx, err)
	}
	defer func() {
		cancel(nil)
		for range parts { // the goroutine of the client ends only when all that it has received is read
		}
	}()
	for part := range parts {
		if err := part.Err(); err != nil {
			return grpcstatus.Code(err) != codes.Unimplemented, withCause(ctx, err)
		}
		timer.Stop() // the function may take its time
		if err := visit(part.Kvs); err != nil {
			return true, err
		}
		timer.Reset(partTimeout)
	}
	return true, nil
}

// pages reads the keys by one request for each page.
func pages(ctx context.Context, kv clientv3.KV, prefix string, revision int64, visit func([]*mvccpb.KeyValue) error, options []clientv3.OpOption) error {
	options = append(options, clientv3.WithLimit(pageSize))
	for from := prefix; ; {
		page, err := get(ctx, kv, from, append(options, clientv3.WithRev(revision)))
		if err != nil {
			return err
		}
		if revision == 0 {
			revision = page.Header.Revision
		}
		if err := visit(page.Kvs); err != nil || !page.More {
			return err
		}
		from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
	}
}

func get(ctx context.Context, kv clientv3.KV, from string, options []clientv3.OpOption) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, partTimeout, errSlow)
	defer cancel()
	page, err := kv.Get(ctx, from, options...)
	return page, withCause(ctx, err)
}

// withCause returns errSlow for an error that it has caused, and other errors unchanged.
func withCause(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errSlow) {
		return errSlow
	}
	return err
}
