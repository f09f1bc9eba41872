package migration

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/transfer"
)

// copying copies one logical cluster to this shard.
type copying struct {
	destination *destinationService
	origin      *originClient
	key         controller.Request
	cluster     logicalcluster.Name
	uid         types.UID
}

// run copies while the logical cluster is open, until little changes between two passes, pauses writes, copies the rest, and
// takes over. The result of every pass is staged, so that the next call goes on from there.
//
// If the origin has handed over already, and this shard has not stored the answer, it asks for it again.
func (c *copying) run(ctx context.Context, handedOver bool) error {
	if handedOver {
		handed, err := c.origin.handOver(ctx, handOverRequest{})
		if err != nil {
			return err
		}
		return c.destination.takeOver(ctx, c.cluster, c.uid, handed)
	}
	for range maxPasses {
		changed, err := c.pass(ctx)
		if err != nil {
			return err
		}
		if changed <= fewKeys {
			break
		}
	}
	if err := c.destination.cfg.Publication.awaitEndpoints(ctx, c.cluster); err != nil {
		return err
	}
	paused, err := c.origin.pause(ctx)
	if err != nil {
		return fmt.Errorf("pausing writes: %w", err)
	}
	handed, err := c.finish(ctx, paused)
	if err != nil {
		_ = c.origin.resume(context.WithoutCancel(ctx)) // otherwise the pause ends by itself
		return err
	}
	return c.destination.takeOver(ctx, c.cluster, c.uid, handed)
}

// finish copies the rest during a pause, and asks the origin to hand over.
func (c *copying) finish(ctx context.Context, paused *pauseResponse) (*handOverResponse, error) {
	if _, err := c.pass(ctx); err != nil {
		return nil, err
	}
	digest, err := c.destination.transfer.StagedDigest(ctx, c.cluster, c.uid)
	if err != nil {
		return nil, err
	}
	return c.origin.handOver(ctx, handOverRequest{Token: paused.Token, Digest: digest})
}

// pass makes the staged objects those that the origin has, and returns how many differed.
func (c *copying) pass(ctx context.Context) (changed int, err error) {
	wanted, err := c.origin.manifest(ctx)
	if err != nil {
		return 0, fmt.Errorf("reading the list of objects: %w", err)
	}
	staged, err := c.destination.transfer.Staged(ctx, c.cluster, c.uid)
	if err != nil {
		return 0, err
	}
	missing, obsolete := transfer.Difference(wanted.Versions, staged)
	if err := c.destination.transfer.Unstage(ctx, c.cluster, c.uid, obsolete); err != nil {
		return 0, err
	}
	changed = len(missing) + len(obsolete)
	copied := int64(len(wanted.Versions) - len(missing))
	for len(missing) > 0 {
		page := missing[:min(len(missing), maxKeysPerRequest)]
		response, err := c.origin.entries(ctx, page)
		if err != nil {
			return 0, fmt.Errorf("reading objects: %w", err)
		}
		if err := c.destination.transfer.Stage(ctx, c.cluster, c.uid, response.Entries); err != nil {
			return 0, err
		}
		missing = append(response.Rest, missing[len(page):]...)
		copied += int64(len(response.Entries))
		c.destination.report(c.key, c.uid, progress{entries: copied})
	}
	return changed, nil
}
