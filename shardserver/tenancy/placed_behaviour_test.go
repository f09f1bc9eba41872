package tenancy_test

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// TestPlacedOnShardThatClosed creates workspaces with a placement that was stored before their shard has closed.
func TestPlacedOnShardThatClosed(t *testing.T) {
	in := startEnv(t, "beta")
	root := shardtesting.In(t.Context(), "root")
	createPlaced := func(t *testing.T, name string) {
		t.Helper()
		workspace := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
			tenancyv1alpha1.WorkspaceClusterAnnotationKey: "placed" + name,
			corev1alpha1.ShardAnnotationKey:               "root",
		}}}
		workspace.Spec.Type = &tenancyv1alpha1.WorkspaceTypeReference{Name: "universal", Path: "root"}
		if err := in.clients["root"].Create(root, workspace); err != nil {
			t.Fatal(err)
		}
	}
	cordon := func(t *testing.T, value string) {
		t.Helper()
		shard := &corev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: "root"}}
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+corev1alpha1.UnschedulableAnnotationKey+`":`+value+`}}}`))
		if err := in.clients["root"].Patch(root, shard, patch); err != nil {
			t.Fatal(err)
		}
	}

	t.Run("cordoned", func(t *testing.T) {
		cordon(t, `""`)
		shardtesting.Eventually(t, "the shard is cordoned", func(ctx context.Context) error {
			probe := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{GenerateName: "known-"}}
			shardtesting.OnShard("root")(probe)
			if err := in.clients["root"].Create(shardtesting.In(ctx, "root"), probe); err != nil {
				return err
			}
			if probe.Annotations[corev1alpha1.ShardAnnotationKey] != "" {
				return errors.New("workspaces are still placed on it")
			}
			return nil
		})
		createPlaced(t, "cordoned")
		in.assertOn(t, waitReady(t, in.clients["root"], "root", "cordoned"), "beta")
	})

	t.Run("no other shard", func(t *testing.T) {
		in.limit(t, "beta", `"hard":{"workspaces":1}`)
		in.create(t, "root", "root", "probe", "beta")
		in.waitForReason(t, "probe", tenancyv1alpha1.WorkspaceScheduled, tenancyv1alpha1.ReasonUnschedulable)
		createPlaced(t, "waits")
		in.waitForReason(t, "waits", tenancyv1alpha1.WorkspaceScheduled, tenancyv1alpha1.ReasonUnschedulable)
		cordon(t, "null")
		in.assertOn(t, waitReady(t, in.clients["root"], "root", "waits"), "root")
	})

	t.Run("at its hard limit", func(t *testing.T) {
		in.limit(t, "beta", `"hard":null`)
		in.limit(t, "root", `"hard":{"workspaces":1}`)
		in.assertOn(t, waitReady(t, in.clients["root"], "root", "probe"), "beta")
		createPlaced(t, "full")
		in.assertOn(t, waitReady(t, in.clients["root"], "root", "full"), "beta")
	})
}
