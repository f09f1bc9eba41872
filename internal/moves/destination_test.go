package moves

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/internal/placementrules"
)

// newShard returns a shard that accepts workspaces.
func newShard(name string, changes ...func(*corev1alpha1.Shard)) corev1alpha1.Shard {
	shard := corev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}}}
	shard.Spec.BaseURL, shard.Spec.ExternalURL = "https://"+name, "https://kcp.example.com"
	conditionsv1alpha1.MarkTrue(&shard, conditionsv1alpha1.Ready)
	conditionsv1alpha1.MarkTrue(&shard, corev1alpha1.ShardSchedulable)
	for _, change := range changes {
		change(&shard)
	}
	return shard
}

func count(name corev1.ResourceName, n int64) corev1.ResourceList {
	return corev1.ResourceList{name: *resource.NewQuantity(n, resource.DecimalSI)}
}

func load(n int64) func(*corev1alpha1.Shard) {
	return func(s *corev1alpha1.Shard) {
		s.Status.Load, s.Status.Used = count(placementrules.LogicalClusters, n), count(placementrules.Workspaces, n+2)
	}
}

func capacity(n int64) func(*corev1alpha1.Shard) {
	return func(s *corev1alpha1.Shard) { s.Status.Capacity = count(placementrules.LogicalClusters, n) }
}

func storage(inUse, quota string) func(*corev1alpha1.Shard) {
	return func(s *corev1alpha1.Shard) {
		s.Status.Load = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(inUse)}
		s.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(quota)}
	}
}

func limits(soft, hard int64) func(*corev1alpha1.Shard) {
	return func(s *corev1alpha1.Shard) {
		s.Spec.ResourceLimits = &corev1alpha1.ShardResourceLimits{Soft: count(placementrules.Workspaces, soft), Hard: count(placementrules.Workspaces, hard)}
	}
}

func closed(s *corev1alpha1.Shard) {
	s.Annotations = map[string]string{corev1alpha1.UnschedulableAnnotationKey: ""}
}

func silent(s *corev1alpha1.Shard) {
	conditionsv1alpha1.MarkUnknown(s, conditionsv1alpha1.Ready, corev1alpha1.ReasonShardNotReporting, "silent")
}

func ill(s *corev1alpha1.Shard) {
	conditionsv1alpha1.MarkFalse(s, conditionsv1alpha1.Ready, "Ill", conditionsv1alpha1.SeverityError, "no etcd")
}

func full(s *corev1alpha1.Shard) {
	conditionsv1alpha1.MarkFalse(s, corev1alpha1.ShardSchedulable, corev1alpha1.ReasonShardFull, conditionsv1alpha1.SeverityError, "no memory")
}

func in(region string) func(*corev1alpha1.Shard) {
	return func(s *corev1alpha1.Shard) { s.Labels[corev1alpha1.RegionLabelKey] = region }
}

func at(url string) func(*corev1alpha1.Shard) {
	return func(s *corev1alpha1.Shard) { s.Spec.ExternalURL = url }
}

