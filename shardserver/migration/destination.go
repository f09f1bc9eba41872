package migration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	"github.com/atoll-dev/atoll/internal/movestate"
	"github.com/atoll-dev/atoll/internal/restoremark"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/tokenkeys"
	"github.com/atoll-dev/atoll/shardserver/transfer"
)

const (
	// maxPasses is the number of times that the destination copies changes before it pauses writes.
	maxPasses = 5
	// fewKeys are copied within a pause that clients do not notice.
	fewKeys = 100
)

// destinationService copies logical clusters from other shards, and takes them over.
type destinationService struct {
	cfg Config
	reader
	stored   *storedClusters
	transfer *transfer.Transfer
	accepts  *acceptance

	mu sync.Mutex
	// progress is that of the migrations that this process works on. A migration is removed when it has ended.
	progress map[types.UID]progress
}

type progress struct {
	entries         int64
	reason, message string
	// retryAt is before when the origin refuses another attempt. Changes of the migration, such as that of its status, do not begin one.
	retryAt time.Time
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
	if state.Cluster, err = d.cluster(ctx, name); err != nil {
		return state, err
	}
	if state.isArriving() && (state.Migration == nil || !state.arrivesFor(state.Migration)) {
		exists, err := d.exists(ctx, key, types.UID(state.Cluster.Annotations[corev1alpha1.ArrivingAnnotationKey]))
		state.Ended = !exists
		return state, err
	}
	if state.Migration == nil || state.Migration.Spec.DestinationShard != d.cfg.Shard {
		return state, nil
	}
	if state.Recorded, err = d.isRecorded(ctx, transfer.Incoming{Cluster: name, UID: state.Migration.UID}); err != nil {
		return state, err
	}
	report, err := d.reportBy(ctx, key, state.Migration, state.Migration.Status.OriginShard)
	state.OriginAborted = report.State == shardingv1alpha1.MigrationAborted
	return state, err
}

// exists asks the shard that stores migrations whether one exists. The copy of the migration on this shard may be older.
func (d *destinationService) exists(ctx context.Context, key controller.Request, uid types.UID) (bool, error) {
	if d.cfg.Home == d.cfg.Shard {
		return d.isStored(ctx, key, uid)
	}
	home, err := d.cfg.Origins.connect(ctx, d.cfg.Home)
	if err == nil {
		defer home.close()
		var response *existsResponse
		if response, err = post[existsResponse](ctx, home, existsPath(key, uid), nil); err == nil {
			return response.Exists, nil
		}
	}
	return false, fmt.Errorf("asking shard %q for migration %q in %q: %w", d.cfg.Home, key.Name, key.ClusterName, err)
}

// isRecorded reports whether there are records of a migration.
func (d *destinationService) isRecorded(ctx context.Context, in transfer.Incoming) (bool, error) {
	all, err := d.transfer.Incoming(ctx)
	return slices.Contains(all, in), err
}

// reconcile is the controller of migrations to this shard.
func (d *destinationService) reconcile(ctx context.Context, key controller.Request) (controller.Result, error) {
	state, err := d.observe(ctx, key)
	if err != nil {
		return controller.Result{}, err
	}
	switch state.Step() {
	case DestinationCopy:
		return d.move(ctx, key, state.Migration)
	case DestinationFinish:
		return controller.Result{}, d.finish(ctx, state)
	case DestinationForget:
		// What follows does not wait for an event.
		return controller.Result{RequeueAfter: time.Millisecond}, d.forgetRecords(ctx, transfer.Incoming{Cluster: logicalClusterOf(state.Migration), UID: state.Migration.UID})
	case DestinationDrop:
		if d.cfg.Held() {
			return controller.Result{RequeueAfter: restoremark.RetryInterval}, nil
		}
		if err := d.drop(ctx, state.Cluster); err != nil {
			return controller.Result{}, err
		}
		d.cfg.onProgress(key)
	}
	switch {
	case state.Migration == nil:
		return controller.Result{}, d.forgetLeftovers(ctx)
	case isGivenUp(state.Migration):
		d.forget(state.Migration.UID)
	}
	return controller.Result{}, nil
}

// forgetRecords removes the records of a copy that is open or does not exist any more. The watch cache of a replica may still have the state
// before a copy that another replica has begun; without records, no replica would delete what the origin has deleted since.
func (d *destinationService) forgetRecords(ctx context.Context, in transfer.Incoming) error {
	stored, err := d.stored.get(ctx, in.Cluster)
	if err != nil || stored.isArrivingFor(in.UID) {
		return err
	}
	return d.transfer.Forget(ctx, in)
}

