package drain

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

const (
	// Label is on the migrations of a drain. Its value is the name of the shard.
	Label = "migration.kcp.io/drain"
	// attemptAnnotation is on the migrations of a drain: how often the move of this logical cluster has been tried.
	attemptAnnotation = "migration.kcp.io/drain-attempt"
	// DefaultConcurrency is the number of migrations at a time, unless somebody says otherwise.
	DefaultConcurrency = 2
)

var (
	// ErrStopped means that somebody has stopped the drain, or opened the shard again.
	ErrStopped = errors.New("the drain has been stopped")
	// ErrFeatureDisabled means that the installation cannot move logical clusters.
	ErrFeatureDisabled = errors.New("the installation does not move logical clusters: start every shard with --feature-gates=LogicalClusterMigration=true")
)

var (
	shardsResource     = corev1alpha1.SchemeGroupVersion.WithResource("shards")
	migrationsResource = migrationv1alpha1.SchemeGroupVersion.WithResource("logicalclustermigrations")
	workspacesOfParent = tenancyv1alpha1.SchemeGroupVersion.WithResource("workspaces")
)

// ClientFunc returns a client of a logical cluster, as an administrator of the installation.
type ClientFunc func(logicalcluster.Path) (dynamic.Interface, error)

// Inventory is what is on a shard.
type Inventory struct {
	LogicalClusters []LogicalCluster
	// Unread are messages about what could not be read, so that more may be on the shard.
	Unread []string
}

// Drain moves the logical clusters of one shard to others.
type Drain struct {
	// Shard is the name of the shard.
	Shard string
	// Concurrency is the number of migrations at a time.
	Concurrency int
	// Admin is a client of the admin workspace, At one of the logical clusters.
	Admin dynamic.Interface
	At    ClientFunc
	// Inventory reads what is on the shard.
	Inventory func(context.Context) (Inventory, error)
	// Keep is set if Inventory is expensive: it is then called again when all that it has found has been moved, and all of it is looked at in
	// every step.
	Keep bool

	kept *Inventory
}

