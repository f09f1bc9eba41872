package tenancy

import (
	"cmp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/internal/placementrules"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/tenancy/scheduling"
)

func newShard(name string, change ...func(*corev1alpha1.Shard)) *corev1alpha1.Shard {
	shard := &corev1alpha1.Shard{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}},
		Spec:       corev1alpha1.ShardSpec{BaseURL: "https://" + name + ":6443"},
	}
	for _, c := range change {
		c(shard)
	}
	return shard
}

func TestSelectShard(t *testing.T) {
	for name, tc := range map[string]struct {
		annotations map[string]string
		location    *tenancyv1alpha1.WorkspaceLocation
		shards      []*corev1alpha1.Shard
		placed      string
		refused     string
		reason      string
	}{
		"new decision":              {shards: []*corev1alpha1.Shard{newShard("own"), newShard("other")}, placed: "own"},
		"no shard available":        {refused: "No available shards to schedule the workspace"},
		"stored decision":           {annotations: map[string]string{corev1alpha1.ShardAnnotationKey: "other"}, shards: []*corev1alpha1.Shard{newShard("own"), newShard("other")}, placed: "other"},
		"stored decision as a hash": {annotations: map[string]string{tenancyv1alpha1.WorkspaceShardHashAnnotationKey: placementrules.ShardHash("other")}, shards: []*corev1alpha1.Shard{newShard("own"), newShard("other")}, placed: "other"},
		"invalid selector": {
			location: &tenancyv1alpha1.WorkspaceLocation{Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "?"}}}},
			shards:   []*corev1alpha1.Shard{newShard("own")}, refused: "spec.location.selector is invalid",
		},
		"stored decision for a deleted shard": {
			annotations: map[string]string{corev1alpha1.ShardAnnotationKey: "gone"}, shards: []*corev1alpha1.Shard{newShard("own")}, refused: `chosen shard "gone" does not exist anymore`,
		},
		"shard without a valid URL": {
			shards:  []*corev1alpha1.Shard{newShard("own", func(s *corev1alpha1.Shard) { s.Spec.ExternalURL = "invalid" })},
			refused: "invalid external URL", reason: tenancyv1alpha1.ReasonUnknown,
		},
	} {
		t.Run(name, func(t *testing.T) {
			workspace := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Annotations: tc.annotations}, Spec: tenancyv1alpha1.WorkspaceSpec{Location: tc.location}}
			got, refused := selectShard(workspace, tc.shards, func(all []*corev1alpha1.Shard, _ labels.Selector) (*corev1alpha1.Shard, error) {
				if len(all) == 0 {
					return nil, &scheduling.NoShardError{}
				}
				return all[0], nil
			})
			if tc.placed != "" {
				if refused != nil || got.Name != tc.placed {
					t.Fatalf("got %v, %+v", got, refused)
				}
				return
			}
			reason := cmp.Or(tc.reason, tenancyv1alpha1.ReasonUnschedulable)
			if refused == nil || refused.reason != reason || !strings.Contains(refused.message, tc.refused) {
				t.Errorf("got %+v, want %s: %q", refused, reason, tc.refused)
			}
		})
	}
}

func TestClusterURL(t *testing.T) {
	shard := newShard("own")
	if got := clusterURL(shard, logicalcluster.MustParsePath("root:a")); got != "https://own:6443/clusters/root:a" {
		t.Error(got)
	}
	shard.Spec.ExternalURL = "https://kcp.example.com/"
	if got := clusterURL(shard, logicalcluster.MustParseName("abc").Path()); got != "https://kcp.example.com/clusters/abc" {
		t.Error(got)
	}
}

