package shardclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/pki"
	"github.com/atoll-dev/atoll/internal/drain"
	"github.com/atoll-dev/atoll/internal/moves"
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
		_, err = d.CleanUp(ctx)
		return err
	})
	return progress, describeMoveError(ctx, err, "draining Shard %s", shard.Name)
}

// StopDrain ends a drain: it gives up the moves that can be given up, and opens the shard again if the drain has closed it. It returns the
// moves that have not ended.
func (c *Clients) StopDrain(ctx context.Context, root *operatorv1alpha1.RootShard, shard *operatorv1alpha1.Shard) (running drain.Progress, err error) {
	err = c.withDrain(ctx, desired.NewShard(shard, root), func(d *drain.Drain) error {
		running, err = d.StopAndOpen(ctx)
		return err
	})
	return running, describeMoveError(ctx, err, "draining Shard %s", shard.Name)
}

// Migrations returns the names of the migrations from or to a shard that have not ended, in all workspaces: data of the shard is in use, or on
// its way, whatever is counted on the shard.
func (c *Clients) Migrations(ctx context.Context, root *operatorv1alpha1.RootShard, shard *operatorv1alpha1.Shard) ([]string, error) {
	name := desired.NewShard(shard, root).ShardName()
	all, err := c.allMigrations(ctx, root)
	if err != nil {
		return nil, describeError(ctx, err, "requesting RootShard %s", root.Name)
	}
	var found []string
	for i := range all {
		if moves.IsRunning(&all[i]) && (all[i].Status.OriginShard == name || all[i].Spec.DestinationShard == name) {
			found = append(found, all[i].Name)
		}
	}
	return found, nil
}

// allMigrations returns the migrations in all logical clusters of the root shard, which alone stores them.
func (c *Clients) allMigrations(ctx context.Context, root *operatorv1alpha1.RootShard) ([]migrationv1alpha1.LogicalClusterMigration, error) {
	resource := migrationv1alpha1.SchemeGroupVersion.WithResource("logicalclustermigrations")
	err := c.withRoot(ctx, root, func(client dynamic.Interface) error {
		identity, err := identityOf(ctx, client, migrationv1alpha1.SchemeGroupVersion.Group)
		resource.Resource += ":" + identity // a list of all logical clusters requires the identity
		return err
	})
	if apierrors.IsNotFound(err) {
		return nil, nil // a version without migrations
	}
	if err != nil {
		return nil, err
	}
	var all []migrationv1alpha1.LogicalClusterMigration
	err = c.withShard(ctx, desired.NewRootShard(root), logicalcluster.Wildcard.Path(), func(client dynamic.Interface) error {
		return moves.ForEach(ctx, client.Resource(resource), metav1.ListOptions{}, func(object *unstructured.Unstructured) error {
			migration, err := moves.Decode(object)
			if err == nil {
				all = append(all, *migration)
			}
			return err
		})
	})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return all, err
}

func describeMoveError(ctx context.Context, err error, format string, args ...any) error {
	if err == nil || errors.Is(err, moves.ErrFeatureDisabled) {
		return err
	}
	return describeError(ctx, err, format, args...)
}

// withDrain calls do with the drain of a shard, as the operator, and closes its connections.
func (c *Clients) withDrain(ctx context.Context, shard desired.Shard, do func(*drain.Drain) error) error {
	return c.withMoves(ctx, shard.Root(), func(client moves.Client) error {
		return do(&drain.Drain{
			Client: client, Shard: shard.ShardName(), Concurrency: drain.DefaultConcurrency,
			Inventory: func(ctx context.Context) (moves.Inventory, error) { return c.inventory(ctx, shard) },
			Sizes: func(ctx context.Context, names []logicalcluster.Name) (map[string]int64, error) {
				return c.sizes(ctx, shard, names)
			},
		})
	})
}

// sizes returns the numbers of objects of logical clusters on a shard.
func (c *Clients) sizes(ctx context.Context, shard desired.Shard, names []logicalcluster.Name) (map[string]int64, error) {
	config, httpClient, err := c.connectShard(ctx, shard, privilegedCertificate(shard.Root()))
	if err != nil {
		return nil, err
	}
	defer httpClient.CloseIdleConnections()
	return moves.Sizes(ctx, httpClient, config.Host, names)
}

// inventory returns what is on a shard.
func (c *Clients) inventory(ctx context.Context, shard desired.Shard) (found moves.Inventory, err error) {
	err = c.withShard(ctx, shard, logicalcluster.Wildcard.Path(), func(client dynamic.Interface) error {
		found, err = moves.List(ctx, client)
		return err
	})
	return found, err
}

// withMoves calls do with a client of an installation, as the operator, and closes its connections.
func (c *Clients) withMoves(ctx context.Context, root *operatorv1alpha1.RootShard, do func(moves.Client) error) error {
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
	return do(moves.Client{
		Admin: admin,
		At: func(path logicalcluster.Path) (dynamic.Interface, error) {
			if path == logicalcluster.Root.Path() {
				return clientAt(rootConfig, rootHTTP, path.URLPath())
			}
			return clientAt(proxyConfig, proxyHTTP, path.URLPath())
		},
		Elsewhere: func(ctx context.Context) ([]migrationv1alpha1.LogicalClusterMigration, error) {
			return c.allMigrations(ctx, root)
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
