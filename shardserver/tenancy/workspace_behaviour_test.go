package tenancy_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

func TestWorkspaces(t *testing.T) {
	shard := shardtesting.Start(t)
	masters := shard.Client(t, shard.Masters(t))

	t.Run("workspace becomes ready with default namespaces", func(t *testing.T) {
		workspace := createReady(t, masters, "root", "one")
		if workspace.Spec.URL == "" || workspace.Labels[corev1alpha1.PhaseLabelKey] != "Ready" || len(workspace.Status.Initializers) != 0 {
			t.Errorf("got %+v", workspace)
		}
		in := shardtesting.In(t.Context(), workspace.Spec.Cluster)
		cluster := &corev1alpha1.LogicalCluster{}
		get(t, masters, in, cluster, "", corev1alpha1.LogicalClusterName)
		if cluster.Status.Phase != corev1alpha1.LogicalClusterPhaseReady || cluster.Annotations[corev1alpha1.LogicalClusterPathAnnotationKey] != "root:one" ||
			cluster.Annotations[corev1alpha1.LogicalClusterTypeAnnotationKey] != "root:organization" || cluster.Spec.Owner.UID != workspace.UID {
			t.Errorf("got %+v", cluster)
		}
		for _, namespace := range []string{"default", "kube-system"} {
			get(t, masters, in, &corev1.Namespace{}, "", namespace)
			shardtesting.Eventually(t, "the content of namespace "+namespace, func(context.Context) error {
				if err := masters.Get(in, client.ObjectKey{Namespace: namespace, Name: "default"}, &corev1.ServiceAccount{}); err != nil {
					return err
				}
				return masters.Get(in, client.ObjectKey{Namespace: namespace, Name: "kube-root-ca.crt"}, &corev1.ConfigMap{})
			})
		}
	})

	t.Run("deleted binding of the creator is recreated", func(t *testing.T) {
		bound := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: "bound", Annotations: map[string]string{
			tenancyv1alpha1.ExperimentalWorkspaceOwnerAnnotationKey: `{"username":"alice","groups":["g"]}`,
		}}}
		if err := masters.Create(shardtesting.In(t.Context(), "root"), bound); err != nil {
			t.Fatal(err)
		}
		bound = waitReady(t, masters, "root", "bound")
		if got := bound.Annotations[tenancyv1alpha1.ExperimentalWorkspaceOwnerAnnotationKey]; got != `{"username":"alice"}` {
			t.Errorf("the owner annotation of a ready workspace is %s", got)
		}
		in := shardtesting.In(t.Context(), bound.Spec.Cluster)
		binding := &rbacv1.ClusterRoleBinding{}
		get(t, masters, in, binding, "", "workspace-admin")
		if err := masters.Delete(in, binding); err != nil {
			t.Fatal(err)
		}
		shardtesting.Eventually(t, "the binding", func(context.Context) error {
			recreated := &rbacv1.ClusterRoleBinding{}
			if err := masters.Get(in, client.ObjectKey{Name: "workspace-admin"}, recreated); err != nil {
				return err
			}
			if recreated.UID == binding.UID {
				return fmt.Errorf("it was not recreated")
			}
			return nil
		})
	})

	t.Run("tree is deleted from its leaves", func(t *testing.T) {
		parent := createReady(t, masters, "root", "parent")
		child := createReady(t, masters, parent.Spec.Cluster, "child")
		leaf := createReady(t, masters, child.Spec.Cluster, "leaf")
		for _, workspace := range []*tenancyv1alpha1.Workspace{parent, child, leaf} {
			fill(t, masters, shardtesting.In(t.Context(), workspace.Spec.Cluster))
		}
		root := shardtesting.In(t.Context(), "root")
		if err := masters.Delete(root, parent); err != nil {
			t.Fatal(err)
		}
		shardtesting.Eventually(t, "the deletion of the tree", func(context.Context) error {
			left := &tenancyv1alpha1.Workspace{}
			err := masters.Get(root, client.ObjectKeyFromObject(parent), left)
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("it exists (%v): %+v", err, left.Status)
		})
		for _, workspace := range []*tenancyv1alpha1.Workspace{parent, child, leaf} {
			assertNoKey(t, shard, workspace.Spec.Cluster)
		}
	})

	t.Run("workspace with a selector that no shard matches has a condition and can be deleted", func(t *testing.T) {
		root := shardtesting.In(t.Context(), "root")
		workspace := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: "unmatched"}, Spec: tenancyv1alpha1.WorkspaceSpec{
			Location: &tenancyv1alpha1.WorkspaceLocation{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"no": "where"}}},
		}}
		if err := masters.Create(root, workspace); err != nil {
			t.Fatal(err)
		}
		shardtesting.Eventually(t, "the condition", func(context.Context) error {
			get(t, masters, root, workspace, "", "unmatched")
			for _, condition := range workspace.Status.Conditions {
				if condition.Type == tenancyv1alpha1.WorkspaceScheduled && condition.Reason == tenancyv1alpha1.ReasonUnschedulable && workspace.Status.Phase == "Scheduling" {
					return nil
				}
			}
			return fmt.Errorf("status %+v", workspace.Status)
		})
		if err := masters.Delete(root, workspace); err != nil {
			t.Fatal(err)
		}
		shardtesting.Eventually(t, "the deletion", func(context.Context) error {
			if err := masters.Get(root, client.ObjectKeyFromObject(workspace), workspace); !apierrors.IsNotFound(err) {
				return fmt.Errorf("it exists: %v", err)
			}
			return nil
		})
	})

	t.Run("workspace is stored with its placement", func(t *testing.T) {
		root := shardtesting.In(t.Context(), "root")
		placed := func(w *tenancyv1alpha1.Workspace) bool {
			return w.Annotations[tenancyv1alpha1.WorkspaceClusterAnnotationKey] != "" && w.Annotations[corev1alpha1.ShardAnnotationKey] == "root" &&
				slices.Contains(w.Finalizers, corev1alpha1.LogicalClusterFinalizer)
		}
		workspace := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: "placed"}}
		if err := masters.Create(root, workspace.DeepCopy(), client.DryRunAll); err != nil {
			t.Fatal(err)
		}
		if err := masters.Create(root, workspace); err != nil {
			t.Fatal(err)
		}
		if !placed(workspace) || workspace.Spec.Cluster != "" || workspace.Status.Phase != corev1alpha1.LogicalClusterPhaseScheduling {
			t.Errorf("got %+v", workspace)
		}
		if got := waitReady(t, masters, "root", "placed"); got.Spec.Cluster != workspace.Annotations[tenancyv1alpha1.WorkspaceClusterAnnotationKey] {
			t.Errorf("the logical cluster is %q, want the stored name", got.Spec.Cluster)
		}
		unplaceable := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: "nowhere"}}
		shardtesting.OnShard("missing")(unplaceable)
		if err := masters.Create(root, unplaceable); err != nil || placed(unplaceable) || len(unplaceable.Finalizers) != 0 {
			t.Errorf("a workspace without a matching shard: %v, %+v", err, unplaceable)
		}
	})

	t.Run("stored placement is used after a crash", func(t *testing.T) {
		root := shardtesting.In(t.Context(), "root")
		resumed := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{
			Name: "resumed",
			Annotations: map[string]string{
				tenancyv1alpha1.WorkspaceClusterAnnotationKey: "writtendownbefore",
				corev1alpha1.ShardAnnotationKey:               "root",
			},
		}}
		if err := masters.Create(root, resumed); err != nil {
			t.Fatal(err)
		}
		if got := waitReady(t, masters, "root", "resumed"); got.Spec.Cluster != "writtendownbefore" {
			t.Errorf("the cluster is %q, which was not stored", got.Spec.Cluster)
		}
	})

	t.Run("name that another workspace uses is not shared", func(t *testing.T) {
		root := shardtesting.In(t.Context(), "root")
		taken := createReady(t, masters, "root", "owner")
		thief := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{
			Name:        "thief",
			Annotations: map[string]string{tenancyv1alpha1.WorkspaceClusterAnnotationKey: taken.Spec.Cluster},
		}}
		if err := masters.Create(root, thief); err != nil {
			t.Fatal(err)
		}
		if got := waitReady(t, masters, "root", "thief"); got.Spec.Cluster == taken.Spec.Cluster {
			t.Error("two workspaces share a logical cluster")
		}
	})
}

