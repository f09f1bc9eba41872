package placement

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

var (
	parent  = logicalcluster.MustParseName("parent")
	cluster = logicalcluster.MustParseName("cluster-1")
)

func newTestWorkspace(changes ...func(*tenancyv1alpha1.Workspace)) *tenancyv1alpha1.Workspace {
	workspace := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{
		Name: "ws", UID: "w", Finalizers: []string{corev1alpha1.LogicalClusterFinalizer},
		Annotations: map[string]string{corev1alpha1.ShardAnnotationKey: "there", tenancyv1alpha1.WorkspaceClusterAnnotationKey: cluster.String()},
	}}
	for _, change := range changes {
		change(workspace)
	}
	return workspace
}

func withSpecCluster(w *tenancyv1alpha1.Workspace) { w.Spec.Cluster = cluster.String() }
func withPhaseReady(w *tenancyv1alpha1.Workspace) {
	w.Status.Phase = corev1alpha1.LogicalClusterPhaseReady
}
func withDeletionTimestamp(w *tenancyv1alpha1.Workspace) {
	now := metav1.Now()
	w.DeletionTimestamp = &now
}
func withOtherFinalizer(w *tenancyv1alpha1.Workspace) {
	w.Finalizers = append(w.Finalizers, "example.com/other")
}
func withoutFinalizer(w *tenancyv1alpha1.Workspace) { w.Finalizers = []string{"example.com/other"} }
func withEndedCondition(w *tenancyv1alpha1.Workspace) {
	conditionsv1alpha1.MarkTrue(w, tenancyv1alpha1.LogicalClusterEnded)
}

func withShard(shard string) func(*tenancyv1alpha1.Workspace) {
	return func(w *tenancyv1alpha1.Workspace) { w.Annotations[corev1alpha1.ShardAnnotationKey] = shard }
}

func withReservedCluster(name string) func(*tenancyv1alpha1.Workspace) {
	return func(w *tenancyv1alpha1.Workspace) {
		w.Annotations[tenancyv1alpha1.WorkspaceClusterAnnotationKey] = name
	}
}

func newTestReport(phase corev1alpha1.LogicalClusterPhaseType, changes ...func(*shardingv1alpha1.LogicalClusterReport)) *shardingv1alpha1.LogicalClusterReport {
	report := &shardingv1alpha1.LogicalClusterReport{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{publisherAnnotation: "there"}},
		Spec: shardingv1alpha1.LogicalClusterReportSpec{
			Owner: Owner(parent, newTestWorkspace()), Shard: "here", State: shardingv1alpha1.LogicalClusterExists, UID: "lc", Phase: phase,
		},
	}
	for _, change := range changes {
		change(report)
	}
	return report
}

func reportDeleting(r *shardingv1alpha1.LogicalClusterReport) { r.Spec.Deleting = true }
func reportGone(r *shardingv1alpha1.LogicalClusterReport) {
	r.Spec.State = shardingv1alpha1.LogicalClusterGone
}
func reportFromOtherShard(r *shardingv1alpha1.LogicalClusterReport) {
	r.Annotations[publisherAnnotation] = "liar"
}
func reportMoved(r *shardingv1alpha1.LogicalClusterReport)           { r.Spec.MovedTo = "third" }
func reportToOtherShard(r *shardingv1alpha1.LogicalClusterReport)    { r.Spec.Shard = "third" }
func reportForOldWorkspace(r *shardingv1alpha1.LogicalClusterReport) { r.Spec.Owner.UID = "older" }

