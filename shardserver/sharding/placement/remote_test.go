package placement

import (
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

func workspaceWith(changes ...func(*tenancyv1alpha1.Workspace)) *tenancyv1alpha1.Workspace {
	workspace := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{
		Name: "ws", UID: "w", Finalizers: []string{corev1alpha1.LogicalClusterFinalizer},
		Annotations: map[string]string{corev1alpha1.ShardAnnotationKey: "there", tenancyv1alpha1.WorkspaceClusterAnnotationKey: cluster.String()},
	}}
	for _, change := range changes {
		change(workspace)
	}
	return workspace
}

func leads(w *tenancyv1alpha1.Workspace) { w.Spec.Cluster = cluster.String() }
func isReady(w *tenancyv1alpha1.Workspace) {
	w.Status.Phase = corev1alpha1.LogicalClusterPhaseReady
}
func deleted(w *tenancyv1alpha1.Workspace) { now := metav1.Now(); w.DeletionTimestamp = &now }
func held(w *tenancyv1alpha1.Workspace)    { w.Finalizers = append(w.Finalizers, "example.com/other") }
func letGo(w *tenancyv1alpha1.Workspace)   { w.Finalizers = []string{"example.com/other"} }
func ended(w *tenancyv1alpha1.Workspace) {
	conditionsv1alpha1.MarkTrue(w, tenancyv1alpha1.LogicalClusterEnded)
}

func on(shard string) func(*tenancyv1alpha1.Workspace) {
	return func(w *tenancyv1alpha1.Workspace) { w.Annotations[corev1alpha1.ShardAnnotationKey] = shard }
}

func namedAs(name string) func(*tenancyv1alpha1.Workspace) {
	return func(w *tenancyv1alpha1.Workspace) {
		w.Annotations[tenancyv1alpha1.WorkspaceClusterAnnotationKey] = name
	}
}

func reportOf(phase corev1alpha1.LogicalClusterPhaseType, changes ...func(*shardingv1alpha1.LogicalClusterReport)) *shardingv1alpha1.LogicalClusterReport {
	report := &shardingv1alpha1.LogicalClusterReport{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{publisherAnnotation: "there"}},
		Spec: shardingv1alpha1.LogicalClusterReportSpec{
			Owner: Owner(parent, workspaceWith()), Shard: "here", State: shardingv1alpha1.LogicalClusterExists, UID: "lc", Phase: phase,
		},
	}
	for _, change := range changes {
		change(report)
	}
	return report
}

func deleting(r *shardingv1alpha1.LogicalClusterReport) { r.Spec.Deleting = true }
func gone(r *shardingv1alpha1.LogicalClusterReport) {
	r.Spec.State = shardingv1alpha1.LogicalClusterGone
}
func byAnother(r *shardingv1alpha1.LogicalClusterReport) { r.Annotations[publisherAnnotation] = "liar" }
func toAnother(r *shardingv1alpha1.LogicalClusterReport) { r.Spec.Shard = "elsewhere" }
func ofOlder(r *shardingv1alpha1.LogicalClusterReport)   { r.Spec.Owner.UID = "older" }

