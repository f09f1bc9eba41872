package drain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	"github.com/atoll-dev/atoll/internal/moves"
	"github.com/atoll-dev/atoll/internal/placementrules"
	"github.com/atoll-dev/atoll/logicalcluster"
)

const (
	// Label is on the migrations of a drain. Its value is the name of the shard.
	Label = "migration.kcp.io/drain"
	// attemptAnnotation is on the migrations of a drain: how often the move of this logical cluster has been tried.
	attemptAnnotation = "migration.kcp.io/drain-attempt"
	// DefaultConcurrency is the number of migrations at a time, unless the caller sets another number.
	DefaultConcurrency = 2
)

var (
	// ErrStopped means that another client has stopped the drain, or opened the shard again.
	ErrStopped = errors.New("the drain has been stopped")
	// ErrContinued means that another client continues a drain that was to be stopped.
	ErrContinued = errors.New("somebody goes on with the drain: the operator does while spec.drain of its Shard is true, set that to false")
)

// Drain moves the logical clusters of one shard to others.
type Drain struct {
	moves.Client
	// Shard is the name of the shard.
	Shard string
	// Concurrency is the number of migrations at a time.
	Concurrency int
	// Inventory reads what is on the shard.
	Inventory func(context.Context) (moves.Inventory, error)
	// Sizes returns the numbers of objects of at most moves.MaxSizes logical clusters, so that the smallest move first. Without it, or while it
	// fails, they move in the order of their paths.
	Sizes func(context.Context, []logicalcluster.Name) (map[string]int64, error)
	// Keep is set if Inventory is expensive: it is then called again when all that it has found has been moved, and all of it is examined in
	// every step.
	Keep bool

	kept *moves.Inventory
}

// Begin closes the shard for new workspaces, if the installation moves logical clusters. A shard that is closed already stays as it is.
func (d *Drain) Begin(ctx context.Context) error {
	if err := validateName(d.Shard); err != nil {
		return err
	}
	reason, closed, err := closedReason(ctx, d.Admin, d.Shard)
	if err != nil || closed && !isStopped(reason) {
		return err
	}
	if err := d.Create(ctx, d.migration("check", "check", "check", 1), Label, true); err != nil {
		return err
	}
	if before := reasonOfOthers(reason); before != "" {
		return Cordon(ctx, d.Admin, d.Shard, before)
	}
	return Cordon(ctx, d.Admin, d.Shard, ReasonDrain)
}

// validateName refuses names that cannot be the value of a label.
func validateName(shard string) error {
	if _, err := labels.ValidatedSelectorFromSet(labels.Set{Label: shard}); err != nil || shard == "" {
		return fmt.Errorf("%q is not the name of a shard", shard)
	}
	return nil
}

// migration returns a migration of the drain. Its name is that of every attempt, so that two who continue the drain create one.
func (d *Drain) migration(suffix, cluster, to string, attempt int) *migrationv1alpha1.LogicalClusterMigration {
	return &migrationv1alpha1.LogicalClusterMigration{
		ObjectMeta: metav1.ObjectMeta{
			Name: "drain-" + d.Shard + "-" + suffix, Labels: map[string]string{Label: d.Shard},
			Annotations: map[string]string{attemptAnnotation: strconv.Itoa(attempt)},
		},
		Spec: migrationv1alpha1.LogicalClusterMigrationSpec{LogicalCluster: cluster, DestinationShard: to},
	}
}

// Step starts migrations, if there can be more, and returns what has been achieved. The error is ErrStopped once somebody has stopped the
// drain, and moves.ErrFeatureDisabled if migrations are refused.
func (d *Drain) Step(ctx context.Context, now time.Time) (Progress, error) {
	shards, err := d.Shards(ctx)
	if err != nil {
		return Progress{}, err
	}
	shard := find(shards, d.Shard)
	if shard == nil {
		return Progress{}, apierrors.NewNotFound(moves.ShardsResource.GroupResource(), d.Shard)
	}
	if reason, closed := shard.Annotations[corev1alpha1.UnschedulableAnnotationKey]; !closed || isStopped(reason) {
		return Progress{}, ErrStopped
	}
	own, others, err := d.Migrations(ctx, Label, d.Shard) // before the inventory, see Situation
	if err != nil {
		return Progress{}, err
	}
	if progress := summarize(own); progress.Busy && !d.Keep && countSlots(own) >= d.Concurrency && !needsDecision(own, shards) {
		return progress, nil // an inventory would change nothing
	}
	selectors := moves.Selectors{At: d.At}
	situation := Situation{
		Shard: shard, Shards: shards, Migrations: own, Others: others, Concurrency: d.Concurrency, Examine: d.Keep, Now: now,
		Selector: func(cluster moves.LogicalCluster) (labels.Selector, error) { return selectors.Of(ctx, cluster) },
	}
	decision, err := d.decide(ctx, situation)
	if err != nil || ctx.Err() != nil {
		return Progress{}, errors.Join(err, ctx.Err())
	}
	return d.act(ctx, decision)
}