// logicalClusterOf returns the logical cluster of a migration whose spec is valid.
func logicalClusterOf(migration *migrationv1alpha1.LogicalClusterMigration) logicalcluster.Name {
	name, _ := logicalcluster.ParseName(migration.Spec.LogicalCluster)
	return name
}

// drop removes a copy: first what its records name, then the LogicalCluster, while no other replica writes it.
func (d *destinationService) drop(ctx context.Context, cluster *corev1alpha1.LogicalCluster) error {
	in := transfer.Incoming{Cluster: logicalcluster.Of(cluster), UID: types.UID(cluster.Annotations[corev1alpha1.ArrivingAnnotationKey])}
	d.forget(in.UID)
	if err := d.deleteUnclaimed(ctx, in); err != nil {
		return err
	}
	copied, err := d.claim(ctx, in, cluster.Annotations[corev1alpha1.MigratingAnnotationKey], false)
	if err != nil || copied == nil {
		return err
	}
	fence, err := d.stored.unchanged(in.Cluster, copied.storedCluster)
	if err != nil {
		return err
	}
	if err := d.transfer.NewWriter(in, fence).DeleteAll(ctx); err != nil {
		return err
	}
	if err := d.stored.delete(ctx, in.Cluster, fence); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Removed the copy of a logical cluster whose migration has ended", "cluster", in.Cluster, "migration", in.UID)
	return nil
}

// deleteUnclaimed deletes what the records of a copy name before it is claimed: an etcd without space refuses the write of a claim, and no
// deletion. A replica that has claimed the copy before may write keys meanwhile, each with a record, but cannot open it: the origin has aborted.
// That of a workspace that was restored is stopped by the key that restoringService.clean deletes before.
func (d *destinationService) deleteUnclaimed(ctx context.Context, in transfer.Incoming) error {
	stored, err := d.stored.get(ctx, in.Cluster)
	if err != nil || !stored.isArrivingFor(in.UID) {
		return err
	}
	fence, err := d.stored.unchanged(in.Cluster, stored)
	if err != nil {
		return err
	}
	return d.transfer.NewWriter(in, fence).DeleteAll(ctx)
}

// forgetLeftovers removes the state of migrations that do not exist.
func (d *destinationService) forgetLeftovers(ctx context.Context) error {
	if err := d.migrations.CheckSynced(); err != nil {
		return err
	}
	all, err := d.allMigrations(ctx)
	if err != nil {
		return fmt.Errorf("listing migrations: %w", err)
	}
	exists := map[types.UID]bool{}
	for _, migration := range all {
		exists[migration.UID] = true
	}
	d.forgetExcept(exists)
	recorded, err := d.transfer.Incoming(ctx)
	if err != nil {
		return err
	}
	for _, in := range recorded {
		stored, err := d.stored.get(ctx, in.Cluster)
		if err != nil {
			return err
		}
		if exists[in.UID] || stored.isArrivingFor(in.UID) {
			continue
		}
		if err := d.transfer.Forget(ctx, in); err != nil {
			return err
		}
	}
	return nil
}

// move copies a logical cluster and takes it over. After an error it continues with what is copied, at the time that the origin returns: an
// earlier attempt would read everything and fail.
func (d *destinationService) move(ctx context.Context, key controller.Request, migration *migrationv1alpha1.LogicalClusterMigration) (controller.Result, error) {
	origin, err := d.cfg.Origins.connect(ctx, migration.Status.OriginShard)
	if err != nil {
		err = fmt.Errorf("shard %q cannot copy: %w", d.cfg.Shard, err)
		d.fail(key, migration.UID, migrationv1alpha1.ReasonWaitingForDestination, err)
		return controller.Result{}, err
	}
	defer origin.close()
	if wait := time.Until(d.retryAt(migration.UID)); wait > 0 && !wasHandedOver(migration) {
		return controller.Result{RequeueAfter: wait}, nil
	}
	d.begin(key, migration.UID)
	if err := d.copy(ctx, key, migration, origin); err != nil {
		d.fail(key, migration.UID, reasonOf(err), err)
		if wait := time.Until(d.retryAt(migration.UID)); wait > 0 {
			return controller.Result{RequeueAfter: wait}, nil
		}
		return controller.Result{}, fmt.Errorf("copying logical cluster %q from shard %q: %w", migration.Spec.LogicalCluster, migration.Status.OriginShard, err)
	}
	return controller.Result{}, nil
}

