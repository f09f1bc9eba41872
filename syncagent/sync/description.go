package sync

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/internal/background"
	"github.com/atoll-dev/atoll/syncagent/view"
)

const (
	// describeDelay is how long the agent collects changes of synced publications before it writes the description of the syncer's view;
	// describeInterval is how often it checks the description without a change.
	describeDelay, describeInterval = time.Second, time.Minute
)

// ExportClient writes the description of the syncer's view.
type ExportClient struct {
	Client client.Client
	Name   string
}

// describeViews writes the description of the syncer's view when the synced publications have changed, until the context ends. Without
// the description, the agent reads objects from the virtual workspace of the export.
func (c *Controller) describeViews(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.changed:
		case <-time.After(describeInterval):
		}
		if !background.Sleep(ctx, describeDelay) {
			return
		}
		if c.shared.export == nil {
			continue
		}
		if err := view.Publish(ctx, c.shared.export.Client, c.shared.export.Name, c.published()); err != nil && ctx.Err() == nil {
			c.shared.log.Error(err, "Failed to describe the syncer's view")
		}
	}
}

// published returns the publications that are synced.
func (c *Controller) published() []view.Published {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]view.Published, 0, len(c.running))
	for _, running := range c.running {
		all = append(all, running.published())
	}
	return all
}