func TestRequester(t *testing.T) {
	const initializing, ready = corev1alpha1.LogicalClusterPhaseInitializing, corev1alpha1.LogicalClusterPhaseReady
	for name, tc := range map[string]struct {
		workspace *tenancyv1alpha1.Workspace
		report    *shardingv1alpha1.LogicalClusterReport
		// want is "", "create", "follow", "confirm", "delete" or "held".
		want string
		held bool
		// away is set if this shard does not serve the parent.
		away bool
		// moves is set if the parent moves, too.
		moves bool
	}{
		"create: scheduled to another shard":                          {workspace: newTestWorkspace(), want: "create"},
		"none: scheduled to this shard":                               {workspace: newTestWorkspace(withShard("here"))},
		"none: not scheduled":                                         {workspace: newTestWorkspace(withShard(""))},
		"confirm: before spec.cluster is set":                         {workspace: newTestWorkspace(), report: newTestReport(initializing), want: "confirm"},
		"create: logical cluster is being deleted":                    {workspace: newTestWorkspace(), report: newTestReport(initializing, reportDeleting), want: "create"},
		"create: report that the logical cluster is gone":             {workspace: newTestWorkspace(), report: newTestReport("", reportGone), want: "create"},
		"create: report of another shard":                             {workspace: newTestWorkspace(), report: newTestReport(initializing, reportFromOtherShard), want: "create"},
		"create: report for an older workspace":                       {workspace: newTestWorkspace(), report: newTestReport(initializing, reportForOldWorkspace), want: "create"},
		"follow: spec.cluster is set":                                 {workspace: newTestWorkspace(withSpecCluster), want: "follow"},
		"confirm: reported logical cluster":                           {workspace: newTestWorkspace(withSpecCluster), report: newTestReport(initializing), want: "confirm"},
		"none: ready":                                                 {workspace: newTestWorkspace(withSpecCluster, withPhaseReady), report: newTestReport(ready)},
		"none: ready without a report":                                {workspace: newTestWorkspace(withSpecCluster, withPhaseReady)},
		"confirm: workspace ready, logical cluster not":               {workspace: newTestWorkspace(withSpecCluster, withPhaseReady), report: newTestReport(initializing), want: "confirm"},
		"follow: logical cluster is being deleted":                    {workspace: newTestWorkspace(withSpecCluster), report: newTestReport(initializing, reportDeleting), want: "follow"},
		"follow: report of another shard":                             {workspace: newTestWorkspace(withSpecCluster), report: newTestReport(initializing, reportFromOtherShard), want: "follow"},
		"follow: report for an older workspace":                       {workspace: newTestWorkspace(withSpecCluster), report: newTestReport(initializing, reportForOldWorkspace), want: "follow"},
		"follow: report to another shard":                             {workspace: newTestWorkspace(withSpecCluster), report: newTestReport(initializing, reportToOtherShard), want: "follow"},
		"delete: workspace is being deleted":                          {workspace: newTestWorkspace(withSpecCluster, withPhaseReady, withDeletionTimestamp), want: "delete"},
		"delete: workspace is deleted before spec.cluster is set":     {workspace: newTestWorkspace(withDeletionTimestamp), want: "delete"},
		"follow: deleted workspace with other finalizers":             {workspace: newTestWorkspace(withSpecCluster, withDeletionTimestamp, withOtherFinalizer), want: "follow"},
		"none: own finalizer is removed, others remain":               {workspace: newTestWorkspace(withSpecCluster, withDeletionTimestamp, withoutFinalizer), report: newTestReport(ready, reportGone)},
		"delete: workspace has the condition that it ended":           {workspace: newTestWorkspace(withSpecCluster, withEndedCondition), report: newTestReport(initializing), want: "delete"},
		"follow: logical cluster is being deleted, condition not set": {workspace: newTestWorkspace(withSpecCluster, withPhaseReady), report: newTestReport(ready, reportDeleting), want: "follow"},
		"delete: report for a deleted workspace":                      {report: newTestReport(initializing), want: "delete"},
		"delete: report for a rescheduled workspace":                  {workspace: newTestWorkspace(withReservedCluster("cluster-2")), report: newTestReport(initializing), want: "delete"},
		"none: report to another shard, no workspace":                 {report: newTestReport(initializing, reportToOtherShard)},
		"none: report that the logical cluster is gone":               {report: newTestReport("", reportGone)},
		"none: no workspace and no report":                            {},
		"none: the parent has moved away":                             {report: newTestReport(ready), away: true},
		"none: the parent comes back, with another workspace":         {workspace: newTestWorkspace(withReservedCluster("cluster-2")), report: newTestReport(initializing), away: true},
		"delete: being deleted, and the parent has moved away":        {report: newTestReport(ready, reportDeleting), away: true, want: "delete"},
		"none: moved, and the workspace does not name the new shard":  {workspace: newTestWorkspace(withSpecCluster, withPhaseReady), report: newTestReport(ready, reportMoved)},
		"confirm: moved, and the workspace names the new shard":       {workspace: newTestWorkspace(withShard("third"), withSpecCluster, withPhaseReady), report: newTestReport(ready, reportMoved), want: "confirm"},
		"confirm: moved, and the workspace was deleted":               {report: newTestReport(ready, reportMoved), want: "confirm"},
		"confirm: moved, and the parent was deleted":                  {report: newTestReport(ready, reportMoved), away: true, want: "confirm"},
		"none: moved, and the parent has moved, too":                  {report: newTestReport(ready, reportMoved), away: true, moves: true},
		"held: the parent has moved away":                             {report: newTestReport(ready), away: true, held: true, want: "held"},
		"held: report for a workspace that the restored shard lacks":  {report: newTestReport(initializing), held: true, want: "held"},
		"held: report for a workspace that it has elsewhere":          {workspace: newTestWorkspace(withReservedCluster("cluster-2")), report: newTestReport(initializing), held: true, want: "held"},
		"held: the logical cluster ended, the workspace did not":      {workspace: newTestWorkspace(withSpecCluster, withEndedCondition), report: newTestReport(initializing), held: true, want: "held"},
		"delete: a user deletes a workspace of a restored shard":      {workspace: newTestWorkspace(withSpecCluster, withPhaseReady, withDeletionTimestamp), held: true, want: "delete"},
		"confirm: reported logical cluster of a restored shard":       {workspace: newTestWorkspace(withSpecCluster), report: newTestReport(initializing), held: true, want: "confirm"},
	} {
		t.Run(name, func(t *testing.T) {
			request, err := Requester{
				Held: tc.held, HasParent: !tc.away, ParentMoves: tc.moves, ShardName: "here", Parent: parent, Cluster: cluster, Workspace: tc.workspace, Report: tc.report,
				Template: func() (*corev1alpha1.LogicalCluster, error) { return &corev1alpha1.LogicalCluster{}, nil },
			}.Request()
			if tc.want == "held" {
				if !errors.Is(err, ErrHeld) || request != nil {
					t.Errorf("got %+v, %v", request, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := requestKind(request); got != tc.want {
				t.Fatalf("request %q, want %q", got, tc.want)
			}
			if request != nil && (request.Spec.Shard != "there" || request.Name != "ws.cluster-1" || request.Spec.Owner.Cluster != "parent") {
				t.Errorf("got %+v", request)
			}
		})
	}
}

func requestKind(request *shardingv1alpha1.LogicalClusterRequest) string {
	switch {
	case request == nil:
		return ""
	case request.Spec.Delete:
		return "delete"
	case request.Spec.Template != nil:
		return "create"
	case request.Spec.Confirmed != "":
		return "confirm"
	}
	return "follow"
}

func newTestRequest(kind string, changes ...func(*shardingv1alpha1.LogicalClusterRequest)) *shardingv1alpha1.LogicalClusterRequest {
	request := &shardingv1alpha1.LogicalClusterRequest{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{publisherAnnotation: "here"}},
		Spec:       shardingv1alpha1.LogicalClusterRequestSpec{Shard: "there", Cluster: cluster.String(), Owner: Owner(parent, newTestWorkspace())},
	}
	switch kind {
	case "create":
		request.Spec.Template = &corev1alpha1.LogicalClusterSpec{DirectlyDeletable: true}
		request.Spec.Annotations = map[string]string{
			corev1alpha1.LogicalClusterPathAnnotationKey: "root:ws", corev1alpha1.MaxTotalObjectsAnnotationKey: "0", corev1alpha1.ShardAnnotationKey: "x",
		}
	case "confirm":
		request.Spec.Confirmed = "lc"
	case "delete":
		request.Spec.Delete = true
	}
	for _, change := range changes {
		change(request)
	}
	return request
}

func requestFromOtherShard(r *shardingv1alpha1.LogicalClusterRequest) {
	r.Annotations[publisherAnnotation] = "thief"
}
func requestForOtherWorkspace(r *shardingv1alpha1.LogicalClusterRequest) { r.Spec.Owner.UID = "other" }
func requestToOtherShard(r *shardingv1alpha1.LogicalClusterRequest)      { r.Spec.Shard = "third" }
func requestWithWrongParent(r *shardingv1alpha1.LogicalClusterRequest) {
	r.Spec.Owner.Cluster = "another-parent"
}

func newTestCluster(phase corev1alpha1.LogicalClusterPhaseType, changes ...func(*corev1alpha1.LogicalCluster)) *corev1alpha1.LogicalCluster {
	owner := Owner(parent, newTestWorkspace())
	out := &corev1alpha1.LogicalCluster{
		ObjectMeta: metav1.ObjectMeta{UID: "lc", Annotations: map[string]string{corev1alpha1.OwnerShardAnnotationKey: "here"}},
		Spec:       corev1alpha1.LogicalClusterSpec{Owner: &owner},
		Status:     corev1alpha1.LogicalClusterStatus{Phase: phase},
	}
	for _, change := range changes {
		change(out)
	}
	return out
}

func clusterDeleting(c *corev1alpha1.LogicalCluster)          { now := metav1.Now(); c.DeletionTimestamp = &now }
func clusterWithoutOwnerShard(c *corev1alpha1.LogicalCluster) { c.Annotations = nil }
func clusterArrives(c *corev1alpha1.LogicalCluster) {
	c.Annotations, c.Spec.Owner = map[string]string{corev1alpha1.ArrivingAnnotationKey: "move"}, nil
}
func clusterOfOtherWorkspace(c *corev1alpha1.LogicalCluster) { c.Spec.Owner.Name = "another" }
func clusterRecreated(c *corev1alpha1.LogicalCluster)        { c.UID = types.UID("lc-2") }

func TestResponder(t *testing.T) {
	const initializing, ready = corev1alpha1.LogicalClusterPhaseInitializing, corev1alpha1.LogicalClusterPhaseReady
	for name, tc := range map[string]struct {
		request             *shardingv1alpha1.LogicalClusterRequest
		cluster             *corev1alpha1.LogicalCluster
		full                string
		step                Step
		state               shardingv1alpha1.LogicalClusterState
		reason              string
		confirmed, released bool
	}{
		"no request":                                             {},
		"create: not created yet":                                {request: newTestRequest("create"), step: Create},
		"create: exists":                                         {request: newTestRequest("create"), cluster: newTestCluster(initializing), state: "Exists"},
		"create: request to another shard":                       {request: newTestRequest("create", requestToOtherShard)},
		"create: spec does not match the name":                   {request: newTestRequest("create", requestWithWrongParent)},
		"create: shard is full":                                  {request: newTestRequest("create"), full: "no room", state: "Refused", reason: "ShardFull"},
		"create: exists on a full shard":                         {request: newTestRequest("create"), cluster: newTestCluster(initializing), full: "no room", state: "Exists"},
		"create: name is used on this shard":                     {request: newTestRequest("create"), cluster: newTestCluster(ready, clusterWithoutOwnerShard), state: "Refused", reason: "NameTaken"},
		"create: name is used by another workspace":              {request: newTestRequest("create", requestForOtherWorkspace), cluster: newTestCluster(ready), state: "Refused", reason: "NameTaken"},
		"create: name is used by a workspace of another shard":   {request: newTestRequest("create", requestFromOtherShard), cluster: newTestCluster(ready), state: "Refused", reason: "NameTaken"},
		"no request: not ready is reported":                      {cluster: newTestCluster(initializing), state: "Exists"},
		"no request: deleting is reported":                       {cluster: newTestCluster(ready, clusterDeleting), state: "Exists"},
		"no request: ready is not reported":                      {cluster: newTestCluster(ready)},
		"no request: owned by this shard is not reported":        {cluster: newTestCluster(initializing, clusterWithoutOwnerShard)},
		"no request: owned by another workspace is not reported": {cluster: newTestCluster(initializing, clusterOfOtherWorkspace)},
		"follow: exists":                                         {request: newTestRequest("follow"), cluster: newTestCluster(ready), state: "Exists"},
		"follow: does not exist":                                 {request: newTestRequest("follow"), state: "Gone"},
		"confirm: same UID":                                      {request: newTestRequest("confirm"), cluster: newTestCluster(initializing), state: "Exists", confirmed: true},
		"confirm: recreated with another UID":                    {request: newTestRequest("confirm"), cluster: newTestCluster(initializing, clusterRecreated), state: "Exists"},
		"confirm: request of another shard":                      {request: newTestRequest("confirm", requestFromOtherShard), cluster: newTestCluster(initializing), state: "Exists"},
		"delete: exists":                                         {request: newTestRequest("delete"), cluster: newTestCluster(ready), step: Delete, state: "Exists", released: true},
		"once":                                                   {request: newTestRequest("delete"), cluster: newTestCluster(ready, clusterDeleting), state: "Exists", released: true},
		"delete: does not exist":                                 {request: newTestRequest("delete"), state: "Gone"},
		"delete: request of another shard":                       {request: newTestRequest("delete", requestFromOtherShard), cluster: newTestCluster(ready), state: "Gone"},
		"delete: another workspace of the same name":             {request: newTestRequest("delete", requestForOtherWorkspace), cluster: newTestCluster(ready), state: "Gone"},
		"delete: owned by this shard":                            {request: newTestRequest("delete"), cluster: newTestCluster(ready, clusterWithoutOwnerShard), state: "Gone"},
		"create: copied here, not complete":                      {request: newTestRequest("create"), cluster: newTestCluster("", clusterArrives)},
		"follow: copied here, not complete":                      {request: newTestRequest("follow"), cluster: newTestCluster("", clusterArrives)},
		"delete: copied here, not complete":                      {request: newTestRequest("delete"), cluster: newTestCluster("", clusterArrives)},
		"follow: deleting is not released":                       {request: newTestRequest("follow"), cluster: newTestCluster(ready, clusterDeleting), state: "Exists"},
	} {
		t.Run(name, func(t *testing.T) {
			i := Responder{ShardName: "there", Parent: parent, Workspace: "ws", Cluster: cluster, Request: tc.request, LogicalCluster: tc.cluster, Full: tc.full}
			if got := i.Step(); got != tc.step {
				t.Errorf("step %q, want %q", got, tc.step)
			}
			report := i.Report()
			if (report == nil) != (tc.state == "") || (report != nil && (report.Spec.State != tc.state || report.Spec.Reason != tc.reason || report.Name != "parent.ws" || report.Spec.Shard == "")) {
				t.Errorf("report %+v, want %q %q", report, tc.state, tc.reason)
			}
			if i.Confirmed() != tc.confirmed || i.Released() != tc.released {
				t.Errorf("confirmed %t, released %t", i.Confirmed(), i.Released())
			}
		})
	}
}

func TestResponderReservedNames(t *testing.T) {
	for _, reserved := range []logicalcluster.Name{logicalcluster.Root, logicalcluster.Admin} {
		request := newTestRequest("create")
		request.Spec.Cluster = reserved.String()
		i := Responder{ShardName: "there", Parent: parent, Workspace: "ws", Cluster: reserved, Request: request}
		if i.Step() != Nothing || i.Report().Spec.Reason != shardingv1alpha1.ReasonNameTaken {
			t.Errorf("%s: %q, %+v", reserved, i.Step(), i.Report())
		}
	}
}

func TestResponderNew(t *testing.T) {
	got := Responder{ShardName: "there", Parent: parent, Workspace: "ws", Cluster: cluster, Request: newTestRequest("create")}.New()
	want := map[string]string{
		corev1alpha1.LogicalClusterPathAnnotationKey: "root:ws",
		corev1alpha1.ShardAnnotationKey:              "there",
		corev1alpha1.OwnerShardAnnotationKey:         "here",
	}
	if len(got.Annotations) != len(want) {
		t.Errorf("annotations %v", got.Annotations)
	}
	for key, value := range want {
		if got.Annotations[key] != value {
			t.Errorf("annotation %s is %q", key, got.Annotations[key])
		}
	}
	if !got.Spec.DirectlyDeletable || got.Spec.Owner.UID != "w" || len(got.Finalizers) != 1 {
		t.Errorf("got %+v", got)
	}
}

func TestParseNames(t *testing.T) {
	if workspace, name, ok := ParseRequestName(RequestName("ws", cluster)); !ok || workspace != "ws" || name != cluster {
		t.Error(workspace, name, ok)
	}
	if from, workspace, ok := ParseReportName(ReportName(parent, "ws")); !ok || workspace != "ws" || from != parent {
		t.Error(from, workspace, ok)
	}
	for _, none := range []string{"", "x", ".x", "x.", "x.Y", "a.b/c"} {
		if _, _, ok := ParseRequestName(none); ok {
			t.Errorf("%q was parsed as the name of a request", none)
		}
	}
}
