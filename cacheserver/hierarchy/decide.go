package hierarchy

import "github.com/atoll-dev/atoll/cacheserver/client"

// Annotations of copies.
const (
	// ViaAnnotation names the child cache that copied the object to this one.
	ViaAnnotation = client.ViaAnnotation
	// DownAnnotation is set on objects that were copied from the parent.
	DownAnnotation = client.DownAnnotation
)

// summary is what decide needs of an object in a cache.
type summary struct {
	exists bool
	// digest is of the published content, without the annotations of caches.
	digest digest
	// global is whether the object has global reach.
	global bool
	// via is the child cache that copied it; meaningful in the parent only.
	via string
	// down is whether it was copied from the parent; meaningful in this cache only.
	down bool
}

// decisionInput is the input of decide.
type decisionInput struct {
	// cacheName is the name of this cache.
	cacheName string
	// local is the object in this cache, parent that in the parent cache.
	local, parent summary
	// owned is whether the shard belongs to this cache or one below. Otherwise it belongs to another cache, or, if
	// unowned, its report has reached none.
	owned, unowned bool
	// moving is whether the shard belongs to another cache, and recently reported in this one: it may be moving here.
	moving bool
	// deletedLocally and deletedInParent are whether an object that is missing in that cache is deleted, rather than
	// not there yet.
	deletedLocally, deletedInParent bool
}

// action is the operation on an object.
type action string

const (
	noAction       action = "nothing"
	createInParent action = "create in the parent"
	updateInParent action = "update in the parent"
	deleteInParent action = "delete in the parent"
	createLocal    action = "create here"
	updateLocal    action = "update here"
	deleteLocal    action = "delete here"
	// conflict: two caches claim the objects of a shard, which stay as they are.
	conflict action = "contested"
)

// decide returns the operation on one object. It is the only place with rules of the hierarchy.
func decide(f decisionInput) action {
	published := f.local.exists && !f.local.down // by a shard of this cache, or one below
	if published && (f.owned || f.unowned) {
		return decideUp(f)
	}
	if published && f.moving {
		return conflict
	}
	switch {
	case f.owned && f.parent.exists && !f.local.exists && f.deletedLocally:
		return deleteInParent // also copies of other caches from before the shard moved here
	case f.parent.exists && f.parent.via == f.cacheName:
		// Copied by this cache, and missing here. A copy from the parent is left to its shard, which is moving here.
		if !f.local.exists && f.deletedLocally {
			return deleteInParent
		}
		return noAction
	case f.parent.exists && f.parent.global:
		return decideDown(f)
	case f.local.exists && (f.parent.exists || f.deletedInParent):
		// It is deleted in the parent, or has lost its global reach. It may also be left of a shard that moved away.
		return deleteLocal
	}
	return noAction
}

func decideUp(f decisionInput) action {
	ours := f.parent.exists && f.parent.via == f.cacheName
	switch {
	case !f.local.global && ours:
		return deleteInParent
	case !f.local.global:
		return noAction
	case !f.parent.exists:
		return createInParent
	case !ours && !f.owned:
		return conflict
	case !ours || f.parent.digest != f.local.digest:
		return updateInParent
	}
	return noAction
}

func decideDown(f decisionInput) action {
	switch {
	case !f.local.exists:
		return createLocal
	case !f.local.down || f.local.digest != f.parent.digest:
		return updateLocal
	}
	return noAction
}
