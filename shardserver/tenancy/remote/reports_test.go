package remote

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/sharding/placement"
)

// fakeReports are the reports of one logical cluster, in the order of the replica informer.
type fakeReports []*shardingv1alpha1.LogicalClusterReport

func (f fakeReports) Get(_ context.Context, _, name string) (*shardingv1alpha1.LogicalClusterReport, error) {
	for _, report := range f {
		if report.Name == name {
			return report, nil
		}
	}
	return nil, apierrors.NewNotFound(reports, name)
}

func (f fakeReports) List(context.Context, string, labels.Selector) ([]*shardingv1alpha1.LogicalClusterReport, error) {
	return f, nil
}

func TestReportPrefersAssignedShard(t *testing.T) {
	parent := logicalcluster.MustParseName("parent")
	workspace := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: "ws", UID: "w", Annotations: map[string]string{
		corev1alpha1.ShardAnnotationKey: "there", tenancyv1alpha1.WorkspaceClusterAnnotationKey: "one",
	}}}
	by := func(shard, workspaceUID string) *shardingv1alpha1.LogicalClusterReport {
		owner := placement.Owner(parent, workspace)
		owner.UID = types.UID(workspaceUID)
		return &shardingv1alpha1.LogicalClusterReport{
			ObjectMeta: metav1.ObjectMeta{Name: placement.ReportName(parent, "ws"), Annotations: map[string]string{"kcp.io/shard": shard}},
			Spec:       shardingv1alpha1.LogicalClusterReportSpec{Owner: owner, Shard: "here", State: shardingv1alpha1.LogicalClusterExists, UID: "lc"},
		}
	}
	for name, tc := range map[string]struct {
		published fakeReports
		want      State
	}{
		"no report":                    {nil, Waiting},
		"report of the assigned shard": {fakeReports{by("there", "w")}, Accepted},
		"reports of another shard and of the assigned one":                         {fakeReports{by("another", "older"), by("there", "w")}, Accepted},
		"report of another shard":                                                  {fakeReports{by("another", "w")}, Waiting},
		"report of another shard that the name is used":                            {fakeReports{by("another", "older")}, Waiting},
		"report of the assigned shard that the name is used":                       {fakeReports{by("there", "older")}, NeedsName},
		"assigned shard reports that the name is used, another one that it is not": {fakeReports{by("another", "w"), by("there", "older")}, NeedsName},
	} {
		t.Run(name, func(t *testing.T) {
			report, err := (&ReportReader{"here", tc.published}).Report(t.Context(), parent, workspace)
			if err != nil {
				t.Fatal(err)
			}
			if got := StateOf(workspace, parent, "here", report); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
