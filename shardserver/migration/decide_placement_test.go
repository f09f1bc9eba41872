package migration

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/sharding/heartbeat"
)

func TestPlacement(t *testing.T) {
	quantity := func(n int64) corev1.ResourceList {
		return corev1.ResourceList{heartbeat.Workspaces: *resource.NewQuantity(n, resource.DecimalSI)}
	}
	selects := func(labels map[string]string) *tenancyv1alpha1.WorkspaceLocation {
		return &tenancyv1alpha1.WorkspaceLocation{Selector: &metav1.LabelSelector{MatchLabels: labels}}
	}
	for name, tc := range map[string]struct {
		location *tenancyv1alpha1.WorkspaceLocation
		change   func(*corev1alpha1.Shard)
		ignores  bool
		to       string
		reason   string
		message  string
	}{
		"allowed":                       {},
		"allowed: the selector matches": {location: selects(map[string]string{"region": "europe"})},
		"allowed: the selector has the name of another shard": {location: selects(map[string]string{"name": "alpha"})},
		"refused: the selector has another name and region":   {location: selects(map[string]string{"name": "alpha", "region": "asia"}), reason: migrationv1alpha1.ReasonSelectorMismatch, message: "(region=asia)"},
		"allowed: a selector of all":                          {location: &tenancyv1alpha1.WorkspaceLocation{}},
		"allowed: below the hard limit":                       {change: func(s *corev1alpha1.Shard) { s.Status.Used = quantity(9) }},
		"allowed: over the soft limit":                        {change: func(s *corev1alpha1.Shard) { s.Spec.ResourceLimits.Soft = quantity(1); s.Status.Used = quantity(9) }},
		"allowed: baseURL is externalURL":                     {change: func(s *corev1alpha1.Shard) { s.Spec.BaseURL, s.Spec.ExternalURL = "https://kcp/", "" }},
		"refused: unknown shard":                              {to: "gamma", reason: migrationv1alpha1.ReasonUnknownShard, message: `there is no shard "gamma"`},
		"refused: another URL":                                {change: func(s *corev1alpha1.Shard) { s.Spec.ExternalURL = "https://other" }, reason: migrationv1alpha1.ReasonDifferentURL, message: "--shard-external-url"},
		"refused: the selector":                               {location: selects(map[string]string{"region": "asia"}), reason: migrationv1alpha1.ReasonSelectorMismatch, message: "change the selector, or set the annotation migration.kcp.io/ignore-selector=true"},
		"allowed: the selector does not count":                {location: selects(map[string]string{"region": "asia"}), ignores: true},
		"refused: the other rules do":                         {location: selects(map[string]string{"region": "asia"}), ignores: true, change: func(s *corev1alpha1.Shard) { s.Status.Used = quantity(10) }, reason: migrationv1alpha1.ReasonShardFull, message: "10 of 10"},
		"refused: at the hard limit":                          {change: func(s *corev1alpha1.Shard) { s.Status.Used = quantity(10) }, reason: migrationv1alpha1.ReasonShardFull, message: "10 of 10"},
		"refused: cordoned": {change: func(s *corev1alpha1.Shard) {
			s.Annotations = map[string]string{corev1alpha1.UnschedulableAnnotationKey: ""}
		}, reason: migrationv1alpha1.ReasonShardNotSchedulable, message: corev1alpha1.UnschedulableAnnotationKey},
		"refused: not schedulable": {change: func(s *corev1alpha1.Shard) {
			conditionsv1alpha1.MarkFalse(s, corev1alpha1.ShardSchedulable, "R", "", "no memory")
		}, reason: migrationv1alpha1.ReasonShardNotSchedulable, message: "no memory"},
		"refused: the first rule is named": {to: "gamma", location: selects(map[string]string{"region": "asia"}), reason: migrationv1alpha1.ReasonUnknownShard, message: "gamma"},
	} {
		t.Run(name, func(t *testing.T) {
			origin := &corev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: "alpha"}, Spec: corev1alpha1.ShardSpec{BaseURL: "https://alpha", ExternalURL: "https://kcp"}}
			beta := &corev1alpha1.Shard{
				ObjectMeta: metav1.ObjectMeta{Name: "beta", Labels: map[string]string{"region": "europe"}},
				Spec:       corev1alpha1.ShardSpec{BaseURL: "https://beta", ExternalURL: "https://kcp", ResourceLimits: &corev1alpha1.ShardResourceLimits{Hard: quantity(10)}},
			}
			if tc.change != nil {
				tc.change(beta)
			}
			if tc.to == "" {
				tc.to = "beta"
			}
			workspace := &tenancyv1alpha1.Workspace{Spec: tenancyv1alpha1.WorkspaceSpec{Location: tc.location}}
			got := Placement{Workspace: workspace, Origin: "alpha", Destination: tc.to, Shards: []*corev1alpha1.Shard{origin, beta}, IgnoresSelector: tc.ignores}.Verdict()
			if got.Allowed != (tc.reason == "") || got.Reason != tc.reason || !strings.Contains(got.Message, tc.message) {
				t.Errorf("got %+v", got)
			}
		})
	}
}
