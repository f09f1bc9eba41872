package hierarchy

import "github.com/atoll-dev/atoll/cacheserver/client"

// Annotations of copies in caches.
const (
	// ViaAnnotation names the cache, below the one where the object stands, that brought it up.
	ViaAnnotation = client.ViaAnnotation
	// DownAnnotation marks objects that were taken from the cache above.
	DownAnnotation = client.DownAnnotation
)

// copy is what is to be known of an object in a cache to decide about it.
type copied struct {
	exists bool
	// digest is of what a shard published; marks of caches are no part of it.
	digest digest
	// global tells whether it travels.
	global bool
	// via is the cache that brought it up; it means something in the parent alone.
	via string
	// down tells whether it was taken from the parent; it means something in this cache alone.
	down bool
}

// facts are all that a decision is made of.
type facts struct {
	// me is the name of this cache.
	me string
	// here is the object in this cache, above the one in the parent.
	here, above copied
	// owned tells whether the shard belongs to this cache or one below it; otherwise it belongs to another one, unless
	// nobody has reported of it yet (unowned).
	owned, unowned bool
	// arriving says that the shard belongs elsewhere, and lately reports here: it may be on its way.
	arriving bool
	// goneHere and goneAbove tell whether an object that is missing in that cache is known to be gone, rather than not
	// there yet.
	goneHere, goneAbove bool
}

// action is what is to be done about an object.
type action string

const (
	nothing    action = "nothing"
	createUp   action = "create in the parent"
	updateUp   action = "update in the parent"
	deleteUp   action = "delete in the parent"
	createDown action = "create here"
	updateDown action = "update here"
	deleteDown action = "delete here"
	// contested says that objects of the same shard come from two places. They stay as they are.
	contested action = "contested"
)

// decide is the whole logic of the hierarchy for one object.
func decide(f facts) action {
	published := f.here.exists && !f.here.down // by a shard of ours, or a cache below
	if published && (f.owned || f.unowned) {
		return decideUp(f)
	}
	if published && f.arriving {
		return contested
	}
	switch {
	case f.owned && f.above.exists && !f.here.exists && f.goneHere:
		return deleteUp // also what came another way before the shard came to us
	case f.above.exists && f.above.via == f.me:
		// Ours, and missing here. A copy of it that was taken down is left to its shard, which comes to us.
		if !f.here.exists && f.goneHere {
			return deleteUp
		}
		return nothing
	case f.above.exists && f.above.global:
		return decideDown(f)
	case f.here.exists && (f.above.exists || f.goneAbove):
		// It has ended above, or does not travel any more. It may also be what a shard of ours left when it went away.
		return deleteDown
	}
	return nothing
}

func decideUp(f facts) action {
	ours := f.above.exists && f.above.via == f.me
	switch {
	case !f.here.global && ours:
		return deleteUp
	case !f.here.global:
		return nothing
	case !f.above.exists:
		return createUp
	case !ours && !f.owned:
		return contested
	case !ours || f.above.digest != f.here.digest:
		return updateUp
	}
	return nothing
}

func decideDown(f facts) action {
	switch {
	case !f.here.exists:
		return createDown
	case !f.here.down || f.here.digest != f.above.digest:
		return updateDown
	}
	return nothing
}
