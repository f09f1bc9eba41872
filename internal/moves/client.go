package moves

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/internal/placementrules"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// ErrFeatureDisabled means that the installation cannot move logical clusters.
var ErrFeatureDisabled = errors.New("the installation does not move logical clusters: start every shard with --feature-gates=LogicalClusterMigration=true")

var (
	// ShardsResource is that of Shards.
	ShardsResource     = corev1alpha1.SchemeGroupVersion.WithResource("shards")
	migrationsResource = migrationv1alpha1.SchemeGroupVersion.WithResource("logicalclustermigrations")
	workspacesResource = tenancyv1alpha1.SchemeGroupVersion.WithResource("workspaces")
)

// ClientFunc returns a client of a logical cluster, as an administrator of the installation.
type ClientFunc func(logicalcluster.Path) (dynamic.Interface, error)

// Client reads an installation, and moves logical clusters, as an administrator.
type Client struct {
	// Admin is a client of the admin workspace, At one of the logical clusters.
	Admin dynamic.Interface
	At    ClientFunc
	// Elsewhere returns the migrations in other workspaces than root. It is nil for those who cannot read all logical clusters.
	Elsewhere func(context.Context) ([]migrationv1alpha1.LogicalClusterMigration, error)
}

// Shards returns the shards of the installation.
func (c *Client) Shards(ctx context.Context) ([]corev1alpha1.Shard, error) {
	var shards []corev1alpha1.Shard
	err := ForEach(ctx, c.Admin.Resource(ShardsResource), metav1.ListOptions{}, func(object *unstructured.Unstructured) error {
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

// Migrations returns the migrations in root with a label, and the running ones of all others. The error is ErrFeatureDisabled if
// there is no such API.
func (c *Client) Migrations(ctx context.Context, label, value string) (own, others []migrationv1alpha1.LogicalClusterMigration, err error) {
	client, err := c.At(logicalcluster.Root.Path())
	if err != nil {
		return nil, nil, err
	}
	err = ForEach(ctx, client.Resource(migrationsResource), metav1.ListOptions{}, func(object *unstructured.Unstructured) error {
		migration, err := Decode(object)
		switch {
		case err != nil:
			return err
		case migration.Labels[label] == value && value != "":
			own = append(own, *migration)
		case IsRunning(migration):
			others = append(others, *migration)
		}
		return nil
	})
	if apierrors.IsNotFound(err) {
		return nil, nil, ErrFeatureDisabled
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading the migrations in root: %w", err)
	}
	if c.Elsewhere == nil {
		return own, others, nil
	}
	elsewhere, err := c.Elsewhere(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the migrations of all workspaces: %w", err)
	}
	for i := range elsewhere {
		if IsRunning(&elsewhere[i]) && logicalcluster.Of(&elsewhere[i]) != logicalcluster.Root {
			others = append(others, elsewhere[i])
		}
	}
	return own, others, nil
}

// NameTakenError is the error of a migration that cannot be created because another one, which is not of the same drain, has its name.
type NameTakenError struct{ Name string }

func (e *NameTakenError) Error() string {
	return fmt.Sprintf("migration %s in root has the name that its move needs: delete it", e.Name)
}

// Create creates a migration in root. It succeeds if it exists already with the same label and logical cluster: another client does the
// same. With dryRun nothing is stored, and the error is why it could not be.
func (c *Client) Create(ctx context.Context, migration *migrationv1alpha1.LogicalClusterMigration, label string, dryRun bool) error {
	client, err := c.At(logicalcluster.Root.Path())
	if err != nil {
		return err
	}
	migration = migration.DeepCopy()
	migration.TypeMeta = metav1.TypeMeta{APIVersion: migrationv1alpha1.SchemeGroupVersion.String(), Kind: "LogicalClusterMigration"}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(migration)
	if err != nil {
		return fmt.Errorf("migration %s: %w", migration.Name, err)
	}
	unstructured.RemoveNestedField(object, "status")
	options := metav1.CreateOptions{}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	_, err = client.Resource(migrationsResource).Create(ctx, &unstructured.Unstructured{Object: object}, options)
	switch {
	case err == nil:
		return nil
	case apierrors.IsAlreadyExists(err):
		return c.checkExisting(ctx, client, migration, label)
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err) && strings.Contains(err.Error(), "feature gate LogicalClusterMigration"):
		return ErrFeatureDisabled
	}
	return fmt.Errorf("creating migration %s to shard %q in root: %w", migration.Name, migration.Spec.DestinationShard, err)
}

func (c *Client) checkExisting(ctx context.Context, client dynamic.Interface, want *migrationv1alpha1.LogicalClusterMigration, label string) error {
	object, err := client.Resource(migrationsResource).Get(ctx, want.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil // it has just gone: the next step sees that
	}
	if err != nil {
		return fmt.Errorf("reading migration %s in root: %w", want.Name, err)
	}
	have, err := Decode(object)
	if err == nil && (have.Labels[label] != want.Labels[label] || have.Spec.LogicalCluster != want.Spec.LogicalCluster) {
		return &NameTakenError{want.Name}
	}
	return err
}

// Delete deletes a migration in root, unless another one has its name.
func (c *Client) Delete(ctx context.Context, migration *migrationv1alpha1.LogicalClusterMigration) error {
	client, err := c.At(logicalcluster.Root.Path())
	if err != nil {
		return err
	}
	options := metav1.DeleteOptions{}
	if migration.UID != "" {
		options.Preconditions = metav1.NewUIDPreconditions(string(migration.UID))
	}
	err = client.Resource(migrationsResource).Delete(ctx, migration.Name, options)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting migration %s in root: %w", migration.Name, err)
	}
	return nil
}

// IsRunning reports whether a migration has not ended.
func IsRunning(migration *migrationv1alpha1.LogicalClusterMigration) bool {
	switch migration.Status.Phase {
	case migrationv1alpha1.LogicalClusterMigrationPhaseCompleted, migrationv1alpha1.LogicalClusterMigrationPhaseFailed:
		return false
	}
	return true
}

// FailureMessage returns why a migration has failed.
func FailureMessage(migration *migrationv1alpha1.LogicalClusterMigration) string {
	for _, condition := range []conditionsv1alpha1.Type{migrationv1alpha1.OriginReady, migrationv1alpha1.DataCopied} {
		if message := conditionsv1alpha1.GetMessage(migration, condition); message != "" && conditionsv1alpha1.IsFalse(migration, condition) {
			return message
		}
	}
	return "it was aborted"
}

// EndOf returns when a migration has ended.
func EndOf(migration *migrationv1alpha1.LogicalClusterMigration) time.Time {
	end := migration.CreationTimestamp
	for _, condition := range migration.Status.Conditions {
		if end.Before(&condition.LastTransitionTime) {
			end = condition.LastTransitionTime
		}
	}
	return end.Time
}

// IsUnbegun reports whether a migration has not begun to copy, so that it can be given up at no cost.
func IsUnbegun(migration *migrationv1alpha1.LogicalClusterMigration) bool {
	if migration.Status.Phase != migrationv1alpha1.LogicalClusterMigrationPhaseMigrating || migration.DeletionTimestamp != nil {
		return false
	}
	switch conditionsv1alpha1.GetReason(migration, migrationv1alpha1.DataCopied) {
	case migrationv1alpha1.ReasonWaitingForPlacement, migrationv1alpha1.ReasonWaitingForDestination:
		return true
	}
	return false
}

// IsStuck reports whether a migration has made no progress for a long time.
func IsStuck(migration *migrationv1alpha1.LogicalClusterMigration) bool {
	return conditionsv1alpha1.IsFalse(migration, migrationv1alpha1.Progressing)
}

// IsRefused reports whether a migration that has not begun waits for a shard that is closed, full, unhealthy or unknown.
func IsRefused(migration *migrationv1alpha1.LogicalClusterMigration, shards []corev1alpha1.Shard) bool {
	if !IsUnbegun(migration) {
		return false
	}
	for i := range shards {
		if shards[i].Name == migration.Spec.DestinationShard {
			_, refusal := placementrules.FromStatus(&shards[i], 0).Candidate()
			return refusal != nil
		}
	}
	return true
}

// Decode returns a migration.
func Decode(object *unstructured.Unstructured) (*migrationv1alpha1.LogicalClusterMigration, error) {
	migration := &migrationv1alpha1.LogicalClusterMigration{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, migration); err != nil {
		return nil, fmt.Errorf("decoding LogicalClusterMigration %q: %w", object.GetName(), err)
	}
	return migration, nil
}

// ForEach calls do with each object of a resource.
func ForEach(ctx context.Context, resource dynamic.ResourceInterface, options metav1.ListOptions, do func(*unstructured.Unstructured) error) error {
	options.Limit = 500
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
