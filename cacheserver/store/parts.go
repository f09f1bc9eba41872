package store

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Part is the set of objects of one shard and one resource.
type Part struct {
	// Group is coreSegment for the legacy group. Identity is empty for built-in resources.
	Group, Resource, Identity, Shard string

	prefix string
}

// GroupResource returns the resource, "<resource>:<identity>" with an identity.
func (p Part) GroupResource() schema.GroupResource {
	gr := schema.GroupResource{Group: p.Group, Resource: p.Resource}
	if p.Group == coreSegment {
		gr.Group = ""
	}
	if p.Identity != "" {
		gr.Resource += ":" + p.Identity
	}
	return gr
}

// Parts returns the parts of all shards, including users' cached resources. It reads one key of each.
func (b *Backend) Parts(ctx context.Context) ([]Part, error) {
	root := path.Join("/", b.config.Prefix) + "/"
	end := clientv3.GetPrefixRangeEnd(root)
	var parts []Part
	for from := root; from != "" && from < end; {
		response, err := b.client.Client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(1), clientv3.WithKeysOnly())
		if err != nil {
			return nil, fmt.Errorf("reading which shards have objects in the cache: %w", err)
		}
		if len(response.Kvs) == 0 {
			break
		}
		key := string(response.Kvs[0].Key)
		// "<group>/<resource>/<identity>/<shard>/<cluster>/<name>", and longer with a namespace
		segments := strings.SplitN(strings.TrimPrefix(key, root), "/", 6)
		if len(segments) < 6 {
			from = key + "\x00" // not the key of an object
			continue
		}
		part := Part{Group: segments[0], Resource: segments[1], Identity: segments[2], Shard: segments[3]}
		part.prefix = root + strings.Join(segments[:4], "/") + "/"
		if part.Identity == noIdentitySegment {
			part.Identity = ""
		}
		parts = append(parts, part)
		from = clientv3.GetPrefixRangeEnd(part.prefix)
	}
	return parts, nil
}

// Count returns the number of objects of a part.
func (b *Backend) Count(ctx context.Context, part Part) (int64, error) {
	response, err := b.client.Client.Get(ctx, part.prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return 0, fmt.Errorf("counting the %s of shard %s: %w", part.Resource, part.Shard, err)
	}
	return response.Count, nil
}

// ErrChanged is returned by Remove if a condition does not hold.
var ErrChanged = errors.New("the cache has changed")

// Remove deletes all objects of a part, and returns their number. If one was written after a revision, or another
// condition does not hold, it deletes none and returns ErrChanged.
func (b *Backend) Remove(ctx context.Context, part Part, revision int64, conditions ...clientv3.Cmp) (int64, error) {
	conditions = append(conditions, unchangedSince(part.prefix, revision))
	response, err := b.client.Client.Txn(ctx).If(conditions...).Then(clientv3.OpDelete(part.prefix, clientv3.WithPrefix())).Commit()
	if err == nil && !response.Succeeded {
		err = ErrChanged
	}
	if err != nil {
		return 0, fmt.Errorf("removing the %s of shard %s: %w", part.Resource, part.Shard, err)
	}
	return response.Responses[0].GetResponseDeleteRange().Deleted, nil
}

// unchangedSince is the condition that no key below a prefix was written after a revision.
func unchangedSince(prefix string, revision int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(prefix), "<", revision+1).WithPrefix()
}

// UnchangedSince returns the condition that no object of a shard was written after a revision.
func (s *Store) UnchangedSince(shard string, revision int64) clientv3.Cmp {
	return unchangedSince(s.backend.Prefix()+s.root+"/"+shard+"/", revision)
}

// Absent returns the condition that an object of the context's scope does not exist.
func (s *Store) Absent(ctx context.Context, name string) (clientv3.Cmp, error) {
	key, err := s.key(ctx, name)
	return clientv3.Compare(clientv3.ModRevision(s.backend.Prefix()+key), "=", 0), err
}
