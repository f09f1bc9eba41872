package migration

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"

	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/loopback"
	"github.com/atoll-dev/atoll/shardserver/sharding/publisher"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/tokenkeys"
	"github.com/atoll-dev/atoll/shardserver/transfer"
	"github.com/atoll-dev/atoll/shardserver/usage"
	"github.com/atoll-dev/atoll/shardserver/virtual"
)

// maxMoves is the number of logical clusters that are copied to this shard at once.
const maxMoves = 2

// Config configures what a shard does for migrations.
type Config struct {
	// Shard is the name of this shard, Home that of the shard that stores migrations.
	Shard    string
	Home     string
	Registry *storage.Registry
	Clients  *loopback.Clients
	// Etcd and Prefix are those of the shard. Storages returns the storage prefixes that this replica serves, Scan also
	// further ones that have keys, which other replicas serve. Transformers encrypt at rest and may be nil.
	Etcd         *clientv3.Client
	Prefix       string
	Storages     func(ctx context.Context) ([]string, error)
	Scan         func(ctx context.Context) ([]string, error)
	Transformers value.ResourceTransformers
	// Shortage returns why etcd has no space for what other shards have, or "".
	Shortage func() string
	// Held reports whether this shard is restored and not released: another shard may not have what this one is to delete.
	Held func() bool
	// RecordConfirmation records that a restored shard knows what other shards have received since the backup: later starts serve without asking them.
	RecordConfirmation func(ctx context.Context) error
	// Others returns the names of all shards of the installation, with or without this one, or an error while this process does not
	// know them all. It must not return those of a backup.
	Others  func(ctx context.Context) (map[string]bool, error)
	Fence   Fence
	Origins Connector
	// TokenKeys are the keys of service account tokens of this shard, TokenMaxExpiration is the limit of these tokens (0 means none).
	TokenKeys          tokenkeys.Shard
	TokenMaxExpiration time.Duration
	// ReceiptKey is the result of the function of that name.
	ReceiptKey  []byte
	Publication Publication
	Usage       Usage

	// progressed are the migrations whose progress has changed.
	progressed *controller.Changes
	// confirmed has one event, when a restored shard serves its logical clusters.
	confirmed *controller.Changes
}

// Usage has what the clients of logical clusters have used (package usage). It moves with the logical cluster.
type Usage interface {
	// Handed returns the counts by month that this shard has of a logical cluster.
	Handed(ctx context.Context, cluster logicalcluster.Name) (map[string]usage.Counts, error)
	// Replacement returns the operations that replace the counts of this shard by those of another one.
	Replacement(ctx context.Context, cluster logicalcluster.Name, months map[string]usage.Counts, now time.Time) ([]clientv3.Op, error)
	// Forget deletes the counts of a logical cluster that this shard no longer has.
	Forget(cluster logicalcluster.Name)
}

// Publication is what this shard publishes to others about a logical cluster that moves to it.
type Publication struct {
	// AwaitEndpoints returns when the endpoint slices of exports that the logical cluster has bound have the address of this shard.
	AwaitEndpoints func(ctx context.Context, cluster logicalcluster.Name) error
	// IsComplete reports whether other shards can receive all that they need of the logical cluster from this shard.
	IsComplete func(ctx context.Context, cluster logicalcluster.Name) (bool, error)
}

// awaitEndpoints returns when controllers of providers can find the copy on this shard.
func (p Publication) awaitEndpoints(ctx context.Context, cluster logicalcluster.Name) error {
	if p.AwaitEndpoints == nil {
		return nil
	}
	if err := p.AwaitEndpoints(ctx, cluster); err != nil {
		return fmt.Errorf("waiting for the endpoints of this shard: %w", err)
	}
	return nil
}

// onProgress lets the report on a migration be computed again.
func (c Config) onProgress(key controller.Request) {
	c.progressed.Add(key)
}

// Migrations is what a shard does for migrations, in all three roles.
type Migrations struct {
	cfg         Config
	origin      *originService
	destination *destinationService
	placement   *placementService
	children    *childrenService
	parent      *parentService
	home        *homeController
	outdated    *outdatedService
	restoring   *restoringService
}

// New returns what a shard does for migrations.
func New(cfg Config) *Migrations {
	cfg.progressed, cfg.confirmed = controller.NewChanges(nil), newConfirmed(cfg.Fence)
	transformer := identity.NewEncryptCheckTransformer()
	if cfg.Transformers != nil {
		transformer = cfg.Transformers.TransformerForResource(logicalClusters)
	}
	read := newReader(cfg.Registry, cfg.Shard == cfg.Home)
	stored := &storedClusters{etcd: cfg.Etcd, registry: cfg.Registry, prefix: cfg.Prefix, transformer: transformer}
	keys := transfer.New(transfer.Config{Client: cfg.Etcd, Prefix: cfg.Prefix, Storages: cfg.Storages, Scan: cfg.Scan, Transformers: cfg.Transformers})
	m := &Migrations{
		cfg:         cfg,
		origin:      &originService{cfg: cfg, reader: read, stored: stored, transfer: keys, followings: newFollowings(keys)},
		destination: &destinationService{cfg: cfg, reader: read, stored: stored, transfer: keys, accepts: newAcceptance(cfg.Registry), progress: map[types.UID]progress{}},
		placement:   &placementService{cfg: cfg, reader: read},
		children:    &childrenService{cfg: cfg, reader: read},
		parent:      &parentService{cfg: cfg, reader: read, stored: stored},
		home:        &homeController{cfg: cfg, reader: read},
		outdated:    &outdatedService{cfg: cfg, reader: read, stored: stored, transfer: keys},
	}
	m.restoring = newRestoringService(cfg, read, stored, keys, m.destination)
	m.outdated.parentKnows = m.origin.parentKnows
	m.home.ownReport, m.parent.ownReport = m.report, m.report
	return m
}