func (d *destinationService) copy(ctx context.Context, key controller.Request, migration *migrationv1alpha1.LogicalClusterMigration, origin *peer) error {
	in := transfer.Incoming{Cluster: logicalClusterOf(migration), UID: migration.UID}
	claimed, err := d.claim(ctx, in, Reference(key.ClusterName, key.Name), true)
	if err != nil || claimed == nil {
		return err
	}
	fence, err := d.stored.unchanged(in.Cluster, claimed.storedCluster)
	if err != nil {
		return err
	}
	c := &copying{
		destination: d, origin: &originClient{peer: origin, cluster: in.Cluster, migration: key}, key: key, in: in,
		writer: d.transfer.NewWriter(in, fence), storages: map[string]bool{},
		checkWanted: func(ctx context.Context) error { return d.checkWanted(ctx, key, migration.UID) },
	}
	defer c.close()
	defer func() { observePause(c.pausedAt) }()
	handed, err := d.takeOver(ctx, c, claimed, wasHandedOver(migration))
	if err != nil {
		return err
	}
	if err := d.open(ctx, in, Reference(key.ClusterName, key.Name), claimed.revision, handed); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Took over a logical cluster", "cluster", in.Cluster)
	return d.transfer.Forget(ctx, in)
}

// takeOver returns what the origin hands over, after it has copied the content, unless an earlier attempt has: the origin may have handed over
// without that this shard has stored the answer. Without a token, the origin answers only then.
func (d *destinationService) takeOver(ctx context.Context, c *copying, claimed *claimedCluster, wasHandedOver bool) (*handOverResponse, error) {
	var earlier error
	if wasHandedOver || claimed.again {
		handed, err := c.origin.handOver(ctx, handOverRequest{})
		if err == nil || wasHandedOver {
			return handed, err
		}
		if conflict := (*conflictError)(nil); !errors.As(err, &conflict) { // that is the answer of an origin that has handed over nothing
			earlier = fmt.Errorf("asking for what the origin may have handed over: %w", err)
		}
	}
	if err := d.cfg.Fence.Pause(ctx, c.in.Cluster, claimed.revision); err != nil { // all replicas hide what follows
		return nil, errors.Join(err, earlier)
	}
	handed, err := c.run(ctx)
	if err != nil {
		return nil, errors.Join(err, earlier)
	}
	return handed, nil
}

// claimedCluster is the LogicalCluster of a copy.
type claimedCluster struct {
	*storedCluster
	// again is whether there was one before.
	again bool
}

// checkWanted returns an error if a migration has been given up, so that an origin that answers forever does not keep this shard from
// others.
func (d *destinationService) checkWanted(ctx context.Context, key controller.Request, uid types.UID) error {
	migration, err := d.migration(ctx, key)
	if err != nil {
		return err
	}
	if isGivenUp(migration) || migration.UID != uid {
		return errors.New("the migration has been given up")
	}
	return nil
}

// errFull is returned if this shard has no space for the copy. The migration ends with it: tenants of this shard may not store more either.
var errFull = errors.New("free space there, or move to another shard")

// checkSpace returns an error if etcd has no space for more of a copy.
func (d *destinationService) checkSpace() error {
	if d.cfg.Shortage == nil {
		return nil
	}
	if shortage := d.cfg.Shortage(); shortage != "" {
		return fmt.Errorf("shard %q has no space for the copy: %s: %w", d.cfg.Shard, shortage, errFull)
	}
	return nil
}

// reasonOf returns the reason of an attempt that failed.
func reasonOf(err error) string {
	if errors.Is(err, errFull) || errors.Is(err, rpctypes.ErrNoSpace) {
		return migrationv1alpha1.ReasonDestinationFull
	}
	return migrationv1alpha1.ReasonCopyFailed
}

// claim stores the LogicalCluster of a copy, or stores it again, so that a replica that has claimed it before cannot write any more. It
// returns nil if the copy is open and, without create, if there is none.
func (d *destinationService) claim(ctx context.Context, in transfer.Incoming, reference string, create bool) (*claimedCluster, error) {
	stored, err := d.stored.get(ctx, in.Cluster)
	if err != nil {
		return nil, err
	}
	again := stored.isArrivingFor(in.UID)
	switch {
	case again:
	case !create, stored != nil && stored.annotations()[corev1alpha1.MigratingAnnotationKey] == reference && movestate.Of(stored.annotations()) != movestate.MovedAway:
		return nil, nil
	case stored != nil:
		return nil, fmt.Errorf("this shard has a logical cluster of the name %q", in.Cluster)
	default:
		versions, _, err := d.transfer.Manifest(ctx, in.Cluster)
		if err != nil {
			return nil, err
		}
		if len(versions) > 0 {
			return nil, fmt.Errorf("this shard has keys of a former logical cluster of the name %q, the first of %s", in.Cluster, versions[0].Resource)
		}
		stored = &storedCluster{object: newArriving(in, reference)}
	}
	stored.revision, err = d.stored.put(ctx, in.Cluster, stored.object, stored.revision)
	return &claimedCluster{stored, again}, err
}

