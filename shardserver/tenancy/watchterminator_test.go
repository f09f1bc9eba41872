package tenancy_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

func TestWatchTermination(t *testing.T) {
	shard := shardtesting.Start(t)
	masters := shard.Client(t, shard.Masters(t))
	open := func(cluster string) <-chan watch.Event {
		t.Helper()
		watcher, err := dynamic.NewForConfigOrDie(shardtesting.At(shard.Masters(t), cluster)).
			Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(watcher.Stop)
		return watcher.ResultChan()
	}
	first, second, neighbour := shard.NewWorkspace(t, "root", "first").Spec.Cluster, shard.NewWorkspace(t, "root", "second").Spec.Cluster, shard.NewWorkspace(t, "root", "neighbour").Spec.Cluster
	own, other, wildcard := open(first), open(neighbour), open("*")

	cluster := &corev1alpha1.LogicalCluster{}
	in := shardtesting.In(t.Context(), first)
	annotate := func(value string) {
		t.Helper()
		shardtesting.Eventually(t, "the annotation", func(context.Context) error {
			if err := masters.Get(in, client.ObjectKey{Name: "cluster"}, cluster); err != nil {
				return err
			}
			cluster.Annotations = map[string]string{corev1alpha1.InactiveAnnotationKey: value}
			return masters.Update(in, cluster)
		})
	}
	annotate("true")
	waitClosed(t, own, "a watch in a workspace that became inactive")
	waitClosed(t, wildcard, "a watch over all workspaces when one became inactive")
	shardtesting.Eventually(t, "the phase", func(context.Context) error {
		if err := masters.Get(in, client.ObjectKey{Name: "cluster"}, cluster); err != nil || cluster.Status.Phase != corev1alpha1.LogicalClusterPhaseInactive {
			return errors.Join(err, fmt.Errorf("phase %s", cluster.Status.Phase))
		}
		return nil
	})
	annotate("false")
	shardtesting.Eventually(t, "the phase", func(context.Context) error {
		if err := masters.Get(in, client.ObjectKey{Name: "cluster"}, cluster); err != nil || cluster.Status.Phase != corev1alpha1.LogicalClusterPhaseReady {
			return errors.Join(err, fmt.Errorf("phase %s", cluster.Status.Phase))
		}
		return nil
	})
	open(first)

	leaving := open(second)
	if err := masters.Delete(shardtesting.In(t.Context(), "root"), &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: "second"}}); err != nil {
		t.Fatal(err)
	}
	waitClosed(t, leaving, "a watch in a workspace that is being deleted")
	for {
		select {
		case _, ok := <-other:
			if !ok {
				t.Error("the watch of a neighbour ended, too")
				return
			}
		default:
			return
		}
	}
}

func waitClosed(t *testing.T, events <-chan watch.Event, what string) {
	t.Helper()
	timeout := time.After(30 * time.Second)
	for {
		select {
		case _, ok := <-events:
			if !ok {
				return
			}
		case <-timeout:
			t.Fatalf("%s is still open", what)
		}
	}
}
