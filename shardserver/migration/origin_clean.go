package migration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	"github.com/atoll-dev/atoll/internal/movestate"
	"github.com/atoll-dev/atoll/internal/restoremark"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/transfer"
)

// cleanDelay is how long the origin keeps the remainder after the longest pause, because front proxies receive the new
// shard by watches of their own.
const cleanDelay = 5 * time.Second

// clean deletes the keys of a logical cluster that the destination serves, the LogicalCluster last. It fails as long as there are others than
// those which were handed over.
func (o *originService) clean(ctx context.Context, state Origin) (controller.Result, error) {
	if o.cfg.Held() {
		return controller.Result{RequeueAfter: restoremark.RetryInterval}, nil
	}
	name := logicalcluster.Of(state.Cluster)
	stored, err := o.stored.get(ctx, name)
	if err != nil || stored == nil {
		return controller.Result{}, err
	}
	if movestate.Of(stored.annotations()) != movestate.MovedAway || stored.uid() != string(state.Cluster.UID) {
		return controller.Result{}, errConflict
	}
	until, _ := pausedUntil(state.Cluster)
	if wait := time.Until(until.Add(cleanDelay)); wait > 0 {
		return controller.Result{RequeueAfter: wait}, nil
	}
	deleted, err := deleteAll(ctx, o.transfer, o.stored, name, stored, strings.Fields(stored.annotations()[corev1alpha1.HandedOverStoragesAnnotationKey]))
	if err != nil {
		return controller.Result{}, err
	}
	o.cfg.Usage.Forget(name)
	klog.FromContext(ctx).Info("Deleted what a moved logical cluster left", "cluster", name, "migration", state.Reference, "keys", deleted)
	return controller.Result{}, nil
}

// deleteAll deletes the keys of a logical cluster in storages, the LogicalCluster last, as long as that is the one that was read. It returns how many keys it
// has deleted, also after an error.
func deleteAll(ctx context.Context, keys *transfer.Transfer, clusters *storedClusters, name logicalcluster.Name, read *storedCluster, storages []string) (int, error) {
	fence, err := clusters.unchanged(name, read)
	if err != nil {
		return 0, err
	}
	isCluster, err := clusters.ownKey()
	if err != nil {
		return 0, err
	}
	deleted, err := keys.Purge(ctx, name, slices.Concat(storages, []string{isCluster.Resource}), func(k transfer.Key) bool { return k == isCluster }, fence)
	if err != nil {
		return deleted, err
	}
	if err := clusters.delete(ctx, name, fence); err != nil {
		return deleted, err
	}
	return deleted + 1, nil
}

// cleanFailures are why this process has not deleted what moved logical clusters left, by migration. One is removed when it is deleted, or the
// migration has ended.
type cleanFailures struct {
	mu    sync.Mutex
	byUID map[types.UID]refusal
}

// set notes the outcome of an attempt, and reports whether it differs from that of the last one. A delay is not a failure.
func (f *cleanFailures) set(uid types.UID, err error) (changed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before, failed := f.byUID[uid]
	if err == nil {
		delete(f.byUID, uid)
		return failed
	}
	if errors.Is(err, errConflict) || errors.Is(err, transfer.ErrFenced) {
		return false
	}
	after := refusal{migrationv1alpha1.ReasonCleanupFailed, err.Error()}
	if unknown := (*transfer.UnknownKeysError)(nil); errors.As(err, &unknown) {
		after = refusal{migrationv1alpha1.ReasonKeysNotHandedOver, fmt.Sprintf("the destination serves the logical cluster, and %s. If their content is needed, create it again on the destination; then delete these keys, and the origin deletes the rest", unknown)}
	}
	if f.byUID == nil {
		f.byUID = map[types.UID]refusal{}
	}
	f.byUID[uid] = after
	return after != before
}

// get returns why an attempt has failed, or "".
func (f *cleanFailures) get(uid types.UID) (reason, message string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	found := f.byUID[uid]
	return found.reason, found.message
}

func (f *cleanFailures) isEmpty() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.byUID) == 0
}

// forgetFailures removes the failures of migrations that have ended, or do not exist.
func (o *originService) forgetFailures(ctx context.Context) error {
	if o.failures.isEmpty() {
		return nil
	}
	if err := o.migrations.CheckSynced(); err != nil {
		return err
	}
	all, err := o.allMigrations(ctx)
	if err != nil {
		return fmt.Errorf("listing migrations: %w", err)
	}
	runs := map[types.UID]bool{}
	for _, migration := range all {
		runs[migration.UID] = !hasEnded(migration)
	}
	o.failures.mu.Lock()
	defer o.failures.mu.Unlock()
	maps.DeleteFunc(o.failures.byUID, func(uid types.UID, _ refusal) bool { return !runs[uid] })
	return nil
}
