package routing

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

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
	moving := func(annotation, value string) runtime.Object {
		o := &corev1alpha1.LogicalCluster{}
		o.Name, o.Annotations = corev1alpha1.LogicalClusterName, annotated("c1")
		o.Annotations[annotation] = value
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
		value    string // empty for a removed record
		ignored  bool
	}{
		"logical cluster":                       {object: logicalCluster("c1"), toRecord: logicalClusterRecord, key: sharedindex.Key{Kind: sharedindex.Clusters, Cluster: in}, value: `{"type":"root:team"}`},
		"deleted logical cluster":               {object: logicalCluster("c1"), deleted: true, toRecord: logicalClusterRecord, key: sharedindex.Key{Kind: sharedindex.Clusters, Cluster: in}},
		"logical cluster that has moved":        {object: moving(corev1alpha1.MovedToAnnotationKey, "beta"), toRecord: logicalClusterRecord, key: sharedindex.Key{Kind: sharedindex.Clusters, Cluster: in}, value: `{"type":"root:team","movedTo":"beta"}`},
		"logical cluster that arrives":          {object: moving(corev1alpha1.ArrivingAnnotationKey, "6a1d"), toRecord: logicalClusterRecord, key: sharedindex.Key{Kind: sharedindex.Clusters, Cluster: in}},
		"system logical cluster":                {object: logicalCluster("system:admin"), toRecord: logicalClusterRecord, ignored: true},
		"object without a logical cluster":      {object: logicalCluster(""), toRecord: logicalClusterRecord, ignored: true},
		"workspace":                             {object: workspace(func(*tenancyv1alpha1.Workspace) {}), toRecord: workspaceRecord, key: inWorkspace, value: `{"cluster":"c2","shard":"beta"}`},
		"scheduling workspace":                  {object: workspace(func(w *tenancyv1alpha1.Workspace) { w.Status.Phase = corev1alpha1.LogicalClusterPhaseScheduling }), toRecord: workspaceRecord, key: inWorkspace},
		"unavailable workspace":                 {object: workspace(func(w *tenancyv1alpha1.Workspace) { w.Status.Phase = corev1alpha1.LogicalClusterPhaseUnavailable }), toRecord: workspaceRecord, key: inWorkspace, value: `{"cluster":"c2","shard":"beta","unavailable":true}`},
		"workspace type with configurations":    {object: workspaceType("a", "b"), toRecord: workspaceTypeRecord, key: sharedindex.Key{Kind: sharedindex.Types, Cluster: in, Name: "team"}, value: `{"configurations":["a","b"]}`},
		"workspace type without configurations": {object: workspaceType(), toRecord: workspaceTypeRecord, key: sharedindex.Key{Kind: sharedindex.Types, Cluster: in, Name: "team"}},
		"shard":                                 {object: shard("root"), toRecord: shardRecord, key: sharedindex.Key{Kind: sharedindex.Shards, Name: "alpha"}, value: `{"baseURL":"https://alpha","labels":{"region":"east"}}`},
		"Shard object outside root":             {object: shard("c1"), toRecord: shardRecord, ignored: true},
		"deleted Shard object outside root":     {object: shard("c1"), deleted: true, toRecord: shardRecord, ignored: true},
	} {
		t.Run(description, func(t *testing.T) {
			change, ok := newChange(tc.toRecord, tc.object, tc.deleted)
			if ok == tc.ignored {
				t.Fatalf("got %v, %v", change, ok)
			}
			if ok && (change.Key != tc.key || string(change.Value) != tc.value || (tc.value == "") != (change.Value == nil)) {
				t.Errorf("got %+v %s, want %+v %s", change.Key, change.Value, tc.key, tc.value)
			}
		})
	}
}
