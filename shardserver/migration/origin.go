package migration

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	"github.com/atoll-dev/atoll/internal/movestate"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/sharding/placement"
	"github.com/atoll-dev/atoll/shardserver/tokenkeys"
	"github.com/atoll-dev/atoll/shardserver/transfer"
)

// originService acts on the logical clusters of this shard that move away.
type originService struct {
	cfg Config
	reader
	stored     *storedClusters
	transfer   *transfer.Transfer
	followings *followings
	failures   cleanFailures
}

// observe reads the state of a migration at the origin.
func (o *originService) observe(ctx context.Context, key controller.Request) (Origin, error) {
	state := Origin{Shard: o.cfg.Shard, Reference: Reference(key.ClusterName, key.Name)}
	var err error
	if state.Migration, err = o.migration(ctx, key); err != nil {
		return state, err
	}
	name, ok := o.clusterName(ctx, key, state.Migration)
	if !ok {
		return state, nil
	}
	if state.Cluster, err = o.cluster(ctx, name); err != nil {
		return state, err
	}
	if state.Cluster == nil {
		return state, nil
	}
	if !state.movedAway() {
		return state, o.observeAcceptance(ctx, &state)
	}
	if state.ParentKnows, err = o.parentKnows(ctx, state.Cluster); err != nil {
		return state, err
	}
	if state.Migration == nil {
		return state, nil
	}
	report, err := o.reportBy(ctx, key, state.Migration, state.Migration.Spec.DestinationShard)
	state.Serving = report.State == shardingv1alpha1.MigrationServing || report.State == shardingv1alpha1.MigrationFinished
	return state, err
}

// observeAcceptance reads what decides whether a migration is accepted.
func (o *originService) observeAcceptance(ctx context.Context, state *Origin) error {
	if state.Migration == nil || state.migrating() != "" {
		return nil
	}
	held, err := o.own.List(logicalcluster.With(ctx, logicalcluster.Of(state.Cluster)), "", nil)
	if err != nil {
		return fmt.Errorf("listing the migrations in the logical cluster: %w", err)
	}
	if running := runningMigration(held); running != nil {
		state.Holds = running.Name
	}
	if len(ownerOf(state.Migration)) > 0 {
		state.Above, err = o.above(ctx, state.Migration)
	}
	return err
}

// parentKnows reports whether the Workspace of a logical cluster that has been handed over names the destination, or does
// not exist.
func (o *originService) parentKnows(ctx context.Context, cluster *corev1alpha1.LogicalCluster) (bool, error) {
	owner, destination := cluster.Spec.Owner, cluster.Annotations[corev1alpha1.MovedToAnnotationKey]
	if owner == nil {
		return true, nil
	}
	parent, err := logicalcluster.ParseName(owner.Cluster)
	if err != nil {
		return true, nil //nolint:nilerr // no Workspace can be there
	}
	ctx = logicalcluster.With(ctx, parent)
	shard, remote := placement.Remote(cluster)
	if !remote {
		workspace, err := o.workspaces.GetLatest(ctx, "", owner.Name)
		if apierrors.IsNotFound(err) || err == nil && workspace.UID != owner.UID {
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("reading workspace %q: %w", owner.Name, err)
		}
		return workspace.Annotations[corev1alpha1.ShardAnnotationKey] == destination, nil
	}
	requests, err := o.requests.List(ctx, "", nil)
	if err != nil {
		return false, client.IgnoreNotFound(err)
	}
	name := placement.RequestName(owner.Name, logicalcluster.Of(cluster))
	for _, request := range requests {
		if request.Name == name && placement.Publisher(request) == shard &&
			(request.Spec.Shard == destination || request.Spec.Shard == o.cfg.Shard && request.Spec.Confirmed == cluster.UID) {
			return true, nil
		}
	}
	return false, nil
}

// reconcile is the controller of migrations whose logical cluster is on this shard.
func (o *originService) reconcile(ctx context.Context, key controller.Request) (controller.Result, error) {
	if !o.cfg.Fence.IsConfirmed() { // what a restored shard has may have been handed over
		return controller.Result{RequeueAfter: askInterval}, nil
	}
	state, err := o.observe(ctx, key)
	if err != nil {
		return controller.Result{}, err
	}
	if state.Migration == nil || hasEnded(state.Migration) {
		if err := o.forgetFailures(ctx); err != nil {
			return controller.Result{}, err
		}
	}
	result, err := o.act(ctx, key, state)
	return result, asStatus(err) // the watch cache may be behind: a conflict is tried again
}