func TestChoose(t *testing.T) {
	origin := newShard("origin", closed)
	for name, tc := range map[string]struct {
		shards   []corev1alpha1.Shard
		selector string
		onTheWay map[string]int64
		stuck    map[string]string
		avoid    string
		want     string
		reason   string
	}{
		"the less loaded one":                  {shards: []corev1alpha1.Shard{newShard("a", load(5)), newShard("b", load(4))}, want: "b"},
		"the less used capacity":               {shards: []corev1alpha1.Shard{newShard("a", load(5), capacity(100)), newShard("b", load(4), capacity(10))}, want: "a"},
		"what is on the way counts":            {shards: []corev1alpha1.Shard{newShard("a", load(5)), newShard("b", load(4))}, onTheWay: map[string]int64{"b": 2}, want: "a"},
		"the first of equals":                  {shards: []corev1alpha1.Shard{newShard("b"), newShard("a")}, want: "a"},
		"the selector":                         {shards: []corev1alpha1.Shard{newShard("a"), newShard("b", load(9))}, selector: "name=b", want: "b"},
		"below the soft limit":                 {shards: []corev1alpha1.Shard{newShard("a", load(4), limits(5, 0)), newShard("b", load(9))}, want: "b"},
		"only soft limits are reached":         {shards: []corev1alpha1.Shard{newShard("a", load(4), limits(5, 0))}, want: "a"},
		"a limit takes the place of the flag":  {shards: []corev1alpha1.Shard{newShard("a", load(9), capacity(9), limits(0, 20))}, want: "a"},
		"not where it has just failed":         {shards: []corev1alpha1.Shard{newShard("a"), newShard("b", load(9))}, avoid: "a", want: "b"},
		"where it has failed, without another": {shards: []corev1alpha1.Shard{newShard("a")}, avoid: "a", want: "a"},
		"the same external URL with a slash":   {shards: []corev1alpha1.Shard{newShard("a", at("https://kcp.example.com/"))}, want: "a"},
		"no other shard":                       {reason: "there is no other shard: add one"},
		"never the origin":                     {selector: "name=origin", reason: "no other shard has the labels that its spec.location.selector demands (name=origin)"},
		"closed":                               {shards: []corev1alpha1.Shard{newShard("a", closed)}, reason: `no shard can have it: shard "a" is closed by its annotation experimental.core.kcp.io/unschedulable`},
		"silent":                               {shards: []corev1alpha1.Shard{newShard("a", silent)}, reason: `no shard can have it: shard "a" has not reported lately`},
		"never reported":                       {shards: []corev1alpha1.Shard{newShard("a", func(s *corev1alpha1.Shard) { s.Status.Conditions = nil })}, reason: `no shard can have it: shard "a" has not reported lately`},
		"ill":                                  {shards: []corev1alpha1.Shard{newShard("a", ill)}, reason: `no shard can have it: shard "a" is not healthy: no etcd`},
		"unschedulable":                        {shards: []corev1alpha1.Shard{newShard("a", full)}, reason: `no shard can have it: shard "a" accepts no new workspaces: no memory`},
		"deleted":                              {shards: []corev1alpha1.Shard{newShard("a", func(s *corev1alpha1.Shard) { s.DeletionTimestamp = &metav1.Time{} })}, reason: `no shard can have it: shard "a" is being deleted`},
		"hard limit":                           {shards: []corev1alpha1.Shard{newShard("a", load(10), limits(0, 12))}, reason: `no shard can have it: shard "a" is full: it has 12 of 12 workspaces`},
		"hard limit, with what is on the way":  {shards: []corev1alpha1.Shard{newShard("a", load(8), limits(0, 12))}, onTheWay: map[string]int64{"a": 2}, reason: `no shard can have it: shard "a" is full: it has 12 of 12 workspaces`},
		"capacity":                             {shards: []corev1alpha1.Shard{newShard("a", load(3), capacity(3))}, reason: `no shard can have it: shard "a" is full: it has 3 of 3 logical clusters`},
		"a migration makes no progress there":  {shards: []corev1alpha1.Shard{newShard("a"), newShard("b", load(9))}, stuck: map[string]string{"a": "drain-x"}, want: "b"},
		"nor anywhere":                         {shards: []corev1alpha1.Shard{newShard("a")}, stuck: map[string]string{"a": "drain-x"}, reason: `no shard can have it: shard "a" makes no progress with migration drain-x in root`},
		"another region":                       {shards: []corev1alpha1.Shard{newShard("a", in("asia"))}, reason: `no shard can have it: shard "a" is in the region "asia", not in ""`},
		"another external URL":                 {shards: []corev1alpha1.Shard{newShard("a", at("https://x"))}, reason: `no shard can have it: shard "a" has the external URL "https://x", so that the URL of the workspace would change`},
		"space for copies":                     {shards: []corev1alpha1.Shard{newShard("a", storage("69Mi", "100Mi")), newShard("b", load(9))}, want: "a"},
		"a quota that is not reported":         {shards: []corev1alpha1.Shard{newShard("a", storage("69Mi", "0")), newShard("b", load(9))}, want: "a"},
		"no space for copies":                  {shards: []corev1alpha1.Shard{newShard("a", storage("70Mi", "100Mi")), newShard("b", load(9))}, want: "b"},
		"no space for copies anywhere": {shards: []corev1alpha1.Shard{newShard("a", storage("70Mi", "100Mi"))},
			reason: `no shard can have it: shard "a" has no space for copies: its etcd uses 70Mi of 100Mi, and nothing moves there from 70 percent on`},
		"all reasons": {shards: []corev1alpha1.Shard{newShard("b", ill), newShard("a", closed)},
			reason: `no shard can have it: shard "a" is closed by its annotation experimental.core.kcp.io/unschedulable; shard "b" is not healthy: no etcd`},
	} {
		t.Run(name, func(t *testing.T) {
			selector, err := labels.Parse(tc.selector)
			if err != nil {
				t.Fatal(err)
			}
			got, reason := Destinations{&origin, append(tc.shards, origin), tc.onTheWay, tc.stuck}.Choose(selector, tc.avoid)
			if got != tc.want || reason != tc.reason {
				t.Errorf("got %q, %q", got, reason)
			}
		})
	}
}
