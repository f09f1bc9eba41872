// Package fence is what a shard refuses for a logical cluster that moves to another shard. The annotations of the stored
// LogicalCluster say which of the states of a move it is in (StateOf); the fence holds in every replica of the shard and
// survives a restart, because the object is stored.
//
// It acts in three places:
//
//   - Above HTTP handlers, Filter answers requests to the logical cluster by the object in the watch cache (Decide). After
//     a restart the watch cache lists etcd before it answers, so that the first request meets the fence.
//   - Below, around the storage of every resource (storage.WithGuard), Enter refuses all writes, also those of
//     in-process code without HTTP, and counts those in flight. It uses what the informer of this package has seen.
//     Until the informer has seen the revision at which this replica registered, Enter reads the stored object instead.
//   - Lists and watches over all logical clusters leave out a logical cluster that this shard does not serve, and watches
//     expire when that changes, instead of delivering events that no write has caused. Reads below HTTP find nothing in one that
//     arrives, so that controllers and other logical clusters see its objects only where they are served.
//
// Several processes may be replicas of one shard. Each has a key with a lease below the prefix of the shard, and writes
// only while it knows that the lease is valid. Pause waits until every registered replica has acknowledged, with a key of
// the same lease, that it has seen the pause and that its writes have ended. etcd may receive a write of a stalled replica
// after the lease has expired. That is not prevented, but the replica answers then that it does not know the outcome, so
// that each acknowledged write is copied.
//
// What does not pass the guarded storage is not refused: the expiry of keys with leases in etcd (events), the purge of
// orphaned keys of a deleted logical cluster (package etcdkeys), and the code of a move, which writes etcd directly or with
// WithMover. Replicas of other shards' objects and the index of proxies are keys outside of logical clusters.
package fence