func (o *originService) act(ctx context.Context, key controller.Request, state Origin) (controller.Result, error) {
	switch state.Step() {
	case OriginAccept:
		return controller.Result{}, o.accept(ctx, state)
	case OriginAbort:
		return controller.Result{}, o.abort(ctx, state)
	case OriginClean:
		result, err := o.clean(ctx, state)
		if o.failures.set(state.Migration.UID, err) {
			o.cfg.onProgress(key)
		}
		return result, err
	}
	if until, paused := pausedUntil(state.Cluster); paused && !state.movedAway() {
		return o.endPause(ctx, state, until)
	}
	return controller.Result{}, nil
}

func (o *originService) accept(ctx context.Context, state Origin) error {
	name := logicalcluster.Of(state.Cluster)
	_, err := o.stored.update(ctx, name, func(stored *storedCluster, annotations map[string]string) error {
		if annotations[corev1alpha1.MigratingAnnotationKey] != "" || movestate.Of(annotations) == movestate.MovedAway || stored.isDeleting() {
			return errConflict
		}
		annotations[corev1alpha1.MigratingAnnotationKey] = state.Reference
		return nil
	})
	if err == nil {
		klog.FromContext(ctx).Info("Accepted the migration of a logical cluster", "cluster", name, "migration", state.Reference, "destination", state.Migration.Spec.DestinationShard)
	}
	return err
}

// abort removes the annotations of a migration, unless the logical cluster has been handed over.
func (o *originService) abort(ctx context.Context, state Origin) error {
	name := logicalcluster.Of(state.Cluster)
	_, err := o.stored.update(ctx, name, func(_ *storedCluster, annotations map[string]string) error {
		if annotations[corev1alpha1.MigratingAnnotationKey] != state.Reference || movestate.Of(annotations) == movestate.MovedAway {
			return errConflict
		}
		delete(annotations, corev1alpha1.MigratingAnnotationKey)
		delete(annotations, corev1alpha1.WritesPausedAnnotationKey)
		delete(annotations, corev1alpha1.PauseAfterAnnotationKey)
		return nil
	})
	if err != nil {
		return err
	}
	o.followings.endFor(name)
	klog.FromContext(ctx).Info("Aborted the migration of a logical cluster", "cluster", name, "migration", state.Reference)
	return nil
}

// handOver gives the logical cluster to the destination of a migration if its copy is complete. It is final. A destination that has not
// received the response repeats the request.
func (o *originService) handOver(ctx context.Context, migration *migrationv1alpha1.LogicalClusterMigration, key controller.Request, wanted handOverRequest) (*handOverResponse, error) {
	cluster, reference, destination := logicalClusterOf(migration), Reference(key.ClusterName, key.Name), migration.Spec.DestinationShard
	current, err := o.stored.get(ctx, cluster)
	if err != nil {
		return nil, err
	}
	if current == nil {
		return nil, errConflict
	}
	if moved := current.annotations()[corev1alpha1.MovedToAnnotationKey]; moved == destination && current.annotations()[corev1alpha1.MigratingAnnotationKey] == reference {
		return o.handedOver(ctx, cluster, current)
	}
	if err := mayHandOver(current, current.annotations(), reference, wanted.Token); err != nil {
		return nil, err
	}
	if err := o.checkHolds(ctx, cluster); err != nil { // nobody creates one during the pause
		return nil, err
	}
	storages, err := o.compare(ctx, cluster, wanted)
	if err != nil {
		return nil, err
	}
	after, err := o.stored.update(ctx, cluster, func(stored *storedCluster, annotations map[string]string) error {
		if err := mayHandOver(stored, annotations, reference, wanted.Token); err != nil {
			return err
		}
		annotations[corev1alpha1.MovedToAnnotationKey] = destination
		setOrDelete(annotations, corev1alpha1.HandedOverStoragesAnnotationKey, strings.Join(storages, " "))
		epoch := epochOf(annotations) + 1
		annotations[corev1alpha1.EpochAnnotationKey] = strconv.FormatInt(epoch, 10)
		signed := receipt{Shard: o.cfg.Shard, Epoch: epoch, MAC: sign(o.cfg.ReceiptKey, cluster, types.UID(stored.uid()), epoch)}
		annotations[corev1alpha1.ReceiptsAnnotationKey] = receiptsAtHandOver(annotations[corev1alpha1.ReceiptsAnnotationKey], signed)
		annotations[corev1alpha1.ShardAnnotationKey] = destination
		delete(annotations, corev1alpha1.PauseAfterAnnotationKey)
		setOrDelete(annotations, corev1alpha1.TokenKeysAnnotationKey,
			tokenkeys.HandOver(annotations[corev1alpha1.TokenKeysAnnotationKey], o.cfg.TokenKeys, o.cfg.TokenMaxExpiration, time.Now()))
		return nil
	})
	if err != nil {
		return nil, err
	}
	klog.FromContext(ctx).Info("Handed over a logical cluster", "cluster", cluster, "migration", reference, "destination", destination)
	return o.handedOver(ctx, cluster, after)
}

