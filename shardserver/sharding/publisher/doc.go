// Package publisher publishes into the cache server the objects of this shard that other shards need, under its name.
// Sources compute the published objects: each is a pure function of the shard's own objects. A crash at any moment is
// therefore harmless, and everything is published again after the cache lost it. Only the publisher writes there.
//
// Sources of objects that are published unchanged are in this package; sources of derived objects are with their
// owners. Objects of other shards are in package replica.
//
// # The guarantee of a complete report
//
// The report of a shard is complete from some resource version of the cache's store on, for as long as that report
// exists. A reader that has read the watches of this store up to that version has seen every object that the shard
// desired when the resync before the report began (resync.go), in a state of that moment or later. An object
// that is not in the watches by then did not exist, or was deleted since. Nothing more is guaranteed: later objects and
// later states arrive eventually; an object that is being deleted but has finalizers is not published again where it
// was lost; and objects that are published but not desired are deleted by then.
//
// An object therefore counts once it was published after the resync began, whether or not it has changed again. A
// resync ends after as many writes as there are objects, whatever tenants write in the meantime. One object that cannot
// be written blocks it: readers would treat its absence as its deletion. The exception is an object that the cache refuses
// because of its content: admission prevents it, and a condition of the shard reports what passed admission all the same.
// Requests and reports of logical clusters do not block it while they depend on those of other shards (ErrAwaitsOthers): shards that
// start with an empty cache would wait for each other, and the absence of a request or a report proves nothing.
//
// A restored shard that does not know yet which logical clusters others have got since the backup (Restored) leaves what is published, and reports that it is complete:
// restored shards that waited for each other would never start. In a cache that has lost its objects, the guarantee is less until then. Objects of its logical clusters but root
// are absent. Objects that are derived from several logical clusters are those of the backup, so that endpoint slices keep the address of this shard and limits count its workspaces, both
// also for what has moved since; those that need an export or a limit of another shard are absent until that is synced.
//
// An object of a logical cluster that has moved to another shard stays published until that shard has published all objects of
// the logical cluster (IsPublished), which it reports before the origin deletes the remaining keys. Readers accept either object.
//
// The guarantee is per store. The complete report is an update of a report that was in that store before the resync
// ended, so it is never written to another store. The loss of a report revokes the guarantee and restarts a running
// resync.
package publisher
