package tenancy_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

func TestWorkspacesOnOtherShards(t *testing.T) {
	root := shardtesting.Start(t)
	shardtesting.StartShard(t, root, "alpha")
	masters := root.Client(t, root.Masters(t))
	on := func(shard, name string) *tenancyv1alpha1.Workspace {
		return &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: tenancyv1alpha1.WorkspaceSpec{
			Location: &tenancyv1alpha1.WorkspaceLocation{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"name": shard}}},
		}}
	}
	if err := masters.Create(shardtesting.In(t.Context(), "root"), on("alpha", "one")); err != nil {
		t.Fatal(err)
	}
	t.Log(waitReady(t, masters, "root", "one"))
}
