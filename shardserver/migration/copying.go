package migration

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/transfer"
)

// maxFirstRead bounds how long a destination waits until the origin has read all values: another move may be waiting.
const maxFirstRead = 10 * time.Minute

// copying copies one logical cluster to this shard.
type copying struct {
	destination *destinationService
	origin      *originClient
	key         controller.Request
	in          transfer.Incoming
	writer      *transfer.Writer
	// checkWanted returns an error if the migration has been given up.
	checkWanted func(context.Context) error
	// since is the revision of the origin up to which all changes are copied.
	since int64
	// keys is the number of keys of the origin, and entries that of those which are copied, for the report.
	keys, entries int64
	// storages are those with copied keys. This shard may not serve all of them before the logical cluster is open.
	storages map[string]bool
	// copied follows the copy; nil until all is copied once.
	copied *transfer.Follower
	// pausedAt is when writes were paused.
	pausedAt time.Time
}

// close frees the state of the copy.
func (c *copying) close() {
	if c.copied != nil {
		c.copied.Close()
	}
}

// run copies while the logical cluster is open, until little changes between two passes, reads and compares all that it has copied, pauses
// writes, copies the rest, and requests the hand-over.
func (c *copying) run(ctx context.Context) (*handOverResponse, error) {
	if err := c.destination.checkSpace(); err != nil {
		return nil, err
	}
	wanted, err := c.changes(ctx, 0)
	if err != nil {
		return nil, fmt.Errorf("reading the list of objects: %w", err)
	}
	stop := c.origin.keepFollowing(ctx)
	defer stop()
	if err := c.copyAll(ctx, wanted); err != nil {
		return nil, err
	}
	if err := c.catchUp(ctx); err != nil {
		return nil, err
	}
	own, err := c.destination.stored.ownKey()
	if err != nil {
		return nil, err
	}
	if c.copied, err = c.destination.transfer.Follow(ctx, c.in.Cluster, own, c.storageNames()...); err != nil {
		return nil, err
	}
	// What differs has changed since it was listed, or is damaged, although it was copied in the version of the list.
	if err := c.fetch(ctx, c.copied.Differing(wanted.Changed)); err != nil {
		return nil, err
	}
	if err := c.destination.cfg.Publication.awaitEndpoints(ctx, c.in.Cluster); err != nil {
		return nil, err
	}
	if err := c.catchUp(ctx); err != nil {
		return nil, err
	}
	if err := c.destination.checkSpace(); err != nil {
		return nil, err
	}
	c.pausedAt = time.Now()
	paused, err := c.origin.pause(ctx)
	if err != nil {
		return nil, fmt.Errorf("pausing writes: %w", err)
	}
	handed, err := c.finish(ctx, paused)
	if err != nil {
		_ = c.origin.resume(context.WithoutCancel(ctx)) // otherwise the pause ends by itself
	}
	return handed, err
}

// finish copies the rest during a pause, and requests the hand-over. Its cost depends on the number of changes, not of objects.
func (c *copying) finish(ctx context.Context, paused *pauseResponse) (*handOverResponse, error) {
	if _, err := c.pass(ctx); err != nil {
		return nil, err
	}
	digest, err := c.copied.Digest(ctx, c.storageNames()...)
	if err != nil {
		return nil, err
	}
	if err := c.destination.checkSpace(); err != nil { // afterwards nobody serves the logical cluster until this shard has stored its LogicalCluster
		return nil, err
	}
	handed, err := c.origin.handOver(ctx, handOverRequest{Token: paused.Token, Digest: digest})
	if err == nil {
		return handed, nil
	}
	// The origin may have handed over without an answer. Then no shard serves the logical cluster until this shard has repeated the request.
	if handed, again := c.origin.handOver(ctx, handOverRequest{Token: paused.Token, Digest: digest}); again == nil {
		return handed, nil
	}
	return nil, err
}