// act does what was decided. A migration that cannot be created holds up no other.
func (d *Drain) act(ctx context.Context, decision Decision) (Progress, error) {
	var errs []error
	for _, migration := range append(decision.GiveUp, decision.Discard...) {
		errs = append(errs, d.Delete(ctx, migration))
	}
	progress := decision.Progress
	for _, start := range decision.Start {
		err := d.Create(ctx, d.migration(start.Name.String(), start.Name.String(), start.Destination, start.Attempt), Label, false)
		if taken := (*moves.NameTakenError)(nil); errors.As(err, &taken) {
			progress.Moving--
			progress.Refused = append(progress.Refused, Refused{start.String(), taken.Error()})
			continue
		}
		errs = append(errs, err)
	}
	return progress, errors.Join(errs...)
}

func find(shards []corev1alpha1.Shard, name string) *corev1alpha1.Shard {
	for i := range shards {
		if shards[i].Name == name {
			return &shards[i]
		}
	}
	return nil
}

// summarize returns what the migrations alone say. Busy is set if one runs.
func summarize(own []migrationv1alpha1.LogicalClusterMigration) (p Progress) {
	for i := range own {
		if !moves.IsRunning(&own[i]) {
			if own[i].Status.Phase == migrationv1alpha1.LogicalClusterMigrationPhaseCompleted {
				p.Moved++
			}
			continue
		}
		p.Moving++
		if message := waitingMessage(&own[i]); message != "" {
			p.Waiting = append(p.Waiting, message)
		}
	}
	p.Busy = p.Moving > 0
	return p
}

// countSlots returns the number of running migrations that make progress.
func countSlots(own []migrationv1alpha1.LogicalClusterMigration) (slots int) {
	for i := range own {
		if moves.IsRunning(&own[i]) && !moves.IsStuck(&own[i]) {
			slots++
		}
	}
	return slots
}

// needsDecision reports whether a migration may not begin, and perhaps can be sent to another shard.
func needsDecision(own []migrationv1alpha1.LogicalClusterMigration, shards []corev1alpha1.Shard) bool {
	return slices.ContainsFunc(own, func(migration migrationv1alpha1.LogicalClusterMigration) bool {
		return moves.IsRefused(&migration, shards)
	})
}

// decide decides by a new inventory, or by the kept one without what has been moved since.
func (d *Drain) decide(ctx context.Context, situation Situation) (Decision, error) {
	if d.kept != nil {
		moved := map[string]bool{}
		for i := range situation.Migrations {
			migration := &situation.Migrations[i]
			moved[migration.Spec.LogicalCluster] = migration.Status.Phase == migrationv1alpha1.LogicalClusterMigrationPhaseCompleted
		}
		for _, cluster := range d.kept.LogicalClusters {
			if !moved[cluster.Name.String()] {
				situation.LogicalClusters = append(situation.LogicalClusters, cluster)
			}
		}
		decision := Decide(situation)
		if decision.Unread = append(decision.Unread, d.kept.Unread...); decision.Moving > 0 || len(decision.Failed)+len(decision.Waiting) > 0 {
			return decision, nil
		}
		// Nothing is left to do for what was there. What has changed since is in a new inventory, and so are those that have come back: their
		// migrations were read before.
		var err error
		if situation.Migrations, situation.Others, err = d.Migrations(ctx, Label, d.Shard); err != nil {
			return Decision{}, err
		}
	}
	inventory, err := d.Inventory(ctx)
	if err != nil {
		return Decision{}, err
	}
	if d.Keep {
		d.kept = &inventory
	}
	situation.LogicalClusters = inventory.LogicalClusters
	d.addSizes(ctx, situation.LogicalClusters)
	decision := Decide(situation)
	decision.Unread = append(decision.Unread, inventory.Unread...)
	return decision, nil
}

