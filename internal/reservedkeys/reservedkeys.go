// Package reservedkeys names the keys in etcd, below the prefix of a server, that are no objects. Where keys of objects have the API group,
// they have a name that no API group can have.
package reservedkeys

import "path"

const (
	owner    = "~owner"
	restored = "~restored"
)

// Owner is the key with the owner of a prefix (package etcdowner).
func Owner(prefix string) string { return path.Join("/", prefix, owner) }

// Restored is the key that exists from a restore of the prefix until a person releases it (package restoremark).
func Restored(prefix string) string { return path.Join("/", prefix, restored) }

// IsReserved reports whether a key is one of these, of whatever prefix.
func IsReserved(key string) bool {
	name := path.Base(key)
	return name == owner || name == restored
}