// fill creates objects of several kinds in a logical cluster.
func fill(t *testing.T, c client.Client, in context.Context) {
	t.Helper()
	for _, obj := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "own"}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "own", Name: "x"}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x"}},
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "own", Name: "x"}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "x"}},
		&corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "own", Name: "x"}, InvolvedObject: corev1.ObjectReference{Namespace: "own"}},
	} {
		if err := c.Create(in, obj); err != nil {
			t.Fatal(err)
		}
	}
}

// assertNoKey checks that etcd has no keys of a deleted logical cluster.
func assertNoKey(t *testing.T, shard *shardtesting.Shard, cluster string) {
	t.Helper()
	if len(shard.Keys(t, "/root/")) == 0 {
		t.Fatal("there are no keys at all: the wrong store was read")
	}
	shardtesting.Eventually(t, "no key of "+cluster, func(context.Context) error { // its usage is deleted last
		if keys := shard.Keys(t, "/"+cluster+"/"); len(keys) > 0 {
			return fmt.Errorf("%q remain", keys)
		}
		return nil
	})
}

// createReady creates a workspace of the default type and waits until it is ready.
func createReady(t *testing.T, c client.Client, parent, name string) *tenancyv1alpha1.Workspace {
	t.Helper()
	if err := c.Create(shardtesting.In(t.Context(), parent), &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		t.Fatal(err)
	}
	return waitReady(t, c, parent, name)
}

func waitReady(t *testing.T, c client.Client, parent, name string) *tenancyv1alpha1.Workspace {
	t.Helper()
	workspace := &tenancyv1alpha1.Workspace{}
	shardtesting.Eventually(t, "workspace "+name, func(context.Context) error {
		get(t, c, shardtesting.In(t.Context(), parent), workspace, "", name)
		if workspace.Status.Phase != corev1alpha1.LogicalClusterPhaseReady {
			return fmt.Errorf("spec %+v, status %+v", workspace.Spec, workspace.Status)
		}
		return nil
	})
	return workspace
}

func get(t *testing.T, c client.Client, ctx context.Context, obj client.Object, namespace, name string) {
	t.Helper()
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, obj); err != nil {
		t.Fatal(err)
	}
}
