package routing

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/internal/sharedindex"
	"github.com/atoll-dev/atoll/logicalcluster"
)

func annotated(cluster string) map[string]string {
	return map[string]string{logicalcluster.AnnotationKey: cluster, corev1alpha1.LogicalClusterTypeAnnotationKey: "root:team"}
}

func TestNewChange(t *testing.T) {
	logicalCluster := func(cluster string) runtime.Object {
		o := &corev1alpha1.LogicalCluster{}
		o.Name, o.Annotations = corev1alpha1.LogicalClusterName, annotated(cluster)
		return o
	}
	workspace := func(change func(*tenancyv1alpha1.Workspace)) runtime.Object {
		o := &tenancyv1alpha1.Workspace{}
		o.Name, o.Annotations = "w", annotated("c1")
		o.Annotations[corev1alpha1.ShardAnnotationKey] = "beta"
		o.Spec.Cluster, o.Status.Phase = "c2", corev1alpha1.LogicalClusterPhaseReady
		change(o)
		return o
	}
	workspaceType := func(configurations ...string) runtime.Object {
		o := &tenancyv1alpha1.WorkspaceType{}
		o.Name, o.Annotations = "team", annotated("c1")
		for _, name := range configurations {
			o.Spec.AuthenticationConfigurations = append(o.Spec.AuthenticationConfigurations, tenancyv1alpha1.AuthenticationConfigurationReference{Name: name})
		}
		return o
	}
	shard := func(cluster string) runtime.Object {
		o := &corev1alpha1.Shard{}
		o.Name, o.Annotations, o.Labels = "alpha", annotated(cluster), map[string]string{"region": "east"}
		o.Spec.BaseURL = "https://alpha"
		return o
	}
	in := logicalcluster.MustParseName("c1")
	inWorkspace := sharedindex.Key{Kind: sharedindex.Workspaces, Cluster: in, Name: "w"}
	for description, tc := range map[string]struct {
		object   runtime.Object
		deleted  bool
		toRecord recordFunc
		key      sharedindex.Key
		value    string // empty for one that is removed
		ignored  bool
	}{
		"a logical cluster is here, with its type":      {object: logicalCluster("c1"), toRecord: logicalClusterRecord, key: sharedindex.Key{Kind: sharedindex.Clusters, Cluster: in}, value: `{"type":"root:team"}`},
		"one that is gone is not":                       {object: logicalCluster("c1"), deleted: true, toRecord: logicalClusterRecord, key: sharedindex.Key{Kind: sharedindex.Clusters, Cluster: in}},
		"what every shard has is nobody's business":     {object: logicalCluster("system:admin"), toRecord: logicalClusterRecord, ignored: true},
		"nor is what says nothing of where it is":       {object: logicalCluster(""), toRecord: logicalClusterRecord, ignored: true},
		"a workspace leads to its logical cluster":      {object: workspace(func(*tenancyv1alpha1.Workspace) {}), toRecord: workspaceRecord, key: inWorkspace, value: `{"cluster":"c2","shard":"beta"}`},
		"one that is being scheduled leads nowhere":     {object: workspace(func(w *tenancyv1alpha1.Workspace) { w.Status.Phase = corev1alpha1.LogicalClusterPhaseScheduling }), toRecord: workspaceRecord, key: inWorkspace},
		"one that is unavailable says so":               {object: workspace(func(w *tenancyv1alpha1.Workspace) { w.Status.Phase = corev1alpha1.LogicalClusterPhaseUnavailable }), toRecord: workspaceRecord, key: inWorkspace, value: `{"cluster":"c2","shard":"beta","unavailable":true}`},
		"a type names its configurations":               {object: workspaceType("a", "b"), toRecord: workspaceTypeRecord, key: sharedindex.Key{Kind: sharedindex.Types, Cluster: in, Name: "team"}, value: `{"configurations":["a","b"]}`},
		"a type without any is not told of":             {object: workspaceType(), toRecord: workspaceTypeRecord, key: sharedindex.Key{Kind: sharedindex.Types, Cluster: in, Name: "team"}},
		"a shard is told of with its labels":            {object: shard("root"), toRecord: shardRecord, key: sharedindex.Key{Kind: sharedindex.Shards, Name: "alpha"}, value: `{"baseURL":"https://alpha","labels":{"region":"east"}}`},
		"what somebody calls a shard elsewhere is none": {object: shard("c1"), toRecord: shardRecord, ignored: true},
		"not even when it goes":                         {object: shard("c1"), deleted: true, toRecord: shardRecord, ignored: true},
	} {
		t.Run(description, func(t *testing.T) {
			event := watch.Event{Type: watch.Modified, Object: tc.object}
			if tc.deleted {
				event.Type = watch.Deleted
			}
			change, ok := newChange(tc.toRecord, event)
			if ok == tc.ignored {
				t.Fatalf("got %v, %v", change, ok)
			}
			if ok && (change.Key != tc.key || string(change.Value) != tc.value || (tc.value == "") != (change.Value == nil)) {
				t.Errorf("got %+v %s, want %+v %s", change.Key, change.Value, tc.key, tc.value)
			}
		})
	}
}