func TestWorkspaceStatus(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	cluster := func(phase corev1alpha1.LogicalClusterPhaseType, initializers ...corev1alpha1.LogicalClusterInitializer) *corev1alpha1.LogicalCluster {
		return &corev1alpha1.LogicalCluster{
			Spec:   corev1alpha1.LogicalClusterSpec{Initializers: []corev1alpha1.LogicalClusterInitializer{"root:a"}},
			Status: corev1alpha1.LogicalClusterStatus{Phase: phase, Initializers: initializers},
		}
	}
	for name, tc := range map[string]struct {
		placed       bool
		age          time.Duration
		phase        corev1alpha1.LogicalClusterPhaseType
		facts        workspaceFacts
		want         corev1alpha1.LogicalClusterPhaseType
		reasons      map[conditionsv1alpha1.Type]string // "" is True
		waiting      int                                // initializers
		requeueAfter time.Duration
	}{
		"unschedulable": {
			facts: workspaceFacts{refused: unschedulable("x")}, want: "Scheduling",
			reasons: map[conditionsv1alpha1.Type]string{tenancyv1alpha1.WorkspaceScheduled: tenancyv1alpha1.ReasonUnschedulable},
		},
		"new logical cluster: initializers of the spec": {
			placed: true, facts: workspaceFacts{cluster: cluster("")}, want: "Initializing", waiting: 1,
			reasons: map[conditionsv1alpha1.Type]string{tenancyv1alpha1.WorkspaceScheduled: "", corev1alpha1.WorkspaceInitialized: corev1alpha1.ReasonInitializerExists},
		},
		"initializing logical cluster: remaining initializers": {
			placed: true, facts: workspaceFacts{cluster: cluster("Initializing", "root:a", "root:b")}, want: "Initializing", waiting: 2,
			reasons: map[conditionsv1alpha1.Type]string{tenancyv1alpha1.WorkspaceScheduled: "", corev1alpha1.WorkspaceInitialized: corev1alpha1.ReasonInitializerExists},
		},
		"ready logical cluster": {
			placed: true, phase: "Initializing", facts: workspaceFacts{cluster: cluster("Ready")}, want: "Ready",
			reasons: map[conditionsv1alpha1.Type]string{tenancyv1alpha1.WorkspaceScheduled: "", corev1alpha1.WorkspaceInitialized: ""},
		},
		"inactive logical cluster": {
			placed: true, phase: "Ready", facts: workspaceFacts{cluster: cluster("Inactive")}, want: "Ready",
			reasons: map[conditionsv1alpha1.Type]string{tenancyv1alpha1.WorkspaceScheduled: "", corev1alpha1.WorkspaceInitialized: ""},
		},
		"missing logical cluster of a new workspace": {
			placed: true, age: 20 * time.Second, facts: workspaceFacts{}, want: "Initializing", requeueAfter: 40 * time.Second,
			reasons: map[conditionsv1alpha1.Type]string{tenancyv1alpha1.WorkspaceScheduled: ""},
		},
		"missing logical cluster of an old workspace": {
			placed: true, age: time.Hour, phase: "Ready", facts: workspaceFacts{}, want: "Unavailable",
			reasons: map[conditionsv1alpha1.Type]string{tenancyv1alpha1.WorkspaceScheduled: "", corev1alpha1.WorkspaceInitialized: corev1alpha1.ReasonWorkspaceDisappeared},
		},
		"logical cluster that exists again": {
			placed: true, age: time.Hour, phase: "Unavailable", facts: workspaceFacts{cluster: cluster("Ready")}, want: "Ready",
			reasons: map[conditionsv1alpha1.Type]string{tenancyv1alpha1.WorkspaceScheduled: "", corev1alpha1.WorkspaceInitialized: ""},
		},
		"logical cluster on another shard": {
			placed: true, age: time.Hour, phase: "Ready", facts: workspaceFacts{remote: true}, want: "Ready",
			reasons: map[conditionsv1alpha1.Type]string{tenancyv1alpha1.WorkspaceScheduled: ""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			workspace := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(now.Add(-tc.age))}}
			workspace.Status.Phase = tc.phase
			if tc.placed {
				workspace.Spec.Cluster = "abc"
			}
			tc.facts.now = now
			if requeueAfter := setStatus(workspace, tc.facts); requeueAfter != tc.requeueAfter {
				t.Errorf("requeue after %s, want %s", requeueAfter, tc.requeueAfter)
			}
			if workspace.Status.Phase != tc.want {
				t.Errorf("phase %q, want %q", workspace.Status.Phase, tc.want)
			}
			if len(workspace.Status.Initializers) != tc.waiting {
				t.Errorf("initializers %v", workspace.Status.Initializers)
			}
			if len(workspace.Status.Conditions) != len(tc.reasons) {
				t.Errorf("conditions %+v", workspace.Status.Conditions)
			}
			for kind, reason := range tc.reasons {
				condition := conditionsv1alpha1.Get(workspace, kind)
				if condition == nil || condition.Reason != reason || (reason == "") != (condition.Status == corev1.ConditionTrue) {
					t.Errorf("condition %s is %+v, want reason %q", kind, condition, reason)
				}
			}
		})
	}
}

