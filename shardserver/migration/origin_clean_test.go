package migration

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/transfer"
)

// TestCleanFailures: what keeps the origin from deleting the remainder of a move is reported, until it is gone.
func TestCleanFailures(t *testing.T) {
	unknown := fmt.Errorf("deleting: %w", &transfer.UnknownKeysError{Prefix: "/registry/example.com/widgets/moving/", Keys: 3})
	o := &originService{}
	for _, step := range []struct {
		err             error
		changed         bool
		reason, message string
	}{
		{errConflict, false, "", ""},
		{unknown, true, migrationv1alpha1.ReasonKeysNotHandedOver, "3 keys below /registry/example.com/widgets/moving/ that were not handed over, so that no other shard has them. If their content is needed, create it again on the destination; then delete these keys"},
		{unknown, false, migrationv1alpha1.ReasonKeysNotHandedOver, "3 keys"},
		{fmt.Errorf("deleting: %w", transfer.ErrFenced), false, migrationv1alpha1.ReasonKeysNotHandedOver, "3 keys"},
		{errors.New("etcd is away"), true, migrationv1alpha1.ReasonCleanupFailed, "etcd is away"},
		{nil, true, "", ""},
		{nil, false, "", ""},
	} {
		changed := o.failures.set("m", step.err)
		if reason, message := o.failures.get("m"); changed != step.changed || reason != step.reason || !strings.Contains(message, step.message) {
			t.Errorf("%v: changed %t, %s: %s", step.err, changed, reason, message)
		}
	}

	ended := newMigration(migrationv1alpha1.LogicalClusterMigrationPhaseCompleted)
	ended.ObjectMeta = metav1.ObjectMeta{Name: "ended", UID: "ended"}
	registry := storage.NewRegistry(storage.Locality{})
	registry.SetRemoteStore(replicas{migrations: map[string]*migrationv1alpha1.LogicalClusterMigration{
		"running": newMigration(migrationv1alpha1.LogicalClusterMigrationPhaseOriginCleanup), "ended": ended,
	}})
	o.reader = newReader(registry, false)
	for _, uid := range []types.UID{"m", "ended", "deleted"} {
		o.failures.set(uid, unknown)
	}
	if err := o.forgetFailures(t.Context()); err != nil {
		t.Fatal(err)
	}
	if reason, _ := o.failures.get("m"); len(o.failures.byUID) != 1 || reason == "" {
		t.Errorf("left: %v", o.failures.byUID)
	}
}
