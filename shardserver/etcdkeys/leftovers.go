package etcdkeys

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// identityLength is that of the hash of an export's secret, in hex.
const identityLength = 64

// orphans are the prefixes of storages that have keys and are not registered, as of one state of the registry.
type orphans struct {
	prefixes []string
	// stale is closed when the registry has changed since.
	stale <-chan struct{}
}

// RemoveLeftovers deletes the keys of the context's logical cluster under custom resources: those that definitions left
// behind when they went without their instances. It is for the end of a logical cluster, when nothing else can be left.
// Each key is a deletion, and a revision, of its own, so that watches see them all, one by one.
func (k *Keyspace) RemoveLeftovers(ctx context.Context) (removed int, err error) {
	cluster, ok := logicalcluster.From(ctx)
	if !ok || cluster.IsWildcard() || cluster.IsSystem() {
		return 0, fmt.Errorf("removing leftovers of %q: not a single logical cluster that can end", cluster)
	}
	prefixes, err := k.customPrefixes(ctx)
	if err != nil {
		return 0, err
	}
	for i, prefix := range prefixes {
		prefixes[i] = k.below(prefix, cluster.String())
	}
	counts, err := k.counts(ctx, prefixes)
	if err != nil {
		return 0, err
	}
	for i, keys := range counts {
		if keys == 0 {
			continue
		}
		klog.FromContext(ctx).Info("Removing what a definition left behind in a deleted logical cluster", "cluster", cluster, "prefix", prefixes[i], "keys", keys)
		n, err := k.removeAll(ctx, prefixes[i])
		removed += n
		if err != nil {
			return removed, fmt.Errorf("removing leftovers of %q: %w", cluster, err)
		}
	}
	return removed, nil
}

// removeAll deletes the keys below a prefix.
func (k *Keyspace) removeAll(ctx context.Context, prefix string) (removed int, err error) {
	client, err := k.connection()
	if err != nil {
		return 0, err
	}
	for {
		page, err := client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(keysPerRequest))
		if err != nil || len(page.Kvs) == 0 {
			return removed, err
		}
		for _, kv := range page.Kvs {
			if _, err := client.Delete(ctx, string(kv.Key)); err != nil {
				return removed, err
			}
			removed++
		}
	}
}

// customPrefixes returns the prefixes of all custom resources that have, or may have, keys.
func (k *Keyspace) customPrefixes(ctx context.Context) ([]string, error) {
	stale := k.cfg.Registry.Changed()
	var prefixes []string
	builtin, registered := map[string]bool{}, map[string]bool{}
	for _, resource := range k.cfg.Registry.All() {
		builtin[resource.Prefix] = true
	}
	for _, resource := range k.cfg.Registry.Stored() {
		registered[resource.Prefix] = true
		if !builtin[resource.Prefix] {
			prefixes = append(prefixes, resource.Prefix)
		}
	}
	known := k.knownOrphans()
	if known == nil {
		found, err := k.findOrphans(ctx, registered)
		if err != nil {
			return nil, fmt.Errorf("looking for storages that nobody serves: %w", err)
		}
		known = &orphans{prefixes: found, stale: stale}
		k.mu.Lock()
		k.orphans = known
		k.mu.Unlock()
	}
	return append(prefixes, known.prefixes...), nil
}

// knownOrphans returns what was found before, or nil if the registry has changed since.
func (k *Keyspace) knownOrphans() *orphans {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.orphans == nil {
		return nil
	}
	select {
	case <-k.orphans.stale:
		return nil
	default:
		return k.orphans
	}
}

// findOrphans jumps from storage to storage through the keys: one request for each, however many keys it has.
func (k *Keyspace) findOrphans(ctx context.Context, registered map[string]bool) ([]string, error) {
	client, err := k.connection()
	if err != nil {
		return nil, err
	}
	root := k.prefix + "/"
	var found []string
	for from, end := root, clientv3.GetPrefixRangeEnd(root); ; {
		page, err := client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithKeysOnly(), clientv3.WithLimit(1))
		if err != nil || len(page.Kvs) == 0 {
			return found, err
		}
		prefix, custom := storageOf(strings.TrimPrefix(string(page.Kvs[0].Key), root), registered)
		if custom && !registered[prefix] {
			found = append(found, prefix)
		}
		from = clientv3.GetPrefixRangeEnd(root + strings.TrimPrefix(prefix, "/") + "/")
	}
}

// storageOf returns the prefix "/<group>/<resource>[/<customresources or identity>]" that a key lies under, and whether
// it is that of a custom resource.
func storageOf(key string, registered map[string]bool) (prefix string, custom bool) {
	segments := strings.Split(key, "/")
	if len(segments) < 3 {
		return "/" + key, false
	}
	prefix = "/" + strings.Join(segments[:2], "/")
	if registered[prefix] || !isKindOfStorage(segments[2]) {
		return prefix, false
	}
	return prefix + "/" + segments[2], true
}

// isKindOfStorage tells whether the third segment of a key is what tells storages of one resource apart, rather than
// the logical cluster.
func isKindOfStorage(segment string) bool {
	if segment == "customresources" {
		return true
	}
	_, err := hex.DecodeString(segment)
	return err == nil && len(segment) == identityLength
}