// mayHandOver returns a conflict unless the migration of a reference has paused writes with a token, and the stored logical cluster
// was not handed over to any shard. A token proves that no write is in flight.
func mayHandOver(stored *storedCluster, annotations map[string]string, reference, token string) error {
	switch {
	case movestate.Of(annotations) == movestate.MovedAway:
		return fmt.Errorf("the logical cluster was handed over to another shard: %w", errConflict)
	case token == "" || annotations[corev1alpha1.WritesPausedAnnotationKey] != token || annotations[corev1alpha1.MigratingAnnotationKey] != reference || stored.isDeleting():
		return fmt.Errorf("the pause of writes has ended: %w", errConflict)
	}
	return nil
}

// checkHolds returns a conflict if the logical cluster contains a migration that has not ended. Shards accept migrations only from the
// shard that stores them: if the logical cluster moved, the migration would no longer exist for other shards.
func (o *originService) checkHolds(ctx context.Context, cluster logicalcluster.Name) error {
	all, err := o.own.ListLatest(logicalcluster.With(ctx, cluster), "", nil)
	if err != nil {
		return fmt.Errorf("listing the migrations in logical cluster %q: %w", cluster, err)
	}
	if running := runningMigration(all); running != nil {
		return fmt.Errorf("the logical cluster contains migration %q, which has not ended: %w", running.Name, errConflict)
	}
	return nil
}

// runningMigration returns the first migration that has not ended, or nil.
func runningMigration(all []*migrationv1alpha1.LogicalClusterMigration) *migrationv1alpha1.LogicalClusterMigration {
	for _, one := range all {
		if !hasEnded(one) {
			return one
		}
	}
	return nil
}

// handedOver returns the response to the destination when every replica of this shard has seen the hand-over: from then on no client reads
// a state here that is older than its own writes at the destination, and the replicas have recorded what clients have used here.
func (o *originService) handedOver(ctx context.Context, cluster logicalcluster.Name, stored *storedCluster) (*handOverResponse, error) {
	o.followings.endFor(cluster)
	if err := o.cfg.Fence.Pause(ctx, cluster, stored.revision); err != nil {
		return nil, fmt.Errorf("waiting for the end of reads: %w", err)
	}
	used, err := o.cfg.Usage.Handed(ctx, cluster)
	if err != nil {
		return nil, err
	}
	object, err := json.Marshal(stored.object)
	if err != nil {
		return nil, err
	}
	annotations := stored.annotations()
	parent := annotations[corev1alpha1.OwnerShardAnnotationKey]
	if parent == "" {
		parent = o.cfg.Shard
	}
	return &handOverResponse{Cluster: object, Epoch: epochOf(annotations), ParentShard: parent, Usage: used}, nil
}

func epochOf(annotations map[string]string) int64 {
	epoch, _ := strconv.ParseInt(annotations[corev1alpha1.EpochAnnotationKey], 10, 64)
	return epoch
}

// changes returns what has changed in a logical cluster, without the LogicalCluster, which the origin hands over at the end.
func (o *originService) changes(ctx context.Context, cluster logicalcluster.Name, wanted changesRequest) (*changesResponse, error) {
	own, err := o.stored.ownKey()
	if err != nil {
		return nil, err
	}
	var one *following
	if wanted.Following == "" {
		one, err = o.followings.begin(ctx, cluster, own)
	} else {
		one, err = o.followings.get(cluster, wanted.Following)
	}
	if err != nil {
		return nil, err
	}
	changes, err := one.changes(ctx, wanted.Since)
	if err != nil {
		o.followings.forget(one)
		return nil, err
	}
	return &changesResponse{Following: one.id, Changes: changes}, nil
}

// compare returns an error if the copy of a destination differs from the content here, and returns the storages that have keys.
func (o *originService) compare(ctx context.Context, cluster logicalcluster.Name, wanted handOverRequest) (storages []string, err error) {
	one, err := o.followings.get(cluster, wanted.Following)
	if err != nil {
		return nil, err
	}
	difference, err := one.compare(ctx, wanted.Digest)
	if err == nil && difference != "" {
		err = apierrors.NewConflict(migrationv1alpha1.Resource("logicalclustermigrations"), "", fmt.Errorf("the copy differs from the original: %s", difference))
	}
	if err != nil {
		o.followings.forget(one)
		return nil, err
	}
	return one.storages(), nil
}

// report returns the report of the origin on a migration, or nil.
func (o *originService) report(ctx context.Context, key controller.Request) (*shardingv1alpha1.LogicalClusterMigrationReportSpec, error) {
	state, err := o.observe(ctx, key)
	if err != nil {
		return nil, err
	}
	report := state.Report()
	if report != nil && report.State == shardingv1alpha1.MigrationMovedAway {
		report.Reason, report.Message = o.failures.get(state.Migration.UID)
	}
	return report, nil
}
