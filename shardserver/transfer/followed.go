package transfer

import (
	"context"
	"maps"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// followed is what a Follower knows of one storage.
type followed struct {
	keys map[string]fingerprint // by name
	// gone are the keys that were deleted, until a call of the Follower has returned them.
	gone map[string]deletion
	sum  Sum
	// stream is the context of the watch.
	stream context.Context
	// revision is that up to which all changes are known, changed that of the last one.
	revision, changed int64
	// from is the first revision since which a caller knows the storage. Its keys may be older: the shard may have known the storage too late
	// to return them.
	from int64
}

// fingerprint is what is kept of a value.
type fingerprint struct {
	revision int64
	sum      Sum
	leased   bool
}

// deletion is that of a key, which expires instead if it had a lease.
type deletion struct {
	revision int64
	leased   bool
}

// size returns the number of entries.
func (f *followed) size() int64 { return int64(len(f.keys) + len(f.gone)) }

// put notes a value, unless a later one is known.
func (f *followed) put(name string, kv *mvccpb.KeyValue, plaintext []byte) {
	before, known := f.keys[name]
	if before.revision > kv.ModRevision || f.gone[name].revision > kv.ModRevision {
		return
	}
	if known {
		f.sum = f.sum.minus(before.sum)
	}
	after := fingerprint{revision: kv.ModRevision, sum: sumOf(name, kv.Lease != 0, plaintext), leased: kv.Lease != 0}
	f.sum = f.sum.plus(after.sum)
	f.keys[name] = after
	delete(f.gone, name)
	f.changed = max(f.changed, kv.ModRevision)
}

// remove notes that a key was deleted.
func (f *followed) remove(name string, revision int64) {
	before, known := f.keys[name]
	if !known || before.revision > revision {
		return
	}
	f.sum = f.sum.minus(before.sum)
	delete(f.keys, name)
	f.gone[name] = deletion{revision: revision, leased: before.leased}
	f.changed = max(f.changed, revision)
}

// forget discards the deletions up to a revision.
func (f *followed) forget(revision int64) {
	maps.DeleteFunc(f.gone, func(_ string, d deletion) bool { return d.revision <= revision })
}
