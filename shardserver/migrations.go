package shardserver

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/client-go/rest"

	"github.com/atoll-dev/atoll/internal/restoremark"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiexport/endpointslice"
	"github.com/atoll-dev/atoll/shardserver/etcdkeys"
	"github.com/atoll-dev/atoll/shardserver/migration"
	"github.com/atoll-dev/atoll/shardserver/options"
	"github.com/atoll-dev/atoll/shardserver/sharding/endpoints"
)

// shardMigrations is what moves logical clusters between this shard and others.
type shardMigrations struct {
	*migration.Migrations
	etcd *clientv3.Client
}

// createMigrations creates what moves logical clusters between shards, if the feature is enabled.
func (d *dependencies) createMigrations(ctx context.Context) error {
	if !d.options.FeatureEnabled(options.GateLogicalClusterMigration) {
		return nil
	}
	storage := d.options.Etcd.StorageConfig
	etcd, err := etcdkeys.Connect(storage.Transport)
	if err != nil {
		return err
	}
	receiptKey, err := migration.ReceiptKey(ctx, etcd, storage.Prefix)
	if err != nil {
		_ = etcd.Close()
		return explainStorageError(err, storage.Transport)
	}
	d.migrations = &shardMigrations{etcd: etcd, Migrations: migration.New(migration.Config{
		Shard: d.options.Shard.Name, Home: options.DefaultShardName, Registry: d.registry, Clients: d.clients,
		Etcd: etcd, Prefix: storage.Prefix, Storages: d.keys.StoragePrefixes, Scan: d.keys.ScanStoragePrefixes, Transformers: d.restOptions.transformers,
		Shortage:           d.shortage,
		Held:               d.restored.Held,
		Others:             d.liveShards,
		RecordConfirmation: func(ctx context.Context) error { return restoremark.RecordConfirmation(ctx, etcd, storage.Prefix) },
		Fence:              d.fence,
		Origins:            migration.Connector{Shards: endpoints.NewShardLister(d.registry), Config: d.originConfig},
		Publication: migration.Publication{
			AwaitEndpoints: endpointslice.NewAnnouncement(d.sliceConfig()).Await,
			IsComplete:     d.isPublished,
		},
		ReceiptKey: receiptKey,
		Usage:      d.usage,
		TokenKeys:  d.tokenKeys, TokenMaxExpiration: d.options.Authentication.ServiceAccounts.MaxExpiration,
	})}
	if err := d.virtual.Register(d.migrations.VirtualWorkspace(d.generic.Serializer)); err != nil {
		return fmt.Errorf("adding the virtual workspace of migrations: %w", err)
	}
	return nil
}

// shortage returns why this shard stores nothing more of other shards, or "".
func (d *dependencies) shortage() string { return d.space.Space().CopyShortage() }

// written returns the bytes that this process has written to etcd so far.
func (d *dependencies) written() int64 {
	written := d.objectCounts.Written()
	if d.migrations != nil {
		written += d.migrations.Written()
	}
	return written
}

// liveShards returns the names of the shards of the installation, or an error until the cache server was listed since the start.
func (d *dependencies) liveShards(ctx context.Context) (map[string]bool, error) {
	if d.replication != nil {
		return d.replication.replica.LiveShards(ctx)
	}
	all, err := endpoints.NewShardLister(d.registry).List(ctx)
	if err != nil {
		return nil, err
	}
	names := make(map[string]bool, len(all))
	for _, shard := range all {
		names[shard.Name] = true
	}
	return names, nil
}

// isPublished reports whether the cache server has the objects of a logical cluster that other shards need.
func (d *dependencies) isPublished(ctx context.Context, cluster logicalcluster.Name) (bool, error) {
	if d.replication == nil {
		return true, nil
	}
	return d.replication.publisher.IsPublished(ctx, cluster)
}

// errNoShardCertificate is the reason why nothing can move to this shard.
var errNoShardCertificate = errors.New("it has no client certificate for other shards: set --shard-client-cert-file and --shard-client-key-file")

// originConfig returns the credentials for the origins of migrations.
func (d *dependencies) originConfig() (*rest.Config, error) {
	shard := d.options.Shard
	if shard.ClientCertFile == "" {
		return nil, errNoShardCertificate
	}
	return &rest.Config{
		UserAgent:       rest.DefaultKubernetesUserAgent() + " shard/" + shard.Name,
		TLSClientConfig: rest.TLSClientConfig{CertFile: shard.ClientCertFile, KeyFile: shard.ClientKeyFile, CAFile: shard.VirtualWorkspaceCA},
	}, nil
}

// migrationRefusal returns why this shard accepts no migrations of logical clusters, or "".
func (d *dependencies) migrationRefusal() string {
	switch {
	case !d.options.FeatureEnabled(options.GateLogicalClusterMigration):
		return "logical clusters cannot be moved between shards while the feature gate LogicalClusterMigration is disabled; create the workspace on the other shard (spec.location.selector), and copy its objects"
	case !d.options.IsRoot():
		return "shards follow migrations that the root shard stores only: create it in a workspace on the root shard"
	}
	return ""
}
