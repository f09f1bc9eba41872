package shardcompare

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

var stopped = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// on is a logical cluster on a shard.
type on struct {
	shard   string
	cluster *corev1alpha1.LogicalCluster
}

// owned is a logical cluster "c-<workspace>" of a Workspace with the UID "u-<workspace>" in a parent.
func owned(shard, parent, workspace string, changes ...func(metav1.Object)) on {
	out := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{
		Name: "cluster", Annotations: map[string]string{logicalcluster.AnnotationKey: "c-" + workspace}, CreationTimestamp: metav1.NewTime(stopped.Add(-time.Hour)),
	}}
	out.Spec.Owner = &corev1alpha1.LogicalClusterOwner{Resource: "workspaces", Cluster: parent, Name: workspace, UID: types.UID("u-" + workspace)}
	for _, change := range changes {
		change(out)
	}
	return on{shard, out}
}

func workspace(parent, name string, changes ...func(metav1.Object)) *tenancyv1alpha1.Workspace {
	out := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID("u-" + name), Annotations: map[string]string{logicalcluster.AnnotationKey: parent}, CreationTimestamp: metav1.NewTime(stopped.Add(-time.Hour)),
	}}
	out.Spec.Cluster, out.Status.Phase = "c-"+name, corev1alpha1.LogicalClusterPhaseReady
	for _, change := range changes {
		change(out)
	}
	return out
}

func late(object metav1.Object) {
	object.SetCreationTimestamp(metav1.NewTime(stopped.Add(time.Second)))
}

func deleted(object metav1.Object) { object.SetDeletionTimestamp(&metav1.Time{Time: stopped}) }

func annotated(key string) func(metav1.Object) {
	return func(object metav1.Object) { object.GetAnnotations()[key] = "x" }
}

func TestComparison(t *testing.T) {
	for name, tc := range map[string]struct {
		clusters   []on
		workspaces []*tenancyv1alpha1.Workspace
		want       Result
	}{
		"what belongs together is no difference": {
			[]on{owned("alpha", "root", "a"), owned("beta", "c-a", "b")},
			[]*tenancyv1alpha1.Workspace{workspace("root", "a"), workspace("c-a", "b")}, Result{},
		},
		"a workspace that was created after the backup is a gap": {
			nil, []*tenancyv1alpha1.Workspace{workspace("root", "a")}, Result{Gaps: []string{"root/a (c-a)"}},
		},
		"one that was deleted after the backup is an orphan": {
			[]on{owned("alpha", "root", "a")}, nil, Result{Orphans: []string{"c-a on shard alpha (root/a)"}},
		},
		"so is a child on another shard whose Workspace was created after the backup": {
			[]on{owned("alpha", "root", "a"), owned("beta", "c-a", "b")}, []*tenancyv1alpha1.Workspace{workspace("root", "a")},
			Result{Orphans: []string{"c-b on shard beta (c-a/b)"}},
		},
		"a child on another shard that was deleted after the backup is a gap": {
			[]on{owned("alpha", "root", "a")}, []*tenancyv1alpha1.Workspace{workspace("root", "a"), workspace("c-a", "b")}, Result{Gaps: []string{"c-a/b (c-b)"}},
		},
		"an orphan that does not concern the restored shard is left out": {[]on{owned("beta", "root", "a")}, nil, Result{}},
		"what has moved away is at both shards": {
			[]on{owned("alpha", "root", "a"), owned("beta", "root", "a")}, []*tenancyv1alpha1.Workspace{workspace("root", "a")},
			Result{Doubles: []string{"root/a (c-a, on shard beta, too)"}},
		},
		"a Workspace of another UID is another one": {
			[]on{owned("alpha", "root", "a")}, []*tenancyv1alpha1.Workspace{workspace("root", "a", func(o metav1.Object) { o.SetUID("other") })},
			Result{Orphans: []string{"c-a on shard alpha (root/a)"}},
		},
		"what is being created is no difference": {
			[]on{owned("alpha", "root", "a", late)}, []*tenancyv1alpha1.Workspace{workspace("root", "b", late)}, Result{},
		},
		"nor what is being deleted": {
			[]on{owned("alpha", "root", "a", deleted)}, []*tenancyv1alpha1.Workspace{workspace("root", "b", deleted)}, Result{},
		},
		"nor what moves": {
			[]on{owned("alpha", "root", "a", annotated(corev1alpha1.MigratingAnnotationKey)), owned("beta", "root", "a", annotated(corev1alpha1.ArrivingAnnotationKey))}, nil, Result{},
		},
		"nor a mount, and one without a logical cluster": {
			nil, []*tenancyv1alpha1.Workspace{
				workspace("root", "a", func(o metav1.Object) { o.(*tenancyv1alpha1.Workspace).Spec.Mount = &tenancyv1alpha1.Mount{} }),
				workspace("root", "b", func(o metav1.Object) { o.(*tenancyv1alpha1.Workspace).Spec.Cluster = "" }),
			}, Result{},
		},
		"nor what every shard has": {
			[]on{owned("alpha", "", "system", func(o metav1.Object) { o.(*corev1alpha1.LogicalCluster).Spec.Owner = nil }), owned("beta", "", "system", func(o metav1.Object) { o.(*corev1alpha1.LogicalCluster).Spec.Owner = nil })}, nil, Result{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newComparison("alpha", stopped)
			for _, cluster := range tc.clusters {
				c.addLogicalCluster(cluster.shard, cluster.cluster)
			}
			for _, workspace := range tc.workspaces {
				c.addWorkspace(workspace)
			}
			got := c.result()
			if !slices.Equal(got.Gaps, tc.want.Gaps) || !slices.Equal(got.Orphans, tc.want.Orphans) || !slices.Equal(got.Doubles, tc.want.Doubles) || got.IsEmpty() != tc.want.IsEmpty() {
				t.Errorf("got %+v", got)
			}
		})
	}
}
