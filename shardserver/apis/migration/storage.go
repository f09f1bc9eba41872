// Package migration serves LogicalClusterMigration of the group migration.kcp.io. Package shardserver/migration acts on its
// objects; this package validates single objects only.
package migration

import (
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	_ "github.com/atoll-dev/atoll/shardserver/apis/install" // registers the types in the scheme
	"github.com/atoll-dev/atoll/shardserver/apis/registry"
)

var phases = []migrationv1alpha1.LogicalClusterMigrationPhaseType{
	migrationv1alpha1.LogicalClusterMigrationPhasePreparing, migrationv1alpha1.LogicalClusterMigrationPhaseMigrating,
	migrationv1alpha1.LogicalClusterMigrationPhaseOriginCleanup, migrationv1alpha1.LogicalClusterMigrationPhaseDestinationFinalize,
	migrationv1alpha1.LogicalClusterMigrationPhaseAborting,
	migrationv1alpha1.LogicalClusterMigrationPhaseCompleted, migrationv1alpha1.LogicalClusterMigrationPhaseFailed,
}

var migrations = &registry.Kind[*migrationv1alpha1.LogicalClusterMigration]{
	Resource: migrationv1alpha1.SchemeGroupVersion.WithResource("logicalclustermigrations"),
	Singular: "logicalclustermigration",

	New:     func() *migrationv1alpha1.LogicalClusterMigration { return &migrationv1alpha1.LogicalClusterMigration{} },
	NewList: func() runtime.Object { return &migrationv1alpha1.LogicalClusterMigrationList{} },
	Initialize: func(migration *migrationv1alpha1.LogicalClusterMigration) {
		migration.Status.Phase = migrationv1alpha1.LogicalClusterMigrationPhasePreparing
	},
	CopySpec:   func(to, from *migrationv1alpha1.LogicalClusterMigration) { to.Spec = from.Spec },
	CopyStatus: func(to, from *migrationv1alpha1.LogicalClusterMigration) { to.Status = from.Status },
	SameSpec: func(a, b *migrationv1alpha1.LogicalClusterMigration) bool {
		return equality.Semantic.DeepEqual(a.Spec, b.Spec)
	},
	SameStatus: func(a, b *migrationv1alpha1.LogicalClusterMigration) bool {
		return equality.Semantic.DeepEqual(a.Status, b.Status)
	},

	ValidateName: validateName,
	ValidateSpec: validateSpec,
	// Shards that have begun to move the logical cluster would not notice a change.
	ValidateTransition: func(migration, old *migrationv1alpha1.LogicalClusterMigration) field.ErrorList {
		if migration.Spec == old.Spec {
			return nil
		}
		return field.ErrorList{field.Forbidden(field.NewPath("spec"), "it cannot be changed; delete the migration, and create another one")}
	},
	ValidateStatus: func(migration *migrationv1alpha1.LogicalClusterMigration) field.ErrorList {
		path := field.NewPath("status")
		errs := registry.ValidateConditions(migration.Status.Conditions, path.Child("conditions"))
		if migration.Status.Phase != "" {
			errs = append(errs, registry.ValidateOneOf(migration.Status.Phase, phases, path.Child("phase"))...)
		}
		return errs
	},

	Columns: registry.Columns{
		registry.Column("Logical Cluster", ".spec.logicalCluster"), registry.Column("Phase", ".status.phase"),
		registry.Column("Destination", ".spec.destinationShard"), registry.Column("Entries Copied", ".status.entriesCopied"),
		registry.Age,
	},
}

// Storages returns the stores of migration.kcp.io/v1alpha1 by resource: "logicalclustermigrations" and
// "logicalclustermigrations/status".
func Storages(getter generic.RESTOptionsGetter) (map[string]rest.Storage, error) {
	storages := map[string]rest.Storage{}
	if err := registry.NewStores(migrations, legacyscheme.Scheme, getter, storages); err != nil {
		return nil, err
	}
	return storages, nil
}

func validateName(name string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, message := range validation.NameIsDNSSubdomain(name, false) {
		errs = append(errs, field.Invalid(path, name, message))
	}
	return errs
}

func validateSpec(migration *migrationv1alpha1.LogicalClusterMigration) field.ErrorList {
	path := field.NewPath("spec")
	cluster := path.Child("logicalCluster")
	errs := registry.ValidateRequired(migration.Spec.LogicalCluster, cluster)
	errs = append(errs, registry.ValidateRequired(migration.Spec.DestinationShard, path.Child("destinationShard"))...)
	if len(errs) > 0 {
		return errs
	}
	if _, err := logicalcluster.ParseName(migration.Spec.LogicalCluster); err != nil {
		errs = append(errs, field.Invalid(cluster, migration.Spec.LogicalCluster, "want the name of a logical cluster, not a path: spec.cluster of the workspace"))
	}
	return errs
}
