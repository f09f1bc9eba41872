package migration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	exactjson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/klog/v2"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/tokenkeys"
	"github.com/atoll-dev/atoll/shardserver/transfer"
)

const (
	// maxPasses is how often the destination copies what has changed since the previous time, before it pauses writes.
	maxPasses = 5
	// fewKeys are copied within a pause that nobody notices.
	fewKeys = 100
)

// destinationService copies logical clusters from other shards, and takes them over.
type destinationService struct {
	cfg Config
	reader
	stored   *storedClusters
	transfer *transfer.Transfer

	mu sync.Mutex
	// progress is that of the migrations that this process works on. A migration is removed when the work on it has ended.
	progress map[types.UID]progress
}

type progress struct {
	entries         int64
	reason, message string
}

func (d *destinationService) observe(ctx context.Context, key controller.Request) (Destination, error) {
	state := Destination{Shard: d.cfg.Shard, Reference: Reference(key.ClusterName, key.Name)}
	var err error
	if state.Migration, err = d.migration(ctx, key); err != nil {
		return state, err
	}
	name, ok := d.clusterName(ctx, key, state.Migration)
	if !ok {
		return state, nil
	}
	if state.Cluster, err = d.cluster(ctx, name); err != nil || state.Migration == nil || state.Migration.Spec.DestinationShard != d.cfg.Shard {
		return state, err
	}
	if state.Staged, err = d.isStaged(ctx, name, state.Migration.UID); err != nil {
		return state, err
	}
	report, err := d.reportBy(ctx, key, state.Migration, state.Migration.Status.OriginShard)
	state.OriginAborted = report.State == shardingv1alpha1.MigrationAborted
	return state, err
}

// isStaged reports whether objects of a migration are staged.
func (d *destinationService) isStaged(ctx context.Context, cluster logicalcluster.Name, migration types.UID) (bool, error) {
	all, err := d.transfer.Stagings(ctx)
	if err != nil {
		return false, err
	}
	for _, staging := range all {
		if staging.Cluster == cluster && staging.UID == migration {
			return true, nil
		}
	}
	return false, nil
}

// reconcile is the controller of migrations to this shard.
func (d *destinationService) reconcile(ctx context.Context, key controller.Request) (controller.Result, error) {
	state, err := d.observe(ctx, key)
	if err != nil {
		return controller.Result{}, err
	}
	switch state.Step() {
	case DestinationCopy:
		return controller.Result{}, d.move(ctx, key, state.Migration)
	case DestinationActivate:
		return controller.Result{}, d.activate(ctx, logicalcluster.Of(state.Cluster), types.UID(state.Cluster.Annotations[corev1alpha1.ArrivingAnnotationKey]))
	case DestinationFinish:
		return controller.Result{}, d.finish(ctx, state)
	case DestinationDrop:
		cluster, _ := logicalcluster.ParseName(state.Migration.Spec.LogicalCluster)
		if err := d.drop(ctx, transfer.Staging{Cluster: cluster, UID: state.Migration.UID}); err != nil {
			return controller.Result{}, err
		}
		d.cfg.onProgress(key)
	}
	switch {
	case state.Migration == nil:
		return controller.Result{}, d.dropLeftovers(ctx)
	case isGivenUp(state.Migration):
		d.forget(state.Migration.UID)
	}
	return controller.Result{}, nil
}

func (d *destinationService) drop(ctx context.Context, staging transfer.Staging) error {
	d.forget(staging.UID)
	return d.transfer.DropStaged(ctx, staging.Cluster, staging.UID)
}

// dropLeftovers removes what is known of migrations that do not exist, and what is staged for them. A late copy may have staged it
// after their end.
func (d *destinationService) dropLeftovers(ctx context.Context) error {
	if err := d.migrations.CheckSynced(); err != nil {
		return err
	}
	all, err := d.migrations.List(logicalcluster.With(ctx, logicalcluster.Wildcard), "", nil)
	if err != nil {
		return fmt.Errorf("listing migrations: %w", err)
	}
	exists := map[types.UID]bool{}
	for _, migration := range all {
		exists[migration.UID] = true
	}
	d.forgetExcept(exists)
	staged, err := d.transfer.Stagings(ctx)
	if err != nil {
		return err
	}
	for _, staging := range staged {
		if exists[staging.UID] {
			continue
		}
		cluster, err := d.cluster(ctx, staging.Cluster)
		if err != nil {
			return err
		}
		state := Destination{Shard: d.cfg.Shard, Cluster: cluster, Staged: true}
		if cluster != nil {
			state.Reference = cluster.Annotations[corev1alpha1.MigratingAnnotationKey]
		}
		if state.Step() != DestinationDrop {
			continue
		}
		if err := d.drop(ctx, staging); err != nil {
			return err
		}
	}
	return nil
}

