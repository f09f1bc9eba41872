package shardserver_test

import (
	"context"
	"fmt"
	"testing"

	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// TestWorkspaceDeletionInBatches: one pass is bounded, because tenants share the workers. The remaining objects
// must be deleted by the following passes, to the last key.
func TestWorkspaceDeletionInBatches(t *testing.T) {
	shard := sharedShard(t)
	cluster := shard.NewWorkspace(t, "root", "full").Spec.Cluster
	c := shard.Client(t, shard.Admin(t))
	var writers errgroup.Group
	writers.SetLimit(16)
	for i := range 1100 { // more than two passes
		writers.Go(func() error {
			return c.Create(shardtesting.In(t.Context(), cluster), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("role-%d", i)}})
		})
	}
	if err := writers.Wait(); err != nil {
		t.Fatal(err)
	}
	workspace := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: "full"}}
	if err := c.Delete(shardtesting.In(t.Context(), "root"), workspace); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the end of the workspace", func(ctx context.Context) error {
		err := c.Get(shardtesting.In(ctx, "root"), client.ObjectKeyFromObject(workspace), workspace)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("phase %s, conditions %+v: %v", workspace.Status.Phase, workspace.Status.Conditions, err)
	})
	if left := shard.Keys(t, cluster); len(left) > 0 {
		t.Errorf("%d keys remain, the first is %s", len(left), left[0])
	}
}