// Begin closes the shard for new workspaces. A shard that is closed already stays as it is.
func (d *Drain) Begin(ctx context.Context) error {
	if err := validateName(d.Shard); err != nil {
		return err
	}
	shard, err := getShard(ctx, d.Admin, d.Shard)
	if err != nil {
		return err
	}
	if reason, closed := shard.Annotations[corev1alpha1.UnschedulableAnnotationKey]; closed && reason != reasonStopped {
		return nil
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

// Step starts migrations, if there can be more, and returns what has been achieved. The error is ErrStopped once somebody has stopped the
// drain, and ErrFeatureDisabled if migrations are refused.
func (d *Drain) Step(ctx context.Context, now time.Time) (Progress, error) {
	shards, err := d.shards(ctx)
	if err != nil {
		return Progress{}, err
	}
	var shard *corev1alpha1.Shard
	for i := range shards {
		if shards[i].Name == d.Shard {
			shard = &shards[i]
		}
	}
	if shard == nil {
		return Progress{}, apierrors.NewNotFound(shardsResource.GroupResource(), d.Shard)
	}
	if reason, closed := shard.Annotations[corev1alpha1.UnschedulableAnnotationKey]; !closed || reason == reasonStopped {
		return Progress{}, ErrStopped
	}
	own, others, err := d.migrations(ctx) // before the inventory, see Situation
	if err != nil {
		return Progress{}, err
	}
	if running := countRunning(own); running >= d.Concurrency && !d.Keep {
		return Progress{Moving: running, Busy: true}, nil // an inventory would change nothing
	}
	situation := Situation{
		Shard: shard, Shards: shards, Migrations: own, Others: others, Concurrency: d.Concurrency, Examine: d.Keep, Now: now,
		Selector: func(cluster LogicalCluster) (labels.Selector, error) { return d.selector(ctx, cluster) },
	}
	decision, unread, err := d.decide(ctx, situation)
	if err != nil {
		return Progress{}, err
	}
	decision.Unread = unread
	for _, name := range decision.Discard {
		if err := d.delete(ctx, name); err != nil {
			return Progress{}, err
		}
	}
	for _, start := range decision.Start {
		if err := d.create(ctx, start); err != nil {
			return Progress{}, err
		}
	}
	return decision.Progress, nil
}

func countRunning(migrations []migrationv1alpha1.LogicalClusterMigration) (running int) {
	for i := range migrations {
		if isRunning(&migrations[i]) {
			running++
		}
	}
	return running
}

// decide decides by a new inventory, or by the kept one without what has been moved since.
func (d *Drain) decide(ctx context.Context, situation Situation) (Decision, []string, error) {
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
		decision, err := Decide(situation)
		if err != nil || !decision.IsIdle() {
			return decision, d.kept.Unread, err
		}
		// Nothing is left to do for what was there. What has changed since is in a new inventory, and so are those that have come back: their
		// migrations were read before.
		if situation.Migrations, situation.Others, err = d.migrations(ctx); err != nil {
			return Decision{}, nil, err
		}
	}
	inventory, err := d.Inventory(ctx)
	if err != nil {
		return Decision{}, nil, err
	}
	if d.Keep {
		d.kept = &inventory
	}
	situation.LogicalClusters = inventory.LogicalClusters
	decision, err := Decide(situation)
	return decision, inventory.Unread, err
}

// selector returns the selector of shards of a logical cluster. One whose Workspace does not exist can be on any.
func (d *Drain) selector(ctx context.Context, cluster LogicalCluster) (labels.Selector, error) {
	workspace := cluster.Workspace
	if workspace == nil {
		parent, err := logicalcluster.ParseName(cluster.Owner.Cluster)
		if err != nil {
			return nil, &RefusedError{fmt.Sprintf("its spec.owner.cluster is %q", cluster.Owner.Cluster)}
		}
		client, err := d.At(parent.Path())
		if err != nil {
			return nil, err
		}
		object, err := client.Resource(workspacesOfParent).Get(ctx, cluster.Owner.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return labels.Everything(), nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading the Workspace of %s: %w", cluster, err)
		}
		workspace = &tenancyv1alpha1.Workspace{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, workspace); err != nil {
			return nil, fmt.Errorf("reading the Workspace of %s: %w", cluster, err)
		}
		if workspace.Spec.Cluster != cluster.Name.String() {
			return labels.Everything(), nil // another one has its name
		}
	}
	return selectorOf(workspace)
}

// Stop makes every drain of the shard end, and gives up its migrations: those before the switch are aborted, the others are finished
// first. It returns how many have not ended yet. The shard stays closed for new workspaces.
func (d *Drain) Stop(ctx context.Context) (running int, err error) {
	if err := validateName(d.Shard); err != nil {
		return 0, err
	}
	if err := Cordon(ctx, d.Admin, d.Shard, reasonStopped); err != nil {
		return 0, err
	}
	return d.deleteMigrations(ctx, func(*migrationv1alpha1.LogicalClusterMigration) bool { return true })
}

// StopAndOpen is Stop, and opens the shard again once nothing moves, unless an administrator had closed it before the drain.
func (d *Drain) StopAndOpen(ctx context.Context) (running int, err error) {
	reason, closed, err := Reason(ctx, d.Admin, d.Shard)
	switch {
	case err != nil:
		return 0, err
	case closed && (reason == ReasonDrain || reason == reasonStopped):
		if running, err = d.Stop(ctx); err != nil || running > 0 {
			return running, err
		}
		return 0, Uncordon(ctx, d.Admin, d.Shard)
	}
	return d.deleteMigrations(ctx, func(*migrationv1alpha1.LogicalClusterMigration) bool { return true })
}

// CleanUp deletes the migrations that have ended, the record of a drain that nobody continues.
func (d *Drain) CleanUp(ctx context.Context) error {
	_, err := d.deleteMigrations(ctx, func(migration *migrationv1alpha1.LogicalClusterMigration) bool { return !isRunning(migration) })
	return err
}

func (d *Drain) deleteMigrations(ctx context.Context, match func(*migrationv1alpha1.LogicalClusterMigration) bool) (running int, err error) {
	own, _, err := d.migrations(ctx)
	if err != nil {
		return 0, err
	}
	for i := range own {
		if match(&own[i]) && own[i].DeletionTimestamp == nil {
			if err := d.delete(ctx, own[i].Name); err != nil {
				return 0, err
			}
		}
	}
	return countRunning(own), nil
}

func (d *Drain) shards(ctx context.Context) ([]corev1alpha1.Shard, error) {
	var shards []corev1alpha1.Shard
	err := forEach(ctx, d.Admin.Resource(shardsResource), func(object *unstructured.Unstructured) error {
		shard := corev1alpha1.Shard{}
		err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &shard)
		shards = append(shards, shard)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the shards of the installation: %w", err)
	}
	return shards, nil
}

// migrations returns the migrations of this drain, and the running ones of others, in root.
func (d *Drain) migrations(ctx context.Context) (own, others []migrationv1alpha1.LogicalClusterMigration, err error) {
	client, err := d.At(logicalcluster.Root.Path())
	if err != nil {
		return nil, nil, err
	}
	err = forEach(ctx, client.Resource(migrationsResource), func(object *unstructured.Unstructured) error {
		migration := migrationv1alpha1.LogicalClusterMigration{}
		err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &migration)
		switch {
		case migration.Labels[Label] == d.Shard:
			own = append(own, migration)
		case isRunning(&migration):
			others = append(others, migration)
		}
		return err
	})
	if apierrors.IsNotFound(err) {
		return nil, nil, ErrFeatureDisabled
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading the migrations in root: %w", err)
	}
	return own, others, nil
}