func TestWhatTheShardOfAWorkspaceAsks(t *testing.T) {
	const initializing, ready = corev1alpha1.LogicalClusterPhaseInitializing, corev1alpha1.LogicalClusterPhaseReady
	for name, tc := range map[string]struct {
		workspace *tenancyv1alpha1.Workspace
		report    *shardingv1alpha1.LogicalClusterReport
		// want is "", "create", "follow", "confirm" or "delete".
		want string
	}{
		"for a logical cluster, when it was placed":                       {workspace: workspaceWith(), want: "create"},
		"nothing, when it was placed here":                                {workspace: workspaceWith(on("here"))},
		"nothing, when it was not placed":                                 {workspace: workspaceWith(on(""))},
		"for the same until the workspace leads there":                    {workspace: workspaceWith(), report: reportOf(initializing), want: "create"},
		"for a report, when the workspace leads there":                    {workspace: workspaceWith(leads), want: "follow"},
		"and confirms what it leads to":                                   {workspace: workspaceWith(leads), report: reportOf(initializing), want: "confirm"},
		"nothing, when it is ready":                                       {workspace: workspaceWith(leads, isReady), report: reportOf(ready)},
		"nothing, when it is ready and there is no report":                {workspace: workspaceWith(leads, isReady)},
		"and confirms when it is ready and the logical cluster is not":    {workspace: workspaceWith(leads, isReady), report: reportOf(initializing), want: "confirm"},
		"but confirms nothing that is being deleted":                      {workspace: workspaceWith(leads), report: reportOf(initializing, deleting), want: "follow"},
		"nor what another shard reports":                                  {workspace: workspaceWith(leads), report: reportOf(initializing, byAnother), want: "follow"},
		"nor what was made for an older workspace":                        {workspace: workspaceWith(leads), report: reportOf(initializing, ofOlder), want: "follow"},
		"nor what is reported to another shard":                           {workspace: workspaceWith(leads), report: reportOf(initializing, toAnother), want: "follow"},
		"for the end, when the workspace is deleted":                      {workspace: workspaceWith(leads, isReady, deleted), want: "delete"},
		"for the end, when it is deleted before it led there":             {workspace: workspaceWith(deleted), want: "delete"},
		"not for the end while somebody else holds the workspace":         {workspace: workspaceWith(leads, deleted, held), want: "follow"},
		"nothing, when a workspace that others hold was let go":           {workspace: workspaceWith(leads, deleted, letGo), report: reportOf(ready, gone)},
		"for the end, when the workspace says that it has ended":          {workspace: workspaceWith(leads, ended), report: reportOf(initializing), want: "delete"},
		"not for the end before it says so":                               {workspace: workspaceWith(leads, isReady), report: reportOf(ready, deleting), want: "follow"},
		"back what was made for a workspace that is gone":                 {report: reportOf(initializing), want: "delete"},
		"back what was made for a workspace that has gone on":             {workspace: workspaceWith(namedAs("cluster-2")), report: reportOf(initializing), want: "delete"},
		"nothing back that another shard's workspace has":                 {report: reportOf(initializing, toAnother)},
		"nothing back that does not exist":                                {report: reportOf("", gone)},
		"nothing for a workspace that is gone and of which nobody speaks": {},
	} {
		t.Run(name, func(t *testing.T) {
			request, err := Requester{
				Own: "here", Parent: parent, Cluster: cluster, Workspace: tc.workspace, Report: tc.report,
				Template: func() (*corev1alpha1.LogicalCluster, error) { return &corev1alpha1.LogicalCluster{}, nil },
			}.Request()
			if err != nil {
				t.Fatal(err)
			}
			if got := kindOf(request); got != tc.want {
				t.Fatalf("asks %q, want %q", got, tc.want)
			}
			if request != nil && (request.Spec.Shard != "there" || request.Name != "ws.cluster-1" || request.Spec.Owner.Cluster != "parent") {
				t.Errorf("got %+v", request)
			}
		})
	}
}