// Written returns how many bytes of other shards were written to etcd so far, about.
func (m *Migrations) Written() int64 { return m.destination.transfer.Written() }

// ForgetProgress discards the state of copies from an earlier run of the controllers of this replica: another replica
// has continued since. It is a task of the controllers.
func (m *Migrations) ForgetProgress(context.Context) { m.destination.forgetAll() }

// RestoreWorkspaces takes back workspaces from a backup when it is asked to (package workspacerestore), until the context ends. It is a task of the controllers.
func (m *Migrations) RestoreWorkspaces(ctx context.Context) { m.restoring.run(ctx) }

// FollowOutdated fences the logical clusters that other shards have got since the state of etcd to which this shard was restored, until the context
// ends. It runs in each replica.
func (m *Migrations) FollowOutdated(ctx context.Context) { m.outdated.run(ctx) }

// Confirmed has an event when a restored shard serves its logical clusters.
func (m *Migrations) Confirmed() *controller.Changes { return m.cfg.confirmed }

// OutdatedProblem returns the reason and the message of the condition MovesKnown of the Shard; both are empty if it is True.
func (m *Migrations) OutdatedProblem() (reason, message string) { return m.outdated.Problem() }

// Close ends what this replica follows for destinations.
func (m *Migrations) Close() { m.origin.followings.close() }

// report returns the report of this shard on a migration, or nil. A shard is never both origin and destination of a migration.
func (m *Migrations) report(ctx context.Context, key controller.Request) (*shardingv1alpha1.LogicalClusterMigrationReportSpec, error) {
	spec, err := m.origin.report(ctx, key)
	if err == nil && spec == nil {
		spec, err = m.destination.published(ctx, key)
	}
	if err == nil {
		spec, err = m.addToReport(ctx, key, spec)
	}
	if err != nil {
		return nil, fmt.Errorf("computing the report on migration %q in %q: %w", key.Name, key.ClusterName, err)
	}
	if spec != nil && spec.State == shardingv1alpha1.MigrationServing {
		if err := m.checkPublished(ctx, key); err != nil {
			return nil, err
		}
	}
	return spec, nil
}

// addToReport adds the decision of this shard as the shard of the Workspace, and the next logical cluster below that is to be moved.
func (m *Migrations) addToReport(ctx context.Context, key controller.Request, spec *shardingv1alpha1.LogicalClusterMigrationReportSpec) (*shardingv1alpha1.LogicalClusterMigrationReportSpec, error) {
	migration, err := m.home.migration(ctx, key)
	if err != nil || migration == nil {
		return spec, err
	}
	if spec, err = m.children.report(ctx, migration, spec); err != nil {
		return nil, err
	}
	verdict, err := m.placement.verdict(ctx, key, migration, spec)
	if err != nil || verdict == nil {
		return spec, err
	}
	if spec == nil {
		spec = &shardingv1alpha1.LogicalClusterMigrationReportSpec{Migration: migration.UID}
	}
	spec.Placement = verdict
	return spec, nil
}

// checkPublished returns a conflict, after which the caller tries again, until other shards can receive the objects of a logical
// cluster from this one. The origin removes its own afterwards.
func (m *Migrations) checkPublished(ctx context.Context, key controller.Request) error {
	migration, err := m.destination.migration(ctx, key)
	if err != nil || migration == nil || m.cfg.Publication.IsComplete == nil {
		return err
	}
	cluster, err := logicalcluster.ParseName(migration.Spec.LogicalCluster)
	if err != nil {
		return nil //nolint:nilerr // the API refuses such a name
	}
	switch complete, err := m.cfg.Publication.IsComplete(ctx, cluster); {
	case err != nil:
		return err
	case !complete:
		return apierrors.NewConflict(migrations, key.Name, errors.New("the objects of the logical cluster are not published yet"))
	}
	return nil
}

// VirtualWorkspace returns the virtual workspace in which destinations read the content of logical clusters of this shard.
func (m *Migrations) VirtualWorkspace(serializer runtime.NegotiatedSerializer) *virtual.Workspace {
	return m.origin.virtualWorkspace(serializer)
}

// Controllers returns the controllers of the three roles.
func (m *Migrations) Controllers() []controller.Controller {
	sources := m.home.sources()
	return []controller.Controller{
		{Name: "migration-origin", Sources: sources, Reconcile: m.origin.reconcile},
		{Name: "migration-destination", Sources: sources, Reconcile: m.destination.reconcile, MaxConcurrentReconciles: maxMoves},
		{Name: "migration-parent", Sources: append(m.parent.sources(), m.cfg.progressed.Source(reports)), Reconcile: m.parent.reconcile, MaxConcurrentReconciles: 1},
		{Name: "migration", Sources: append(sources, m.cfg.progressed.Source(reports)), Reconcile: m.home.reconcile},
	}
}

// PublishedSource returns the source of the reports of this shard.
func (m *Migrations) PublishedSource() publisher.Source {
	return publisher.Source{
		Resource: reports,
		Inputs:   append(m.home.sources(), m.cfg.progressed.Source(reports)),
		Desired: func(ctx context.Context, key controller.Request) (runtime.Object, error) {
			spec, err := m.report(ctx, key)
			if err != nil || spec == nil {
				return nil, err
			}
			return &shardingv1alpha1.LogicalClusterMigrationReport{ObjectMeta: metav1.ObjectMeta{Name: key.Name}, Spec: *spec}, nil
		},
	}
}