// addSizes adds the numbers of objects of those that may be moved next.
func (d *Drain) addSizes(ctx context.Context, clusters []moves.LogicalCluster) {
	if d.Sizes == nil {
		return
	}
	var next []logicalcluster.Name
	for _, cluster := range inOrder(clusters) {
		if len(next) < moves.MaxSizes && !cluster.IsSystem() && cluster.Refusal() == "" {
			next = append(next, cluster.Name)
		}
	}
	if len(next) == 0 {
		return
	}
	sizes, err := d.Sizes(ctx, next)
	if err != nil {
		return // the order matters less than that the drain goes on
	}
	for i := range clusters {
		if size, counted := sizes[clusters[i].Name.String()]; counted {
			clusters[i].Objects = size
		}
	}
}

// Stop makes every drain of the shard end, and gives up its migrations: those before the switch are aborted, the others are finished
// first. It returns those that have not ended yet. The shard stays closed for new workspaces.
func (d *Drain) Stop(ctx context.Context) (Progress, error) {
	if err := validateName(d.Shard); err != nil {
		return Progress{}, err
	}
	reason, closed, err := closedReason(ctx, d.Admin, d.Shard)
	if err != nil {
		return Progress{}, err
	}
	if closed && reason == "" {
		reason = ReasonCordon
	}
	if !isStopped(reason) {
		if err := Cordon(ctx, d.Admin, d.Shard, stoppedReason(reason)); err != nil {
			return Progress{}, err
		}
	}
	return d.deleteMigrations(ctx, nil)
}

// AwaitStop returns the migrations of a drain that Stop has stopped and that have not ended. The error is ErrContinued if somebody has begun
// another drain since.
func (d *Drain) AwaitStop(ctx context.Context) (Progress, error) {
	reason, closed, err := closedReason(ctx, d.Admin, d.Shard)
	if err != nil {
		return Progress{}, err
	}
	if closed && !isStopped(reason) {
		return Progress{}, ErrContinued
	}
	return d.deleteMigrations(ctx, nil)
}

// StopAndOpen is Stop, and opens the shard again once nothing moves, unless an administrator had closed it before the drain.
func (d *Drain) StopAndOpen(ctx context.Context) (Progress, error) {
	reason, closed, err := closedReason(ctx, d.Admin, d.Shard)
	if err != nil {
		return Progress{}, err
	}
	own, _, err := d.Migrations(ctx, Label, d.Shard)
	if err != nil && !errors.Is(err, moves.ErrFeatureDisabled) {
		return Progress{}, err
	}
	before := reasonOfOthers(reason)
	switch {
	case !closed, len(own) == 0 && before == reason:
		return d.deleteMigrations(ctx, nil)
	case closed && reason == "":
		before = ReasonCordon
	}
	if running, err := d.Stop(ctx); err != nil || running.Moving > 0 {
		return running, err
	}
	if before != "" {
		return Progress{}, Cordon(ctx, d.Admin, d.Shard, before)
	}
	return Progress{}, Uncordon(ctx, d.Admin, d.Shard)
}

// CleanUp deletes the migrations that have ended, the record of a drain that is not continued. While a shard of the installation does
// not run, it keeps them: that shard reads from them where the Workspaces of its logical clusters are. It returns how many it has kept.
func (d *Drain) CleanUp(ctx context.Context) (kept int, err error) {
	shards, err := d.Shards(ctx)
	if err != nil {
		return 0, err
	}
	for i := range shards {
		if placementrules.FromStatus(&shards[i], 0).Silent {
			own, _, err := d.Migrations(ctx, Label, d.Shard)
			return len(own), err
		}
	}
	_, err = d.deleteMigrations(ctx, func(migration *migrationv1alpha1.LogicalClusterMigration) bool { return !moves.IsRunning(migration) })
	return 0, err
}

// deleteMigrations deletes the migrations of the drain that match, and returns those that have not ended.
func (d *Drain) deleteMigrations(ctx context.Context, match func(*migrationv1alpha1.LogicalClusterMigration) bool) (Progress, error) {
	own, _, err := d.Migrations(ctx, Label, d.Shard)
	if errors.Is(err, moves.ErrFeatureDisabled) {
		return Progress{}, nil
	}
	if err != nil {
		return Progress{}, err
	}
	for i := range own {
		if (match == nil || match(&own[i])) && own[i].DeletionTimestamp == nil {
			if err := d.Delete(ctx, &own[i]); err != nil {
				return Progress{}, err
			}
		}
	}
	return summarize(own), nil
}