func TestNextPhase(t *testing.T) {
	inactive := map[string]string{corev1alpha1.InactiveAnnotationKey: "true"}
	now := metav1.Now()
	for name, tc := range map[string]struct {
		phase        corev1alpha1.LogicalClusterPhaseType
		initializers []corev1alpha1.LogicalClusterInitializer
		terminators  []corev1alpha1.LogicalClusterTerminator
		annotations  map[string]string
		deleted      *metav1.Time
		want         corev1alpha1.LogicalClusterPhaseType
	}{
		"new":                               {want: "Initializing"},
		"scheduled":                         {phase: "Scheduling", want: "Initializing"},
		"initializing with initializers":    {phase: "Initializing", initializers: []corev1alpha1.LogicalClusterInitializer{"root:a"}, want: "Initializing"},
		"initializing without initializers": {phase: "Initializing", want: "Ready"},
		"ready":                             {phase: "Ready", want: "Ready"},
		"ready, marked inactive":            {phase: "Ready", annotations: inactive, want: "Inactive"},
		"ready, marked inactive by the legacy annotation": {phase: "Ready", annotations: map[string]string{corev1alpha1.LegacyInactiveAnnotationKey: "true"}, want: "Inactive"},
		"ready, annotation with another value":            {phase: "Ready", annotations: map[string]string{corev1alpha1.InactiveAnnotationKey: "yes"}, want: "Ready"},
		"initializing, marked inactive":                   {phase: "Initializing", initializers: []corev1alpha1.LogicalClusterInitializer{"root:a"}, annotations: inactive, want: "Initializing"},
		"inactive, marked inactive":                       {phase: "Inactive", annotations: inactive, want: "Inactive"},
		"inactive, not marked":                            {phase: "Inactive", want: "Ready"},
		"deleted with terminators":                        {phase: "Ready", deleted: &now, terminators: []corev1alpha1.LogicalClusterTerminator{"root:a"}, want: "Terminating"},
		"deleted without terminators":                     {phase: "Terminating", deleted: &now, want: "Deleting"},
		"deleted while initializing":                      {phase: "Initializing", deleted: &now, want: "Deleting"},
		"deleted while inactive":                          {phase: "Inactive", deleted: &now, want: "Deleting"},
		"unknown phase":                                   {phase: "Unavailable", want: "Unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := &corev1alpha1.LogicalCluster{
				ObjectMeta: metav1.ObjectMeta{Annotations: tc.annotations, DeletionTimestamp: tc.deleted},
				Status:     corev1alpha1.LogicalClusterStatus{Phase: tc.phase, Initializers: tc.initializers, Terminators: tc.terminators},
			}
			if got := nextPhase(cluster); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestSetDeletingStatus(t *testing.T) {
	workspace, cluster := &tenancyv1alpha1.Workspace{}, &corev1alpha1.LogicalCluster{}
	cluster.Status.Terminators = []corev1alpha1.LogicalClusterTerminator{"root:a"}
	conditionsv1alpha1.MarkFalse(cluster, corev1alpha1.WorkspaceContentDeleted, corev1alpha1.ReasonSomeResourcesRemain, conditionsv1alpha1.SeverityInfo, "x")
	setDeletingStatus(workspace, cluster)
	if workspace.Status.Phase != corev1alpha1.LogicalClusterPhaseTerminating || conditionsv1alpha1.GetReason(workspace, corev1alpha1.WorkspaceContentDeleted) != corev1alpha1.ReasonSomeResourcesRemain {
		t.Errorf("got %+v", workspace.Status)
	}
	setDeletingStatus(workspace, nil)
	if workspace.Status.Phase != corev1alpha1.LogicalClusterPhaseDeleting {
		t.Errorf("got %+v", workspace.Status)
	}
}

func TestSetVirtualWorkspaces(t *testing.T) {
	workspaceType := &tenancyv1alpha1.WorkspaceType{ObjectMeta: metav1.ObjectMeta{Name: "team"}}
	virtual := func(url string) func(*corev1alpha1.Shard) {
		return func(s *corev1alpha1.Shard) { s.Spec.VirtualWorkspaceURL = url }
	}
	setVirtualWorkspaces(workspaceType, logicalcluster.Root, []*corev1alpha1.Shard{newShard("b", virtual("https://b/")), newShard("none"), newShard("a", virtual("https://a"))})
	var got []string
	for _, v := range workspaceType.Status.VirtualWorkspaces {
		got = append(got, string(v.Type)+" "+v.URL)
	}
	want := "initializing https://a/services/initializingworkspaces/root:team,terminating https://a/services/terminatingworkspaces/root:team," +
		"initializing https://b/services/initializingworkspaces/root:team,terminating https://b/services/terminatingworkspaces/root:team"
	if strings.Join(got, ",") != want || !conditionsv1alpha1.IsTrue(workspaceType, conditionsv1alpha1.Ready) {
		t.Errorf("got %v, %+v", got, workspaceType.Status.Conditions)
	}
	setVirtualWorkspaces(workspaceType, logicalcluster.Root, []*corev1alpha1.Shard{newShard("a", virtual("invalid"))})
	if len(workspaceType.Status.VirtualWorkspaces) != 4 || conditionsv1alpha1.GetReason(workspaceType, conditionsv1alpha1.Ready) != tenancyv1alpha1.ReasonErrorGeneratingURLs {
		t.Errorf("got %+v", workspaceType.Status)
	}
}

func TestDeferStatus(t *testing.T) {
	now := time.Now()
	cluster := func(age time.Duration, initializers ...corev1alpha1.LogicalClusterInitializer) *corev1alpha1.LogicalCluster {
		out := &corev1alpha1.LogicalCluster{Status: corev1alpha1.LogicalClusterStatus{Phase: corev1alpha1.LogicalClusterPhaseInitializing, Initializers: initializers}}
		out.CreationTimestamp = metav1.NewTime(now.Add(-age))
		return out
	}
	ready, waiting := cluster(0), cluster(0, "system:apibindings")
	ready.Status.Phase = corev1alpha1.LogicalClusterPhaseReady
	conditionsv1alpha1.MarkFalse(waiting, corev1alpha1.APIBindingsInitialized, corev1alpha1.ReasonAPIBindingErrors, conditionsv1alpha1.SeverityError, "x")
	for name, tc := range map[string]struct {
		phase   corev1alpha1.LogicalClusterPhaseType
		cluster *corev1alpha1.LogicalCluster
		held    bool
	}{
		"system initializers remain":          {"Scheduling", cluster(0, "root:universal", "system:apibindings"), true},
		"system initializers remain for long": {"Scheduling", cluster(time.Minute, "root:universal"), false},
		"creation timestamp in the future":    {"Scheduling", cluster(-time.Minute, "root:universal"), false},
		"other initializers remain":           {"Scheduling", cluster(0, "root:universal", "abc:prep"), false},
		"already initializing":                {"Initializing", cluster(0, "root:universal"), false},
		"ready":                               {"Scheduling", ready, false},
		"default bindings cannot be created":  {"Scheduling", waiting, false},
		"no logical cluster":                  {"Scheduling", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			stored := &tenancyv1alpha1.Workspace{Status: tenancyv1alpha1.WorkspaceStatus{Phase: tc.phase}}
			if got := deferStatus(stored, workspaceFacts{cluster: tc.cluster, now: now}); (got > 0) != tc.held {
				t.Errorf("deferred for %s", got)
			}
		})
	}
}
