package shardserver_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/sharding/placement"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/tenancy/remote"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// childReport is the replica of the report of another shard on a logical cluster whose Workspace is in one that moves.
type childReport struct {
	replicas
	object *shardingv1alpha1.LogicalClusterReport
	// migration is that of the logical cluster with the Workspace; nil if none is published.
	migration *migrationv1alpha1.LogicalClusterMigration
}

func (r *childReport) List(resource schema.GroupResource, cluster logicalcluster.Name) []runtime.Object {
	if resource == migrationv1alpha1.Resource("logicalclustermigrations") && r.migration != nil {
		return []runtime.Object{r.migration}
	}
	return r.replicas.List(resource, cluster)
}

func (r *childReport) Get(resource schema.GroupResource, cluster logicalcluster.Name, namespace, name string) (runtime.Object, bool) {
	if resource == logicalClusterReports && logicalcluster.Of(r.object) == cluster && r.object.Name == name {
		return r.object, true
	}
	return r.replicas.Get(resource, cluster, namespace, name)
}

var logicalClusterReports = shardingv1alpha1.Resource("logicalclusterreports")

// testChildrenOfMovingCluster: a shard that does not serve a logical cluster has no Workspaces in it. It must not request the deletion of their logical clusters
// on other shards, which may not have learned yet that the Workspaces have moved, and must not confirm their moves: a Workspace that has moved names the shard from
// before both.
func testChildrenOfMovingCluster(t *testing.T, shard *shardtesting.Shard) {
	parent := shard.NewWorkspace(t, "root", "parent-moves").Spec.Cluster
	name, child := logicalcluster.MustParseName(parent), logicalcluster.MustParseName("child")
	registry := shard.Server.Registry
	before := registry.RemoteStore()
	defer registry.SetRemoteStore(before)
	replica := &childReport{object: &shardingv1alpha1.LogicalClusterReport{
		ObjectMeta: metav1.ObjectMeta{Name: placement.ReportName(name, "ws"), Annotations: map[string]string{logicalcluster.AnnotationKey: child.String(), "kcp.io/shard": "beta"}},
		Spec: shardingv1alpha1.LogicalClusterReportSpec{
			Owner: corev1alpha1.LogicalClusterOwner{Cluster: parent, Name: "ws"}, Shard: "alpha", State: shardingv1alpha1.LogicalClusterExists, UID: "child",
		},
	}}
	registry.SetRemoteStore(replica)
	requests := remote.PublishedSources(remote.Config{Registry: registry, ShardName: "alpha", Held: func() bool { return false }})[0]
	isRequest := func(request *shardingv1alpha1.LogicalClusterRequest) bool { return request.Spec.Delete }
	expect := func(state string, want bool) {
		t.Helper()
		shardtesting.Eventually(t, state, func(ctx context.Context) error {
			key := controller.Request{ClusterName: name, Name: placement.RequestName("ws", child)}
			desired, err := requests.Desired(logicalcluster.With(ctx, name), key)
			if err != nil {
				return err
			}
			request, ok := desired.(*shardingv1alpha1.LogicalClusterRequest)
			if ok != want || ok && !isRequest(request) {
				return fmt.Errorf("%s: the request is %+v", state, desired)
			}
			return nil
		})
	}
	m := newMover(t, shard, parent)
	arriving, movedTo := annotation(corev1alpha1.ArrivingAnnotationKey), annotation(corev1alpha1.MovedToAnnotationKey)
	expect("the parent is served, without such a workspace", true)
	m.replace(t, annotations, arriving)
	expect("the parent arrives", false)
	m.replace(t, arriving, annotations)
	expect("the parent is open", true)
	m.replace(t, annotations, movedTo)
	expect("the parent was handed over", false)
	for _, key := range shard.Keys(t, "/"+parent+"/") {
		if !strings.Contains(key, "/~") { // of the replicas
			shard.DeleteKey(t, key)
		}
	}
	clusters := storage.NewReader[*corev1alpha1.LogicalCluster](registry, corev1alpha1.Resource("logicalclusters"))
	shardtesting.Eventually(t, "the deletion of the remainder", func(ctx context.Context) error {
		if _, err := clusters.Get(logicalcluster.With(ctx, name), "", corev1alpha1.LogicalClusterName); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it exists (%w)", err)
		}
		return nil
	})
	expect("the remainder was deleted", false)

	replica.object.Spec.MovedTo = "gamma"
	isRequest = func(request *shardingv1alpha1.LogicalClusterRequest) bool { return request.Spec.Confirmed == "child" }
	replica.migration = &migrationv1alpha1.LogicalClusterMigration{
		ObjectMeta: metav1.ObjectMeta{Name: "move", Annotations: map[string]string{logicalcluster.AnnotationKey: "elsewhere"}},
		Spec:       migrationv1alpha1.LogicalClusterMigrationSpec{LogicalCluster: parent, DestinationShard: "gamma"},
	}
	expect("the child and the parent have moved", false)
	replica.migration = nil
	expect("the child has moved, and the parent was deleted", true)
}
