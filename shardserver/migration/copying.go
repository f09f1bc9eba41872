package migration

import (
	"context"
	"fmt"
	"time"

	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/transfer"
)

// copying copies one logical cluster to this shard.
type copying struct {
	destination *destinationService
	origin      *originClient
	key         controller.Request
	in          transfer.Incoming
	writer      *transfer.Writer
	// pausedAt is when writes were paused.
	pausedAt time.Time
}

// run copies while the logical cluster is open, until little changes between two passes, pauses writes, copies the rest, and asks
// the origin to hand over.
func (c *copying) run(ctx context.Context) (*handOverResponse, error) {
	for range maxPasses {
		changed, err := c.pass(ctx)
		if err != nil {
			return nil, err
		}
		if changed <= fewKeys {
			break
		}
	}
	if err := c.destination.cfg.Publication.awaitEndpoints(ctx, c.in.Cluster); err != nil {
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

// finish copies the rest during a pause, and asks the origin to hand over.
func (c *copying) finish(ctx context.Context, paused *pauseResponse) (*handOverResponse, error) {
	if _, err := c.pass(ctx); err != nil {
		return nil, err
	}
	digest, err := c.destination.transfer.CopiedDigest(ctx, c.in)
	if err != nil {
		return nil, err
	}
	return c.origin.handOver(ctx, handOverRequest{Token: paused.Token, Digest: digest})
}

// pass makes the copied objects those that the origin has, and returns how many differed.
func (c *copying) pass(ctx context.Context) (changed int, err error) {
	wanted, err := c.origin.manifest(ctx)
	if err != nil {
		return 0, fmt.Errorf("reading the list of objects: %w", err)
	}
	copied, err := c.destination.transfer.Copied(ctx, c.in)
	if err != nil {
		return 0, err
	}
	missing, obsolete := transfer.Difference(wanted.Versions, copied)
	if err := c.writer.Delete(ctx, obsolete); err != nil {
		return 0, err
	}
	changed = len(missing) + len(obsolete)
	entries := int64(len(wanted.Versions) - len(missing))
	for len(missing) > 0 {
		page := missing[:min(len(missing), maxKeysPerRequest)]
		if err := c.destination.checkWanted(ctx, c.key, c.in.UID); err != nil {
			return 0, err
		}
		response, err := c.origin.entries(ctx, page)
		if err != nil {
			return 0, fmt.Errorf("reading objects: %w", err)
		}
		if err := c.destination.accepts.check(page, response); err != nil {
			return 0, err
		}
		if err := c.writer.Store(ctx, response.Entries); err != nil {
			return 0, err
		}
		countCopied(response.Entries)
		missing = append(response.Rest, missing[len(page):]...)
		entries += int64(len(response.Entries))
		c.destination.report(c.key, c.in.UID, progress{entries: entries})
	}
	return changed, nil
}
