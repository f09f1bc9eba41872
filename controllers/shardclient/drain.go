package shardclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/pki"
	"github.com/atoll-dev/atoll/internal/drain"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// Drain closes a shard for new workspaces, and starts to move some of those that it has, unless as many as may move do already.
func (c *Clients) Drain(ctx context.Context, root *operatorv1alpha1.RootShard, shard *operatorv1alpha1.Shard, now time.Time) (progress drain.Progress, err error) {
	err = c.withDrain(ctx, desired.NewShard(shard, root), func(d *drain.Drain) error {
		if err := d.Begin(ctx); err != nil {
			return err
		}
		if progress, err = d.Step(ctx, now); err != nil || !progress.IsDone() {
			return err
		}
		return d.CleanUp(ctx)
	})
	return progress, describeDrainError(ctx, err, shard)
}

// StopDrain ends a drain: it gives up the moves that can be given up, and opens the shard again if the drain has closed it. It returns how
// many moves have not ended.
func (c *Clients) StopDrain(ctx context.Context, root *operatorv1alpha1.RootShard, shard *operatorv1alpha1.Shard) (running int, err error) {
	err = c.withDrain(ctx, desired.NewShard(shard, root), func(d *drain.Drain) error {
		running, err = d.StopAndOpen(ctx)
		return err
	})
	return running, describeDrainError(ctx, err, shard)
}

func describeDrainError(ctx context.Context, err error, shard *operatorv1alpha1.Shard) error {
	if err == nil || errors.Is(err, drain.ErrFeatureDisabled) {
		return err
	}
	return describeError(ctx, err, "draining Shard %s", shard.Name)
}

// withDrain calls do with the drain of a shard, as the operator, and closes its connections.
func (c *Clients) withDrain(ctx context.Context, shard desired.Shard, do func(*drain.Drain) error) error {
	root := shard.Root()
	rootConfig, rootHTTP, err := c.connectShard(ctx, desired.NewRootShard(root), pki.OperatorCertificate(root))
	if err != nil {
		return err
	}
	defer rootHTTP.CloseIdleConnections()
	proxyConfig, proxyHTTP, err := c.Connect(ctx, root, desired.InternalProxyURL(root))
	if err != nil {
		return err
	}
	defer proxyHTTP.CloseIdleConnections()
	admin, err := clientAt(rootConfig, rootHTTP, "/services/admin")
	if err != nil {
		return err
	}
	return do(&drain.Drain{
		Shard: shard.ShardName(), Concurrency: drain.DefaultConcurrency, Admin: admin,
		At: func(path logicalcluster.Path) (dynamic.Interface, error) {
			if path == logicalcluster.Root.Path() {
				return clientAt(rootConfig, rootHTTP, path.URLPath())
			}
			return clientAt(proxyConfig, proxyHTTP, path.URLPath())
		},
		Inventory: func(ctx context.Context) (found drain.Inventory, err error) {
			err = c.withShard(ctx, shard, logicalcluster.Wildcard.Path(), func(client dynamic.Interface) error {
				found, err = drain.List(ctx, client)
				return err
			})
			return found, err
		},
	})
}

func clientAt(config *rest.Config, httpClient *http.Client, path string) (dynamic.Interface, error) {
	config = rest.CopyConfig(config)
	config.Host += path
	client, err := dynamic.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", config.Host, err)
	}
	return client, nil
}