// newArriving returns the LogicalCluster of a copy. The origin hands over the one that replaces it. The copy of a workspace that is restored has no
// reference.
func newArriving(in transfer.Incoming, reference string) map[string]any {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(corev1alpha1.SchemeGroupVersion.WithKind("LogicalCluster"))
	u.SetName(corev1alpha1.LogicalClusterName)
	annotations := map[string]string{logicalcluster.AnnotationKey: in.Cluster.String(), corev1alpha1.ArrivingAnnotationKey: string(in.UID)}
	setOrDelete(annotations, corev1alpha1.MigratingAnnotationKey, reference)
	u.SetAnnotations(annotations)
	return u.Object
}

// open stores the LogicalCluster that the origin has handed over in place of that of the copy, unless another replica has claimed
// the copy. From here on this shard serves it.
func (d *destinationService) open(ctx context.Context, in transfer.Incoming, reference string, revision int64, handed *handOverResponse) error {
	object, err := parseHanded(in.Cluster, handed)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{Object: object}
	annotations := map[string]string{}
	maps.Copy(annotations, u.GetAnnotations())
	annotations[logicalcluster.AnnotationKey] = in.Cluster.String()
	delete(annotations, corev1alpha1.WritesPausedAnnotationKey)
	delete(annotations, corev1alpha1.MovedToAnnotationKey)
	delete(annotations, corev1alpha1.HandedOverStoragesAnnotationKey)
	delete(annotations, corev1alpha1.ArrivingAnnotationKey)
	delete(annotations, corev1alpha1.PauseAfterAnnotationKey)
	annotations[corev1alpha1.MigratingAnnotationKey] = reference
	annotations[corev1alpha1.EpochAnnotationKey] = strconv.FormatInt(handed.Epoch, 10)
	annotations[corev1alpha1.ShardAnnotationKey] = d.cfg.Shard
	setOrDelete(annotations, corev1alpha1.TokenKeysAnnotationKey,
		tokenkeys.Receive(annotations[corev1alpha1.TokenKeysAnnotationKey], d.cfg.TokenKeys, time.Now()))
	setOrDelete(annotations, corev1alpha1.ReceiptsAnnotationKey, receiptsAtArrival(annotations[corev1alpha1.ReceiptsAnnotationKey], d.cfg.Shard))
	delete(annotations, corev1alpha1.OutdatedAnnotationKey)
	delete(annotations, corev1alpha1.OwnerShardAnnotationKey)
	if handed.ParentShard != d.cfg.Shard {
		annotations[corev1alpha1.OwnerShardAnnotationKey] = handed.ParentShard
	}
	u.SetAnnotations(annotations)
	used, err := d.cfg.Usage.Replacement(ctx, in.Cluster, handed.Usage, time.Now())
	if err != nil {
		return err
	}
	_, err = d.stored.putWith(ctx, in.Cluster, object, revision, used)
	return err
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

// begin reports that an attempt begins. After one that has failed to copy, its reason stays until something is copied: a migration whose
// attempts fail in the same way makes no progress.
func (d *destinationService) begin(key controller.Request, uid types.UID) {
	d.mu.Lock()
	p := d.progress[uid]
	d.mu.Unlock()
	if p.reason != migrationv1alpha1.ReasonCopyFailed {
		d.report(key, uid, progress{})
	}
}

// fail keeps the number of entries, and reports an error.
func (d *destinationService) fail(key controller.Request, uid types.UID, reason string, err error) {
	d.mu.Lock()
	p := d.progress[uid]
	d.mu.Unlock()
	p.reason, p.message = reason, err.Error()
	if later := (*retryLaterError)(nil); errors.As(err, &later) {
		p.retryAt = time.Now().Add(later.after)
	}
	d.report(key, uid, p)
}

func (d *destinationService) retryAt(uid types.UID) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.progress[uid].retryAt
}

func (d *destinationService) forget(uid types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.progress, uid)
}

func (d *destinationService) forgetAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.progress)
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
	if report == nil || report.State != shardingv1alpha1.MigrationCopying && report.State != shardingv1alpha1.MigrationServing {
		return report, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.progress[report.Migration]
	report.Entries = p.entries // also once it serves: a copy may have been too short for a report
	if report.State == shardingv1alpha1.MigrationCopying {
		report.Reason, report.Message = p.reason, p.message
	}
	return report, nil
}
