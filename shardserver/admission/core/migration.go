package core

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/admission/rules"
)

var migrations = migrationv1alpha1.Resource("logicalclustermigrations")

// refuseMigrations refuses to create requests for the migration of logical clusters where nobody acts on them. Otherwise it allows them to those who administrate the installation: a migration concerns a logical
// cluster of anybody, whatever the workspace that contains the request.
type refuseMigrations struct {
	*admission.Handler
	reason string
}

// NewRefuseMigrations returns the plug-in migration.kcp.io/LogicalClusterMigration.
func NewRefuseMigrations(c rules.Config) admission.Interface {
	return refuseMigrations{admission.NewHandler(admission.Create, admission.Update), c.MigrationRefusal}
}

// Validate implements admission.ValidationInterface.
func (r refuseMigrations) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != migrations || a.GetSubresource() != "" {
		return nil
	}
	privileged := slices.Contains(a.GetUserInfo().GetGroups(), user.SystemPrivilegedGroup)
	if a.GetOperation() == admission.Update {
		if !privileged && endsMigration(a) {
			return rules.Forbid(a, "metadata.finalizers: the shards remove %s when nothing of the migration is left", migrationv1alpha1.MigrationFinalizer)
		}
		return nil
	}
	if r.reason != "" {
		return rules.Forbid(a, "%s", r.reason)
	}
	if privileged {
		return nil
	}
	for _, group := range []string{rules.GroupAdmin, rules.GroupExternalLogicalClusterAdmin} {
		if slices.Contains(a.GetUserInfo().GetGroups(), group) {
			return nil
		}
	}
	return rules.Forbid(a, "only administrators of the installation (the groups %s and %s) move logical clusters", rules.GroupAdmin, rules.GroupExternalLogicalClusterAdmin)
}

// endsMigration reports whether an update removes the finalizer that keeps a migration until its end: its shards could not
// agree on the end of a migration that does not exist.
func endsMigration(a admission.Attributes) bool {
	before, errBefore := meta.Accessor(a.GetOldObject())
	after, errAfter := meta.Accessor(a.GetObject())
	return errBefore == nil && errAfter == nil &&
		slices.Contains(before.GetFinalizers(), migrationv1alpha1.MigrationFinalizer) && !slices.Contains(after.GetFinalizers(), migrationv1alpha1.MigrationFinalizer)
}
