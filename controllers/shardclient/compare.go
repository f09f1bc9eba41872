package shardclient

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"k8s.io/client-go/dynamic"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/internal/shardcompare"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// compareTimeout bounds a comparison of all shards of an installation.
const compareTimeout = 2 * time.Minute

// CompareShards compares the Workspaces and logical clusters of all shards of an installation, as far as they concern the one that was restored.
func (c *Clients) CompareShards(ctx context.Context, root *operatorv1alpha1.RootShard, shards []desired.Shard, restored string, before time.Time) (shardcompare.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, compareTimeout)
	defer cancel()
	var identity string
	err := c.withRoot(ctx, root, func(client dynamic.Interface) (err error) {
		identity, err = identityOf(ctx, client, tenancyv1alpha1.SchemeGroupVersion.Group)
		return err
	})
	if err != nil {
		return shardcompare.Result{}, describeError(ctx, err, "requesting RootShard %s", root.Name)
	}
	var all []shardcompare.Shard
	var clients []*http.Client
	defer func() {
		for _, client := range clients {
			client.CloseIdleConnections()
		}
	}()
	for _, shard := range shards {
		config, httpClient, err := c.connectShard(ctx, shard, privilegedCertificate(root))
		if err != nil {
			return shardcompare.Result{}, describeError(ctx, err, "requesting shard %s", shard.Name())
		}
		clients = append(clients, httpClient)
		config.Host += logicalcluster.Wildcard.Path().URLPath()
		client, err := dynamic.NewForConfigAndClient(config, httpClient)
		if err != nil {
			return shardcompare.Result{}, fmt.Errorf("client for %s: %w", config.Host, err)
		}
		all = append(all, shardcompare.Shard{Name: shard.ShardName(), Client: client})
	}
	result, err := shardcompare.Compare(ctx, all, identity, restored, before)
	if err != nil {
		return shardcompare.Result{}, describeError(ctx, err, "comparing the shards of RootShard %s", root.Name)
	}
	return result, nil
}