// copyAll copies of all keys of the origin what an earlier attempt has not.
func (c *copying) copyAll(ctx context.Context, wanted *transfer.Changes) error {
	copied, err := c.destination.transfer.Copied(ctx, c.in)
	if err != nil {
		return err
	}
	for _, version := range copied {
		c.storages[version.Resource] = true
	}
	missing, obsolete := transfer.Difference(wanted.Changed, copied)
	if err := c.writer.Delete(ctx, obsolete); err != nil {
		return err
	}
	c.since, c.keys, c.entries = wanted.Revision, wanted.Keys, int64(len(wanted.Changed)-len(missing))
	return c.fetch(ctx, missing)
}

// changes returns what has changed at the origin since a revision. At first it waits until the origin has read all values, unless the
// migration is aborted meanwhile. It sends a request at most every followingWait, for at most maxFirstRead,
// even if the origin answers without having waited.
func (c *copying) changes(ctx context.Context, since int64) (*transfer.Changes, error) {
	deadline := time.Now().Add(maxFirstRead)
	for time.Now().Before(deadline) {
		if err := c.checkWanted(ctx); err != nil {
			return nil, err
		}
		next := time.After(followingWait)
		if changes, err := c.origin.changes(ctx, since); err != nil || changes != nil {
			return changes, err
		}
		select {
		case <-next:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return nil, fmt.Errorf("the origin has not read all objects within %s: check the load of its etcd", maxFirstRead)
}

// catchUp copies changes until a pass has only few.
func (c *copying) catchUp(ctx context.Context) error {
	for range maxPasses {
		changed, err := c.pass(ctx)
		if err != nil {
			return err
		}
		if changed <= fewKeys {
			break
		}
	}
	return nil
}

// pass copies the changes since the previous pass, and returns their number of keys.
func (c *copying) pass(ctx context.Context) (changed int, err error) {
	changes, err := c.changes(ctx, c.since)
	if err != nil {
		return 0, fmt.Errorf("reading the changes of objects: %w", err)
	}
	if err := c.writer.Delete(ctx, changes.Gone); err != nil {
		return 0, err
	}
	keys := make([]transfer.Key, len(changes.Changed))
	for i, listed := range changes.Changed {
		keys[i] = listed.Key
	}
	c.since, c.keys = changes.Revision, changes.Keys
	return len(keys) + len(changes.Gone), c.fetch(ctx, keys)
}

// fetch copies keys. Those that are gone are left as they are: the next changes have them.
func (c *copying) fetch(ctx context.Context, missing []transfer.Key) error {
	for len(missing) > 0 {
		page := firstPage(missing)
		if err := c.checkWanted(ctx); err != nil {
			return err
		}
		response, err := c.origin.entries(ctx, page)
		if err != nil {
			return fmt.Errorf("reading objects: %w", err)
		}
		if err := c.destination.accepts.check(page, response); err != nil {
			return err
		}
		if err := c.destination.checkSpace(); err != nil {
			return err
		}
		if err := c.writer.Store(ctx, response.Entries); err != nil {
			return err
		}
		for _, entry := range response.Entries {
			c.storages[entry.Resource] = true
		}
		countCopied(response.Entries)
		missing = append(response.Rest, missing[len(page):]...)
		c.entries = min(c.entries+int64(len(response.Entries)), c.keys) // one that has changed is not another one
		c.destination.report(c.key, c.in.UID, progress{entries: c.entries})
	}
	return nil
}

// firstPage returns as many of the keys as fit into a request, at least one.
func firstPage(keys []transfer.Key) []transfer.Key {
	bytes := 0
	for i, key := range keys {
		if bytes += len(key.Resource) + len(key.Name); i > 0 && (i == maxKeysPerRequest || bytes > maxKeyBytesPerRequest) {
			return keys[:i]
		}
	}
	return keys
}

func (c *copying) storageNames() []string { return slices.Collect(maps.Keys(c.storages)) }
