package tenancy_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// TestControllersResumeAfterCrash creates workspaces in the states that a crash between two writes leaves, starts the
// controllers, and expects each workspace to become ready or to be deleted, with the logical cluster that it had.
func TestControllersResumeAfterCrash(t *testing.T) {
	idle := shardtesting.Start(t, func(o *options.Options) { o.Controllers.Enable = false })
	masters := idle.Client(t, idle.Masters(t))
	root := shardtesting.In(t.Context(), "root")

	create := func(name string, change func(*tenancyv1alpha1.Workspace)) *tenancyv1alpha1.Workspace {
		workspace := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		change(workspace)
		if err := masters.Create(root, workspace); err != nil {
			t.Fatal(err)
		}
		return workspace
	}
	reserved := func(w *tenancyv1alpha1.Workspace) {
		w.Annotations = map[string]string{corev1alpha1.ShardAnnotationKey: "root", tenancyv1alpha1.WorkspaceClusterAnnotationKey: "cluster-of-" + w.Name}
		w.Finalizers = []string{corev1alpha1.LogicalClusterFinalizer}
	}
	clusters := map[string]types.UID{}
	createCluster := func(w *tenancyv1alpha1.Workspace) {
		cluster := &corev1alpha1.LogicalCluster{
			ObjectMeta: metav1.ObjectMeta{Name: corev1alpha1.LogicalClusterName, Annotations: map[string]string{
				corev1alpha1.LogicalClusterPathAnnotationKey: "root:" + w.Name, corev1alpha1.LogicalClusterTypeAnnotationKey: "root:universal",
			}},
			Spec: corev1alpha1.LogicalClusterSpec{
				Owner:        &corev1alpha1.LogicalClusterOwner{APIVersion: "tenancy.kcp.io/v1alpha1", Resource: "workspaces", Name: w.Name, Cluster: "root", UID: w.UID},
				Initializers: []corev1alpha1.LogicalClusterInitializer{"root:universal", corev1alpha1.SystemAPIBindingsInitializer},
			},
		}
		if err := masters.Create(shardtesting.In(t.Context(), "cluster-of-"+w.Name), cluster); err != nil {
			t.Fatal(err)
		}
		clusters[w.Name] = cluster.UID
	}

	create("before-anything", func(*tenancyv1alpha1.Workspace) {})
	create("after-reserving", reserved)
	createCluster(create("after-making", reserved))
	createCluster(create("after-publishing", func(w *tenancyv1alpha1.Workspace) {
		reserved(w)
		w.Spec.Cluster, w.Spec.URL = "cluster-of-"+w.Name, "https://old.example/clusters/root:"+w.Name
	}))
	// Some of what is created together may be stored without the rest.
	createCluster(create("after-a-part", reserved))
	inPart := shardtesting.In(t.Context(), "cluster-of-after-a-part")
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "default"}},
	} {
		if err := masters.Create(inPart, object); err != nil {
			t.Fatal(err)
		}
	}
	deleted := create("deleted-meanwhile", reserved)
	createCluster(deleted)
	inDeleted := shardtesting.In(t.Context(), "cluster-of-deleted-meanwhile")
	if err := masters.Create(inDeleted, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n"}}); err != nil {
		t.Fatal(err)
	}
	if err := masters.Delete(root, deleted); err != nil {
		t.Fatal(err)
	}
	if err := idle.Stop(); err != nil {
		t.Fatal(err)
	}

	shard := shardtesting.StartIn(t, idle.Directory)
	masters = shard.Client(t, shard.Masters(t))
	for _, name := range []string{"before-anything", "after-reserving", "after-making", "after-publishing", "after-a-part"} {
		workspace := waitReady(t, masters, "root", name)
		if name != "before-anything" && workspace.Spec.Cluster != "cluster-of-"+name {
			t.Errorf("%s: cluster %q", name, workspace.Spec.Cluster)
		}
		if want := workspaceURL(shard, name); workspace.Spec.URL != want {
			t.Errorf("%s: URL %q, want %q", name, workspace.Spec.URL, want)
		}
		cluster := &corev1alpha1.LogicalCluster{}
		get(t, masters, shardtesting.In(t.Context(), workspace.Spec.Cluster), cluster, "", corev1alpha1.LogicalClusterName)
		if uid, made := clusters[name]; made && cluster.UID != uid {
			t.Errorf("%s: its logical cluster has changed", name)
		}
	}
	get(t, masters, inPart, &corev1.Namespace{}, "", "kube-system")
	for _, namespace := range []string{"default", "kube-system"} {
		shardtesting.Eventually(t, "the default objects of "+namespace, func(context.Context) error {
			return errors.Join(masters.Get(inPart, client.ObjectKey{Namespace: namespace, Name: "default"}, &corev1.ServiceAccount{}),
				masters.Get(inPart, client.ObjectKey{Namespace: namespace, Name: "kube-root-ca.crt"}, &corev1.ConfigMap{}))
		})
	}
	shardtesting.Eventually(t, "the deletion", func(context.Context) error {
		err := masters.Get(root, client.ObjectKeyFromObject(deleted), deleted)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it exists (%v): %+v", err, deleted.Status)
	})
	assertNoKey(t, shard, "cluster-of-deleted-meanwhile")
}

func workspaceURL(shard *shardtesting.Shard, name string) string {
	return "https://" + shard.Server.Host() + "/clusters/root:" + name
}
