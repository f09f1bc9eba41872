package etcdkeys

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/klog/v2"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// identityLength is the length of the hex-encoded identity hash of an APIExport.
const identityLength = 64

// orphans are the prefixes of storages with keys that are not registered, as of one state of the registry.
type orphans struct {
	prefixes []string
	// stale is closed when the registry changes.
	stale <-chan struct{}
}

// errFenced is returned if the logical cluster is not the one that the caller has read.
var errFenced = errors.New("the logical cluster was deleted or created again")

// PurgeOrphans deletes all keys of the context's logical cluster under custom resources: the instances of definitions
// that were removed without their instances. It is the last step of the deletion of a logical cluster, after the deletion
// of everything that is served. Each key is deleted in a revision of its own, as watches expect.
//
// seen is the LogicalCluster that the caller has read, with its deletion timestamp. A caller that no longer holds the
// lease of controllers may be late: another replica may have completed the deletion, and the logical cluster may exist
// again. Every deletion therefore requires that the stored LogicalCluster is not newer than that.
func (s *Scanner) PurgeOrphans(ctx context.Context, seen *corev1alpha1.LogicalCluster) (removed int, err error) {
	cluster, ok := logicalcluster.From(ctx)
	if !ok || cluster.IsWildcard() || cluster.IsSystem() {
		return 0, fmt.Errorf("purging orphans of %q: not a single user logical cluster", cluster)
	}
	fence, err := s.fence(cluster, seen)
	if err != nil {
		return 0, fmt.Errorf("purging orphans of %q: %w", cluster, err)
	}
	prefixes, err := s.customPrefixes(ctx)
	if err != nil {
		return 0, err
	}
	for i, prefix := range prefixes {
		prefixes[i] = s.prefixOf(prefix, cluster.String())
	}
	counts, err := s.countPrefixes(ctx, prefixes)
	if err != nil {
		return 0, err
	}
	for i, keys := range counts {
		if keys == 0 {
			continue
		}
		klog.FromContext(ctx).Info("Purging orphaned keys of a deleted logical cluster", "cluster", cluster, "prefix", prefixes[i], "keys", keys)
		n, err := s.deletePrefix(ctx, prefixes[i], fence)
		removed += n
		if err != nil {
			return removed, fmt.Errorf("purging orphans of %q: %w", cluster, err)
		}
	}
	return removed, nil
}

// fence returns the condition that the stored LogicalCluster is the one that was read.
func (s *Scanner) fence(cluster logicalcluster.Name, seen *corev1alpha1.LogicalCluster) ([]clientv3.Cmp, error) {
	if seen.DeletionTimestamp == nil {
		return nil, errors.New("it is not being deleted")
	}
	key, err := s.keyOfLogicalCluster(cluster, seen.Name)
	if err != nil {
		return nil, err
	}
	revision, err := storage.ParseRevision(seen.ResourceVersion)
	if err != nil {
		return nil, fmt.Errorf("the resource version of the LogicalCluster: %w", err)
	}
	return []clientv3.Cmp{
		clientv3.Compare(clientv3.CreateRevision(key), ">", 0),
		clientv3.Compare(clientv3.CreateRevision(key), "<", int64(revision)+1),
	}, nil
}

// KeyOfLogicalCluster returns the key of the LogicalCluster of a logical cluster.
func (s *Scanner) KeyOfLogicalCluster(cluster logicalcluster.Name) (string, error) {
	return s.keyOfLogicalCluster(cluster, corev1alpha1.LogicalClusterName)
}

func (s *Scanner) keyOfLogicalCluster(cluster logicalcluster.Name, name string) (string, error) {
	resource, err := s.cfg.Registry.Get(corev1alpha1.Resource("logicalclusters"))
	if err != nil {
		return "", err
	}
	return s.prefixOf(resource.Prefix, cluster.String()) + name, nil
}

// deletePrefix deletes all keys below a prefix while the fence holds.
func (s *Scanner) deletePrefix(ctx context.Context, prefix string, fence []clientv3.Cmp) (removed int, err error) {
	client, err := s.Connect()
	if err != nil {
		return 0, err
	}
	for {
		page, err := client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(keysPerRequest))
		if err != nil || len(page.Kvs) == 0 {
			return removed, err
		}
		for _, kv := range page.Kvs {
			response, err := client.Txn(ctx).If(fence...).Then(clientv3.OpDelete(string(kv.Key))).Commit()
			if err != nil {
				return removed, err
			}
			if !response.Succeeded {
				return removed, errFenced
			}
			removed++
		}
	}
}

// StoragePrefixes returns the prefixes of all storages that may have keys, registered or not, below the prefix of the shard.
func (s *Scanner) StoragePrefixes(ctx context.Context) ([]string, error) {
	prefixes, err := s.customPrefixes(ctx)
	if err != nil {
		return nil, err
	}
	for _, resource := range s.cfg.Registry.All() {
		prefixes = append(prefixes, resource.Prefix)
	}
	return prefixes, nil
}

