package etcdkeys

import "testing"

// TestOwnKeysAreNoOrphans has the keys of a shard that are not those of objects.
func TestOwnKeysAreNoOrphans(t *testing.T) {
	for _, key := range []string{"~owner", "~replicas/0123456789abcdef0123456789abcdef", "~paused/abc/0123456789abcdef0123456789abcdef"} {
		if prefix, custom := storagePrefixOf(key, map[string]bool{}); custom {
			t.Errorf("%s is taken for a key of the storage %s", key, prefix)
		}
	}
}