func kindOf(request *shardingv1alpha1.LogicalClusterRequest) string {
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

func requestFor(kind string, changes ...func(*shardingv1alpha1.LogicalClusterRequest)) *shardingv1alpha1.LogicalClusterRequest {
	request := &shardingv1alpha1.LogicalClusterRequest{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{publisherAnnotation: "here"}},
		Spec:       shardingv1alpha1.LogicalClusterRequestSpec{Shard: "there", Cluster: cluster.String(), Owner: Owner(parent, workspaceWith())},
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

func byStranger(r *shardingv1alpha1.LogicalClusterRequest) {
	r.Annotations[publisherAnnotation] = "thief"
}
func forOther(r *shardingv1alpha1.LogicalClusterRequest)  { r.Spec.Owner.UID = "other" }
func elsewhere(r *shardingv1alpha1.LogicalClusterRequest) { r.Spec.Shard = "third" }
func lying(r *shardingv1alpha1.LogicalClusterRequest)     { r.Spec.Owner.Cluster = "another-parent" }

func clusterIn(phase corev1alpha1.LogicalClusterPhaseType, changes ...func(*corev1alpha1.LogicalCluster)) *corev1alpha1.LogicalCluster {
	owner := Owner(parent, workspaceWith())
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

func dying(c *corev1alpha1.LogicalCluster)     { now := metav1.Now(); c.DeletionTimestamp = &now }
func local(c *corev1alpha1.LogicalCluster)     { c.Annotations = nil }
func ofAnother(c *corev1alpha1.LogicalCluster) { c.Spec.Owner.Name = "another" }
func madeAnew(c *corev1alpha1.LogicalCluster)  { c.UID = types.UID("lc-2") }

func TestWhatTheAskedShardDoes(t *testing.T) {
	const initializing, ready = corev1alpha1.LogicalClusterPhaseInitializing, corev1alpha1.LogicalClusterPhaseReady
	for name, tc := range map[string]struct {
		request             *shardingv1alpha1.LogicalClusterRequest
		cluster             *corev1alpha1.LogicalCluster
		full                string
		step                Step
		says                shardingv1alpha1.LogicalClusterState
		reason              string
		confirmed, released bool
	}{
		"nothing that nobody asks for":                       {},
		"makes what it is asked for":                         {request: requestFor("create"), step: Create},
		"and reports it":                                     {request: requestFor("create"), cluster: clusterIn(initializing), says: "Exists"},
		"not where another shard is asked":                   {request: requestFor("create", elsewhere)},
		"not where the request lies about its place":         {request: requestFor("create", lying)},
		"not when it is full":                                {request: requestFor("create"), full: "no room", says: "Refused", reason: "ShardFull"},
		"keeps what it has although it is full":              {request: requestFor("create"), cluster: clusterIn(initializing), full: "no room", says: "Exists"},
		"not where the name is taken here":                   {request: requestFor("create"), cluster: clusterIn(ready, local), says: "Refused", reason: "NameTaken"},
		"nor by another workspace":                           {request: requestFor("create", forOther), cluster: clusterIn(ready), says: "Refused", reason: "NameTaken"},
		"nor by a workspace of another shard":                {request: requestFor("create", byStranger), cluster: clusterIn(ready), says: "Refused", reason: "NameTaken"},
		"reports what is not ready although nobody asks":     {cluster: clusterIn(initializing), says: "Exists"},
		"reports what is deleted although nobody asks":       {cluster: clusterIn(ready, dying), says: "Exists"},
		"not what is settled":                                {cluster: clusterIn(ready)},
		"nor what belongs to this shard":                     {cluster: clusterIn(initializing, local)},
		"nor, to one, what belongs to another":               {cluster: clusterIn(initializing, ofAnother)},
		"reports what it is asked about":                     {request: requestFor("follow"), cluster: clusterIn(ready), says: "Exists"},
		"or that there is nothing":                           {request: requestFor("follow"), says: "Gone"},
		"has confirmed what is confirmed":                    {request: requestFor("confirm"), cluster: clusterIn(initializing), says: "Exists", confirmed: true},
		"but not what was made anew":                         {request: requestFor("confirm"), cluster: clusterIn(initializing, madeAnew), says: "Exists"},
		"nor by another shard":                               {request: requestFor("confirm", byStranger), cluster: clusterIn(initializing), says: "Exists"},
		"deletes what it is asked to delete, and lets it go": {request: requestFor("delete"), cluster: clusterIn(ready), step: Delete, says: "Exists", released: true},
		"once":                     {request: requestFor("delete"), cluster: clusterIn(ready, dying), says: "Exists", released: true},
		"and says that it is gone": {request: requestFor("delete"), says: "Gone"},
		"not for another shard":    {request: requestFor("delete", byStranger), cluster: clusterIn(ready), says: "Gone"},
		"not for another workspace of the same name":       {request: requestFor("delete", forOther), cluster: clusterIn(ready), says: "Gone"},
		"not what belongs to this shard":                   {request: requestFor("delete"), cluster: clusterIn(ready, local), says: "Gone"},
		"does not let go what nobody has asked the end of": {request: requestFor("follow"), cluster: clusterIn(ready, dying), says: "Exists"},
	} {
		t.Run(name, func(t *testing.T) {
			i := Responder{Own: "there", Parent: parent, Workspace: "ws", Cluster: cluster, Request: tc.request, LogicalCluster: tc.cluster, Full: tc.full}
			if got := i.Step(); got != tc.step {
				t.Errorf("step %q, want %q", got, tc.step)
			}
			report := i.Report()
			if (report == nil) != (tc.says == "") || (report != nil && (report.Spec.State != tc.says || report.Spec.Reason != tc.reason || report.Name != "parent.ws" || report.Spec.Shard == "")) {
				t.Errorf("reports %+v, want %q %q", report, tc.says, tc.reason)
			}
			if i.Confirmed() != tc.confirmed || i.Released() != tc.released {
				t.Errorf("confirmed %t, released %t", i.Confirmed(), i.Released())
			}
		})
	}
}

func TestReservedNamesAreNotGiven(t *testing.T) {
	for _, reserved := range []logicalcluster.Name{logicalcluster.Root, logicalcluster.Admin} {
		request := requestFor("create")
		request.Spec.Cluster = reserved.String()
		i := Responder{Own: "there", Parent: parent, Workspace: "ws", Cluster: reserved, Request: request}
		if i.Step() != Nothing || i.Report().Spec.Reason != shardingv1alpha1.ReasonNameTaken {
			t.Errorf("%s: %q, %+v", reserved, i.Step(), i.Report())
		}
	}
}

func TestANewLogicalClusterHasOnlyWhatMayBeAskedFor(t *testing.T) {
	got := Responder{Own: "there", Parent: parent, Workspace: "ws", Cluster: cluster, Request: requestFor("create")}.New()
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

func TestNamesLeadBack(t *testing.T) {
	if workspace, name, ok := ParseRequestName(RequestName("ws", cluster)); !ok || workspace != "ws" || name != cluster {
		t.Error(workspace, name, ok)
	}
	if from, workspace, ok := ParseReportName(ReportName(parent, "ws")); !ok || workspace != "ws" || from != parent {
		t.Error(from, workspace, ok)
	}
	for _, none := range []string{"", "x", ".x", "x.", "x.Y", "a.b/c"} {
		if _, _, ok := ParseRequestName(none); ok {
			t.Errorf("%q is no name of a request", none)
		}
	}
}