// ScanStoragePrefixes returns what StoragePrefixes does, and those of all other storages that have keys now: another replica of the shard
// may have stored the first object of an API before this one knows it, or have a version with other compiled-in resources.
func (s *Scanner) ScanStoragePrefixes(ctx context.Context) ([]string, error) {
	prefixes, err := s.StoragePrefixes(ctx)
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, prefix := range prefixes {
		known[prefix] = true
	}
	custom, other, err := s.findOrphans(ctx, known)
	if err != nil {
		return nil, fmt.Errorf("finding storages that are not known: %w", err)
	}
	if len(custom) > 0 {
		s.mu.Lock()
		s.orphans = nil // from now on StoragePrefixes has them, too
		s.mu.Unlock()
	}
	return slices.Concat(prefixes, custom, other), nil
}

// customPrefixes returns the prefixes of all custom resources that may have keys.
func (s *Scanner) customPrefixes(ctx context.Context) ([]string, error) {
	stale := s.cfg.Registry.Changed()
	var prefixes []string
	builtin, registered := map[string]bool{}, map[string]bool{}
	for _, resource := range s.cfg.Registry.All() {
		builtin[resource.Prefix] = true
	}
	for _, resource := range s.cfg.Registry.AllStorages() {
		registered[resource.Prefix] = true
		if !builtin[resource.Prefix] {
			prefixes = append(prefixes, resource.Prefix)
		}
	}
	known := s.cachedOrphans()
	if known == nil {
		found, _, err := s.findOrphans(ctx, registered)
		if err != nil {
			return nil, fmt.Errorf("finding orphaned storages: %w", err)
		}
		known = &orphans{prefixes: found, stale: stale}
		s.mu.Lock()
		s.orphans = known
		s.mu.Unlock()
	}
	return append(prefixes, known.prefixes...), nil
}

// cachedOrphans returns the result of the previous scan, or nil if the registry has changed since.
func (s *Scanner) cachedOrphans() *orphans {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.orphans == nil {
		return nil
	}
	select {
	case <-s.orphans.stale:
		return nil
	default:
		return s.orphans
	}
}

// gap is a range of keys that are below no known storage.
type gap struct{ from, end string }

// gapsBetween returns the gaps between storages, without the keys whose first segment begins with "~": no API group does.
func gapsBetween(root string, known map[string]bool) []gap {
	starts := make([]string, 0, len(known))
	for prefix := range known {
		starts = append(starts, root+strings.TrimPrefix(prefix, "/")+"/")
	}
	slices.Sort(starts)
	var gaps []gap
	from := root
	for _, start := range starts {
		if start > from {
			gaps = append(gaps, gap{from, start})
		}
		from = max(from, clientv3.GetPrefixRangeEnd(start)) // one may be inside of another
	}
	return append(gaps, gap{from, root + "~"})
}

// findOrphans returns the prefixes of the storages that have keys and are not known: those of custom resources, and others. It asks for the
// first key of each gap between those that are known, many in one request, because etcd may count a range to return its first key. From what
// it finds, it skips to the end of the storage.
func (s *Scanner) findOrphans(ctx context.Context, known map[string]bool) (custom, other []string, err error) {
	client, err := s.Connect()
	if err != nil {
		return nil, nil, err
	}
	root := s.prefix + "/"
	for gaps := gapsBetween(root, known); len(gaps) > 0; {
		batch := gaps[:min(len(gaps), opsPerRequest)]
		gaps = gaps[len(batch):]
		ops := make([]clientv3.Op, 0, len(batch))
		for _, gap := range batch {
			ops = append(ops, clientv3.OpGet(gap.from, clientv3.WithRange(gap.end), clientv3.WithKeysOnly(), clientv3.WithLimit(1)))
		}
		response, err := client.Txn(ctx).Then(ops...).Commit()
		if err != nil {
			return nil, nil, err
		}
		for i, result := range response.Responses {
			kvs := result.GetResponseRange().Kvs
			if len(kvs) == 0 {
				continue
			}
			key := string(kvs[0].Key)
			next := key + "\x00"
			if prefix, isStorage, isCustom := storagePrefixOf(strings.TrimPrefix(key, root), known); isStorage {
				next = clientv3.GetPrefixRangeEnd(root + strings.TrimPrefix(prefix, "/") + "/")
				if isCustom {
					custom = append(custom, prefix)
				} else if !slices.Contains(other, prefix) { // known storages may divide it
					other = append(other, prefix)
				}
			}
			if next < batch[i].end {
				gaps = append(gaps, gap{next, batch[i].end})
			}
		}
	}
	return custom, other, nil
}

// storagePrefixOf returns the storage prefix "/<group>/<resource>[/<customresources or identity>]" of a key, whether it has one, and whether
// that is one of a custom resource.
func storagePrefixOf(key string, registered map[string]bool) (prefix string, isStorage, isCustom bool) {
	segments := strings.Split(key, "/")
	if len(segments) < 3 || strings.HasPrefix(key, "~") {
		return "", false, false
	}
	prefix = "/" + strings.Join(segments[:2], "/")
	if registered[prefix] || !isStorageVariant(segments[2]) {
		return prefix, true, false
	}
	return prefix + "/" + segments[2], true, true
}

// isStorageVariant reports whether the third segment of a key distinguishes storages of one resource; otherwise it is the
// logical cluster.
func isStorageVariant(segment string) bool {
	if segment == "customresources" {
		return true
	}
	_, err := hex.DecodeString(segment)
	return err == nil && len(segment) == identityLength
}