// move copies a logical cluster and takes it over. After an error it goes on from what is staged.
func (d *destinationService) move(ctx context.Context, key controller.Request, migration *migrationv1alpha1.LogicalClusterMigration) error {
	cluster, err := logicalcluster.ParseName(migration.Spec.LogicalCluster)
	if err != nil {
		return nil //nolint:nilerr // the API refuses such a name
	}
	origin, err := d.cfg.Origins.connect(ctx, migration.Status.OriginShard, cluster, key)
	if err != nil {
		err = fmt.Errorf("shard %q cannot copy: %w", d.cfg.Shard, err)
		d.fail(key, migration.UID, migrationv1alpha1.ReasonWaitingForDestination, err)
		return err
	}
	defer origin.close()
	d.report(key, migration.UID, progress{})
	c := &copying{destination: d, origin: origin, key: key, cluster: cluster, uid: migration.UID}
	if err := c.run(ctx, migration.Status.Phase == migrationv1alpha1.LogicalClusterMigrationPhaseOriginCleanup); err != nil {
		d.fail(key, migration.UID, migrationv1alpha1.ReasonCopyFailed, err)
		return fmt.Errorf("copying logical cluster %q from shard %q: %w", cluster, migration.Status.OriginShard, err)
	}
	return d.activate(ctx, cluster, migration.UID)
}

// takeOver stores the LogicalCluster that the origin has handed over. From here on it is of this shard.
func (d *destinationService) takeOver(ctx context.Context, cluster logicalcluster.Name, uid types.UID, handed *handOverResponse) error {
	object := map[string]any{}
	if err := exactjson.Unmarshal(handed.Cluster, &object); err != nil {
		return fmt.Errorf("decoding the LogicalCluster: %w", err)
	}
	u := &unstructured.Unstructured{Object: object}
	annotations := u.GetAnnotations()
	delete(annotations, corev1alpha1.WritesPausedAnnotationKey)
	delete(annotations, corev1alpha1.MovedToAnnotationKey)
	annotations[corev1alpha1.ArrivingAnnotationKey] = string(uid)
	annotations[corev1alpha1.EpochAnnotationKey] = strconv.FormatInt(handed.Epoch, 10)
	annotations[corev1alpha1.ShardAnnotationKey] = d.cfg.Shard
	setOrDelete(annotations, corev1alpha1.TokenKeysAnnotationKey,
		tokenkeys.Receive(annotations[corev1alpha1.TokenKeysAnnotationKey], d.cfg.TokenKeys.GetPublicKeys(ctx, "")))
	delete(annotations, corev1alpha1.OwnerShardAnnotationKey)
	if handed.ParentShard != d.cfg.Shard {
		annotations[corev1alpha1.OwnerShardAnnotationKey] = handed.ParentShard
	}
	u.SetAnnotations(annotations)
	_, err := d.stored.put(ctx, cluster, object, 0)
	if errors.Is(err, errConflict) {
		return fmt.Errorf("this shard has a logical cluster of the name %q", cluster)
	}
	return err
}

// activate makes the staged objects those of the logical cluster, which is open then.
func (d *destinationService) activate(ctx context.Context, cluster logicalcluster.Name, uid types.UID) error {
	arriving, err := d.stored.get(ctx, cluster)
	if err != nil {
		return err
	}
	if arriving == nil || arriving.annotations()[corev1alpha1.ArrivingAnnotationKey] != string(uid) {
		return nil // it is open, or has been deleted since
	}
	fence, err := d.stored.unchanged(cluster, arriving)
	if err != nil {
		return err
	}
	if err := d.transfer.Activate(ctx, cluster, uid, nil, fence); err != nil {
		return err
	}
	_, err = d.stored.update(ctx, cluster, func(_ *storedCluster, annotations map[string]string) error {
		delete(annotations, corev1alpha1.ArrivingAnnotationKey)
		return nil
	})
	if err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Took over a logical cluster", "cluster", cluster)
	if err := d.transfer.DropStaged(ctx, cluster, uid); err != nil {
		return err
	}
	d.forget(uid)
	return nil
}

// finish ends the migration on this shard.
func (d *destinationService) finish(ctx context.Context, state Destination) error {
	_, err := d.stored.update(ctx, logicalcluster.Of(state.Cluster), func(_ *storedCluster, annotations map[string]string) error {
		if annotations[corev1alpha1.MigratingAnnotationKey] == state.Reference {
			delete(annotations, corev1alpha1.MigratingAnnotationKey)
		}
		return nil
	})
	return err
}

func (d *destinationService) report(key controller.Request, uid types.UID, p progress) {
	d.mu.Lock()
	d.progress[uid] = p
	d.mu.Unlock()
	d.cfg.onProgress(key)
}

// fail keeps the number of entries, and reports an error.
func (d *destinationService) fail(key controller.Request, uid types.UID, reason string, err error) {
	d.mu.Lock()
	p := d.progress[uid]
	d.mu.Unlock()
	p.reason, p.message = reason, err.Error()
	d.report(key, uid, p)
}

func (d *destinationService) forget(uid types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.progress, uid)
}

// forgetExcept keeps the progress of migrations that exist.
func (d *destinationService) forgetExcept(exists map[types.UID]bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.progress, func(uid types.UID, _ progress) bool { return !exists[uid] })
}

// published returns the report of the destination on a migration, or nil.
func (d *destinationService) published(ctx context.Context, key controller.Request) (*shardingv1alpha1.LogicalClusterMigrationReportSpec, error) {
	state, err := d.observe(ctx, key)
	if err != nil {
		return nil, err
	}
	report := state.Report()
	if report == nil || report.State != shardingv1alpha1.MigrationCopying {
		return report, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.progress[report.Migration]
	report.Entries, report.Reason, report.Message = p.entries, p.reason, p.message
	return report, nil
}
