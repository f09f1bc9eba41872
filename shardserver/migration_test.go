package shardserver_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

func enableMigration(o *options.Options) {
	o.FeatureGates = append(o.FeatureGates, options.GateLogicalClusterMigration+"=true")
	o.Shard.ExternalURL = "https://workspaces.example.com" // of both: URLs of workspaces do not change
}

// TestDestinationWithoutCertificate: the root shard, whose cache is embedded, needs a certificate for no other shard. A move to it
// waits, and says why.
func TestDestinationWithoutCertificate(t *testing.T) {
	root := shardtesting.Start(t, enableMigration)
	alpha := shardtesting.StartShard(t, root, "alpha", enableMigration)
	root.WaitShards(t, "alpha")
	atRoot := root.Client(t, root.Masters(t))
	workspace := shardtesting.NewWorkspace(t, atRoot, "root", "team", shardtesting.OnShard("alpha"))
	migration := &migrationv1alpha1.LogicalClusterMigration{
		ObjectMeta: metav1.ObjectMeta{Name: "team"},
		Spec:       migrationv1alpha1.LogicalClusterMigrationSpec{LogicalCluster: workspace.Spec.Cluster, DestinationShard: "root"},
	}
	if err := atRoot.Create(shardtesting.In(t.Context(), "root"), migration); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the reason", func(ctx context.Context) error {
		if err := atRoot.Get(shardtesting.In(ctx, "root"), client.ObjectKeyFromObject(migration), migration); err != nil {
			return err
		}
		reason, message := conditionsv1alpha1.GetReason(migration, migrationv1alpha1.DataCopied), conditionsv1alpha1.GetMessage(migration, migrationv1alpha1.DataCopied)
		if migration.Status.Phase != migrationv1alpha1.LogicalClusterMigrationPhaseMigrating || reason != migrationv1alpha1.ReasonWaitingForDestination ||
			!strings.Contains(message, "--shard-client-cert-file") {
			return fmt.Errorf("status %+v", migration.Status)
		}
		return nil
	})
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "meanwhile"}}
	if err := alpha.Client(t, alpha.Masters(t)).Create(shardtesting.In(t.Context(), workspace.Spec.Cluster), object); err != nil {
		t.Errorf("a migration that waits refuses writes: %v", err)
	}
}
