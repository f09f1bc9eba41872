package core

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apiserver/pkg/admission"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/admission/rules"
)

var migrations = migrationv1alpha1.Resource("logicalclustermigrations")

// refuseMigrations refuses to create requests for the migration of logical clusters where no controller acts on them. Otherwise those who
// administrate the installation may create and change them: a migration concerns a logical cluster of anybody, whatever the workspace
// that contains the request. Its status decides which shard gets the content, so that shards alone write it.
type refuseMigrations struct {
	*admission.Handler
	reason   string
	clusters rules.ClusterReader
}

// NewRefuseMigrations returns the plug-in migration.kcp.io/LogicalClusterMigration.
func NewRefuseMigrations(c rules.Config) admission.Interface {
	return refuseMigrations{admission.NewHandler(admission.Create, admission.Update), c.MigrationRefusal, rules.NewClusterReader(c.Registry)}
}

// Validate implements admission.ValidationInterface.
func (r refuseMigrations) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != migrations {
		return nil
	}
	privileged := rules.IsMaster(a.GetUserInfo())
	switch isUpdate := a.GetOperation() == admission.Update; {
	case a.GetSubresource() != "" && !privileged:
		return rules.Forbid(a, "the shards write the status of migrations")
	case a.GetSubresource() != "", isUpdate && privileged:
		return nil
	case !isUpdate && r.reason != "":
		return rules.Forbid(a, "%s", r.reason)
	case privileged:
		return nil
	case !rules.InAnyGroup(a.GetUserInfo(), rules.GroupAdmin, rules.GroupExternalLogicalClusterAdmin):
		return rules.Forbid(a, "only administrators of the installation (the groups %s and %s) move logical clusters", rules.GroupAdmin, rules.GroupExternalLogicalClusterAdmin)
	case isUpdate && endsMigration(a):
		return rules.Forbid(a, "metadata.finalizers: the shards remove %s when nothing of the migration is left", migrationv1alpha1.MigrationFinalizer)
	case isUpdate:
		return nil
	}
	return r.validateCluster(ctx, a)
}

// validateCluster refuses migrations in a logical cluster that is not Ready: there, initializers and terminators act as the creator of
// the workspace, and another shard may have said who that is.
func (r refuseMigrations) validateCluster(ctx context.Context, a admission.Attributes) error {
	cluster, err := r.clusters.Get(ctx)
	if apierrors.IsNotFound(err) {
		return rules.Forbid(a, "the logical cluster does not exist")
	}
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("reading the logical cluster of migration %q: %w", a.GetName(), err))
	}
	if cluster.Status.Phase != corev1alpha1.LogicalClusterPhaseReady || cluster.DeletionTimestamp != nil {
		return rules.Forbid(a, "the workspace is in phase %s: create migrations in one that is Ready", cluster.Status.Phase)
	}
	return nil
}

// endsMigration reports whether an update removes the finalizer that keeps a migration until its end: its shards could not
// agree on the end of a migration that does not exist.
func endsMigration(a admission.Attributes) bool {
	before, errBefore := meta.Accessor(a.GetOldObject())
	after, errAfter := meta.Accessor(a.GetObject())
	return errBefore == nil && errAfter == nil &&
		slices.Contains(before.GetFinalizers(), migrationv1alpha1.MigrationFinalizer) && !slices.Contains(after.GetFinalizers(), migrationv1alpha1.MigrationFinalizer)
}
