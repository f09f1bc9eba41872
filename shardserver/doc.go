// Package shardserver is the shard: a stock generic API server whose storage, resolution, authorization and
// controllers know logical clusters (docs/architecture.md, walls W1 to W7). It is a library (wall W9): options
// become a Config, a Config a Server; cmd/kcp only binds flags.
//
// A shard is put together in this order, because each part needs the one before:
//
//	etcd (embedded or not) -> authenticator and authorizer (they read storage lazily) -> storage of secrets ->
//	identities of the root exports -> storage of everything else -> API server -> bootstrap -> controllers
package shardserver