func (d *Drain) create(ctx context.Context, start Start) error {
	client, err := d.At(logicalcluster.Root.Path())
	if err != nil {
		return err
	}
	migration := &migrationv1alpha1.LogicalClusterMigration{
		TypeMeta: metav1.TypeMeta{APIVersion: migrationv1alpha1.SchemeGroupVersion.String(), Kind: "LogicalClusterMigration"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "drain-" + d.Shard + "-" + start.Name.String(), Labels: map[string]string{Label: d.Shard},
			Annotations: map[string]string{attemptAnnotation: strconv.Itoa(start.Attempt)},
		},
		Spec: migrationv1alpha1.LogicalClusterMigrationSpec{LogicalCluster: start.Name.String(), DestinationShard: start.Destination},
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(migration)
	if err != nil {
		return fmt.Errorf("the migration of %s: %w", start.LogicalCluster, err)
	}
	unstructured.RemoveNestedField(object, "status")
	_, err = client.Resource(migrationsResource).Create(ctx, &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
	switch {
	case err == nil, apierrors.IsAlreadyExists(err): // somebody else continues this drain, too
		return nil
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "feature gate LogicalClusterMigration"):
		return ErrFeatureDisabled
	}
	return fmt.Errorf("creating the migration of %s to shard %q: %w", start.LogicalCluster, start.Destination, err)
}

func (d *Drain) delete(ctx context.Context, name string) error {
	client, err := d.At(logicalcluster.Root.Path())
	if err != nil {
		return err
	}
	if err := client.Resource(migrationsResource).Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting migration %s in root: %w", name, err)
	}
	return nil
}

// forEach calls do with each object of a resource.
func forEach(ctx context.Context, resource dynamic.ResourceInterface, do func(*unstructured.Unstructured) error) error {
	options := metav1.ListOptions{Limit: 500}
	for {
		page, err := resource.List(ctx, options)
		if err != nil {
			return err
		}
		for i := range page.Items {
			if err := do(&page.Items[i]); err != nil {
				return err
			}
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}
