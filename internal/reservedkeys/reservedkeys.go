// Package reservedkeys names the prefixes of servers in etcd, and the keys below them that are no objects. Where keys of objects have the API group,
// they have a name that no API group can have. Below them, an object of a tenant may have the same name, so that the whole key has to be compared.
package reservedkeys

import "path"

const (
	owner     = "~owner"
	restored  = "~restored"
	restoring = "~restoring"
	receipts  = "~receipts"

	cacheSuffix = "-cache"
)

// Default prefixes of servers. That of shards is that of Kubernetes.
const (
	DefaultShardPrefix = "/registry"
	DefaultCachePrefix = "/cache"
)

// Owner is the key with the owner of a prefix (package etcdowner).
func Owner(prefix string) string { return path.Join("/", prefix, owner) }

// Restored is the key that exists from a restore of the prefix until a person releases it (package restoremark).
func Restored(prefix string) string { return path.Join("/", prefix, restored) }

// Restoring is the parent of what is brought from a backup for the restore of one workspace (package workspacerestore).
func Restoring(prefix string) string { return path.Join("/", prefix, restoring) }

// Receipts is the secret with which the shard of a prefix signs what it hands over to other shards (package migration). It is as old as the shard, so
// that each backup has it.
func Receipts(prefix string) string { return path.Join("/", prefix, receipts) }

// EmbeddedCache is the prefix of the cache that a shard of a prefix embeds. Installations that share an etcd by prefixes have caches of
// their own.
func EmbeddedCache(shard string) string {
	shard = path.Join("/", shard)
	if shard == DefaultShardPrefix {
		return DefaultCachePrefix
	}
	return shard + cacheSuffix
}
