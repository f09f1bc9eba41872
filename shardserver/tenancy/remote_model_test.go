package tenancy

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/sharding/placement"
	"github.com/atoll-dev/atoll/shardserver/tenancy/remote"
)

// TestPlacementProtocolConverges runs the protocol between the shard of some workspaces ("here") and the one
// that they are scheduled on ("there") in random order, with late messages, stale views as after a restart, writes
// that were decided long ago, a cache that loses everything, and users who create and delete. In the end every
// workspace has its logical cluster, or the condition that it ended, no logical cluster is without a workspace,
// and nothing is published any more.
func TestPlacementProtocolConverges(t *testing.T) {
	for seed := range uint64(1000) {
		m := newModel(seed)
		m.quietFactor = int(seed % 8) // some runs are quiet enough to settle now and then
		for range 150 * (1 + m.quietFactor) {
			m.step()
		}
		m.settle()
		if wrong := append(m.violations, m.findViolations()...); len(wrong) > 0 {
			t.Fatalf("seed %d:\n%s\n\nhistory:\n%s", seed, strings.Join(wrong, "\n"), strings.Join(m.history, "\n"))
		}
	}
}

const parentShard, targetShard = "here", "there"

var modelParent = logicalcluster.MustParseName("parent")

// model is the state of the protocol with both shards and the cache.
type model struct {
	rand *rand.Rand
	now  time.Time
	next int

	// The stored objects: here, in the cache (by publisher and name), and there.
	workspaces map[string]*tenancyv1alpha1.Workspace
	requests   map[string]*shardingv1alpha1.LogicalClusterRequest
	reports    map[string]*shardingv1alpha1.LogicalClusterReport
	clusters   map[string]*corev1alpha1.LogicalCluster

	// The current and the previous view that each side has of the other.
	seenReports, olderReports   map[string]*shardingv1alpha1.LogicalClusterReport
	seenRequests, olderRequests map[string]*shardingv1alpha1.LogicalClusterRequest

	// pending are writes that were decided and not executed yet.
	pending []func()
	full    bool
	// quietFactor is the weight of regular work compared with faults.
	quietFactor int
	settling    bool // there are no faults any more

	violations, history []string
}

func newModel(seed uint64) *model {
	return &model{
		rand: rand.New(rand.NewPCG(seed, 0)), now: time.Unix(1_000_000, 0),
		workspaces: map[string]*tenancyv1alpha1.Workspace{}, clusters: map[string]*corev1alpha1.LogicalCluster{},
		requests: map[string]*shardingv1alpha1.LogicalClusterRequest{}, reports: map[string]*shardingv1alpha1.LogicalClusterReport{},
		seenReports: map[string]*shardingv1alpha1.LogicalClusterReport{}, seenRequests: map[string]*shardingv1alpha1.LogicalClusterRequest{},
	}
}

func (m *model) log(format string, args ...any) {
	m.history = append(m.history, fmt.Sprintf(format, args...))
}

// step executes one random action.
func (m *model) step() {
	m.now = m.now.Add(100 * time.Millisecond)
	if m.quietFactor > 0 && m.rand.IntN(m.quietFactor+1) != 0 {
		if m.rand.IntN(3) == 0 {
			m.syncViews(true)
		}
		m.reconcileAny()
		m.executePending()
		return
	}
	switch m.rand.IntN(20) {
	case 0:
		m.create(fmt.Sprintf("w%d", m.rand.IntN(2)))
	case 1:
		m.deleteWorkspace(fmt.Sprintf("w%d", m.rand.IntN(2)))
	case 2:
		m.deleteCluster()
	case 3:
		m.crash()
	case 4:
		m.full = m.rand.IntN(3) == 0
	case 5, 6, 7:
		m.syncViews(false)
	case 8, 9:
		m.executePending()
	default:
		m.reconcileAny()
	}
}

// settle delivers and executes everything until nothing changes any more.
func (m *model) settle() {
	m.full, m.settling = false, true
	m.log("--- settling")
	for range 60 {
		m.now = m.now.Add(time.Minute)
		for len(m.pending) > 0 {
			m.executePending()
		}
		m.syncViews(true)
		for _, name := range slices.Sorted(maps.Keys(m.workspaces)) {
			m.reconcileWorkspace(name)
		}
		m.publish(false)
		m.syncViews(true)
		for _, name := range m.requestedNames() {
			m.reconcileRequest(name, false)
		}
		for _, name := range slices.Sorted(maps.Keys(m.clusters)) {
			m.reconcileCluster(name)
		}
		m.publish(false)
	}
}

func (m *model) reconcileAny() {
	switch m.rand.IntN(4) {
	case 0:
		if name, ok := pick(m.rand, m.workspaces); ok {
			m.reconcileWorkspace(name)
		}
	case 1:
		if names := m.requestedNames(); len(names) > 0 {
			m.reconcileRequest(names[m.rand.IntN(len(names))], true)
		}
	case 2:
		if name, ok := pick(m.rand, m.clusters); ok {
			m.reconcileCluster(name)
		}
	case 3:
		m.publish(true)
	}
}

func pick[V any](r *rand.Rand, from map[string]V) (string, bool) {
	if len(from) == 0 {
		return "", false
	}
	return slices.Sorted(maps.Keys(from))[r.IntN(len(from))], true
}

// Users.

func (m *model) create(name string) {
	if m.workspaces[name] != nil {
		return
	}
	m.next++
	m.workspaces[name] = &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(fmt.Sprint(m.next)), CreationTimestamp: metav1.NewTime(m.now),
		Annotations: map[string]string{corev1alpha1.ShardAnnotationKey: targetShard}, Finalizers: []string{corev1alpha1.LogicalClusterFinalizer},
	}}
	m.log("user creates %s (%d)", name, m.next)
}

func (m *model) deleteWorkspace(name string) {
	if workspace := m.workspaces[name]; workspace != nil && workspace.DeletionTimestamp == nil {
		at := metav1.NewTime(m.now)
		workspace.DeletionTimestamp = &at
		m.log("user deletes %s", name)
	}
}

func (m *model) deleteCluster() {
	if name, ok := pick(m.rand, m.clusters); ok && m.clusters[name].DeletionTimestamp == nil && m.rand.IntN(3) == 0 {
		at := metav1.NewTime(m.now)
		m.clusters[name].DeletionTimestamp = &at
		m.log("user deletes logical cluster %s", name)
	}
}

// The environment.

// syncViews updates the view that one side has of the other, or both views.
func (m *model) syncViews(both bool) {
	side := m.rand.IntN(2)
	if both || side == 0 {
		m.olderReports, m.seenReports = m.seenReports, maps.Clone(m.reports)
	}
	if both || side == 1 {
		m.olderRequests, m.seenRequests = m.seenRequests, maps.Clone(m.requests)
	}
}

// crash drops the pending work of one side and restores its previous view; or empties the cache.
func (m *model) crash() {
	switch m.rand.IntN(3) {
	case 0:
		m.seenReports = maps.Clone(m.olderReports)
		m.log("here has its previous view")
	case 1:
		m.seenRequests = maps.Clone(m.olderRequests)
		m.log("there has its previous view")
	case 2:
		clear(m.requests)
		clear(m.reports)
		m.log("the cache is empty")
	}
	if m.rand.IntN(2) == 0 {
		m.pending = nil
	}
}

func (m *model) executePending() {
	if len(m.pending) == 0 {
		return
	}
	at := m.rand.IntN(len(m.pending))
	do := m.pending[at]
	m.pending = slices.Delete(m.pending, at, at+1)
	do()
}

// Here.

// reconcileWorkspace does the work of the workspace controller, without a server.
func (m *model) reconcileWorkspace(name string) {
	stored := m.workspaces[name]
	workspace := stored.DeepCopy()
	cluster, reserved := placement.Cluster(workspace)
	report := m.seenReports[cluster.String()+"/"+placement.ReportName(modelParent, name)]
	if workspace.DeletionTimestamp != nil {
		matching := placement.MatchingReport(report, parentShard, modelParent, workspace)
		if !reserved || (matching != nil && matching.Spec.State != shardingv1alpha1.LogicalClusterExists) {
			delete(m.workspaces, name)
			m.log("here removes the finalizer of %s", name)
		}
		return
	}
	facts := workspaceFacts{now: m.now}
	state := remote.StateOf(workspace, modelParent, parentShard, report)
	switch {
	case !reserved || (workspace.Spec.Cluster == "" && (state == remote.NeedsName || state == remote.NeedsShard)):
		if reserved {
			remote.DiscardClusterName(workspace)
		}
		m.next++
		setMapEntry(&workspace.Annotations, tenancyv1alpha1.WorkspaceClusterAnnotationKey, fmt.Sprintf("c%d", m.next))
		facts.waiting = "x"
	case workspace.Spec.Cluster == "" && state == remote.Accepted && !m.settling && m.rand.IntN(4) == 0:
		m.seenReports = maps.Clone(m.olderReports)
		m.log("here ends before it stores cluster %q of %s, in phase %s there", cluster, name, report.Spec.Phase)
		return
	case workspace.Spec.Cluster == "" && state == remote.Accepted:
		workspace.Spec.Cluster = cluster.String()
		facts.cluster = placement.LogicalClusterFromReport(report, workspace)
		if deferStatus(stored, facts) > 0 {
			return
		}
	case workspace.Spec.Cluster == "":
		facts.waiting = "x"
	case placement.Ended(workspace) || state == remote.Disappeared:
		facts.ended = true
	case state == remote.Accepted:
		facts.cluster = placement.LogicalClusterFromReport(report, workspace)
	default:
		facts.remote = true
	}
	setStatus(workspace, facts)
	if !reflect.DeepEqual(stored.Status, workspace.Status) || !reflect.DeepEqual(stored.Annotations, workspace.Annotations) || stored.Spec.Cluster != workspace.Spec.Cluster {
		m.log("here sets %s to cluster %q (%q), phase %s, ended %t", name, workspace.Spec.Cluster, workspace.Annotations[tenancyv1alpha1.WorkspaceClusterAnnotationKey], workspace.Status.Phase, placement.Ended(workspace))
	}
	m.workspaces[name] = workspace
}

// publish computes everything that both sides publish; if late is set, it is written at any later time.
func (m *model) publish(late bool) {
	for _, key := range m.requestKeys() {
		m.publishRequest(key, late)
	}
	for _, key := range m.reportKeys() {
		m.publishReport(key, late)
	}
}

// requestKeys are the keys of all desired and published requests.
func (m *model) requestKeys() []string {
	keys := map[string]struct{}{}
	for key := range m.requests {
		keys[key] = struct{}{}
	}
	for name, workspace := range m.workspaces {
		if cluster, ok := placement.Cluster(workspace); ok {
			keys[placement.RequestName(name, cluster)] = struct{}{}
		}
	}
	for key := range m.seenReports {
		cluster, name, _ := strings.Cut(key, "/")
		_, workspace, _ := placement.ParseReportName(name)
		keys[placement.RequestName(workspace, logicalcluster.MustParseName(cluster))] = struct{}{}
	}
	return slices.Sorted(maps.Keys(keys))
}

func (m *model) publishRequest(key string, late bool) {
	name, cluster, _ := placement.ParseRequestName(key)
	requester := placement.Requester{
		ShardName: parentShard, Parent: modelParent, HasParent: true, Cluster: cluster, Workspace: m.workspaces[name],
		Report: m.seenReports[cluster.String()+"/"+placement.ReportName(modelParent, name)],
		Template: func() (*corev1alpha1.LogicalCluster, error) {
			return &corev1alpha1.LogicalCluster{}, nil
		},
	}
	desired, err := requester.Request()
	if err != nil {
		m.violations = append(m.violations, err.Error())
	}
	if desired != nil {
		desired.Annotations = map[string]string{"kcp.io/shard": parentShard}
	}
	write(m, m.requests, key, desired, late, func(r *shardingv1alpha1.LogicalClusterRequest) string {
		return fmt.Sprintf("requests %s: delete %t, template %t, confirmed %q", key, r.Spec.Delete, r.Spec.Template != nil, r.Spec.Confirmed)
	})
}

// write writes an object to the cache now, or later if it has not changed by then. The objects are compared by
// identity, as the publisher does.
func write[T any](m *model, in map[string]*T, key string, desired *T, late bool, describe func(*T) string) {
	found := in[key]
	if reflect.DeepEqual(found, desired) {
		return
	}
	do := func() {
		if in[key] != found {
			return
		}
		if desired == nil {
			delete(in, key)
			m.log("  unpublishes %s", key)
			return
		}
		in[key] = desired
		m.log("  %s", describe(desired))
	}
	if !late {
		do()
		return
	}
	m.pending = append(m.pending, do)
}

// There.

func (m *model) requestedNames() []string {
	names := map[string]struct{}{}
	for key, request := range m.seenRequests {
		workspace, _, _ := placement.ParseRequestName(key)
		names[request.Spec.Cluster+"/"+placement.ReportName(modelParent, workspace)] = struct{}{}
	}
	return slices.Sorted(maps.Keys(names))
}

func (m *model) reportKeys() []string {
	keys := map[string]struct{}{}
	for _, key := range m.requestedNames() {
		keys[key] = struct{}{}
	}
	for key := range m.reports {
		keys[key] = struct{}{}
	}
	for name, cluster := range m.clusters {
		keys[name+"/"+placement.ReportName(modelParent, cluster.Spec.Owner.Name)] = struct{}{}
	}
	return slices.Sorted(maps.Keys(keys))
}

func (m *model) responder(key string) placement.Responder {
	cluster, name, _ := strings.Cut(key, "/")
	parent, workspace, _ := placement.ParseReportName(name)
	responder := placement.Responder{
		ShardName: targetShard, Parent: parent, Workspace: workspace, Cluster: logicalcluster.MustParseName(cluster), LogicalCluster: m.clusters[cluster],
		Request: m.seenRequests[placement.RequestName(workspace, logicalcluster.MustParseName(cluster))],
	}
	if m.full {
		responder.Full = "full"
	}
	return responder
}

func (m *model) publishReport(key string, late bool) {
	desired := m.responder(key).Report()
	if desired != nil {
		desired.Annotations = map[string]string{"kcp.io/shard": targetShard}
	}
	write(m, m.reports, key, desired, late, func(r *shardingv1alpha1.LogicalClusterReport) string {
		return fmt.Sprintf("reports %s: %s %s, deleting %t, phase %s, uid %s", key, r.Spec.State, r.Spec.Reason, r.Spec.Deleting, r.Spec.Phase, r.Spec.UID)
	})
}

func (m *model) reconcileRequest(key string, late bool) {
	responder := m.responder(key)
	cluster := responder.Cluster.String()
	switch responder.Step() {
	case placement.Create:
		made := responder.New()
		do := func() {
			if m.clusters[cluster] != nil {
				return
			}
			m.next++
			made := made.DeepCopy()
			made.UID, made.Status.Phase = types.UID(fmt.Sprint(m.next)), corev1alpha1.LogicalClusterPhaseInitializing
			m.clusters[cluster] = made
			m.log("there creates %s (%d)", cluster, m.next)
		}
		if late {
			m.pending = append(m.pending, do)
			return
		}
		do()
	case placement.Delete:
		m.checkDeletion(cluster)
		at := metav1.NewTime(m.now)
		m.clusters[cluster].DeletionTimestamp = &at
		m.log("there deletes %s", cluster)
	}
}

// checkDeletion checks the most important rule: the logical cluster of a workspace is not deleted.
func (m *model) checkDeletion(cluster string) {
	owner := m.clusters[cluster].Spec.Owner
	workspace := m.workspaces[owner.Name]
	if workspace == nil || workspace.UID != owner.UID || workspace.DeletionTimestamp != nil || placement.Ended(workspace) {
		return
	}
	if name, ok := placement.Cluster(workspace); ok && name.String() == cluster {
		m.violations = append(m.violations, fmt.Sprintf("logical cluster %s of workspace %s is deleted", cluster, owner.Name))
	}
}

func (m *model) reconcileCluster(name string) {
	cluster := m.clusters[name]
	responder := m.responder(name + "/" + placement.ReportName(modelParent, cluster.Spec.Owner.Name))
	switch {
	case cluster.DeletionTimestamp != nil && responder.Released():
		delete(m.clusters, name)
		m.log("there %s is gone", name)
	case cluster.DeletionTimestamp == nil && cluster.Status.Phase == corev1alpha1.LogicalClusterPhaseInitializing && responder.Confirmed():
		cluster = cluster.DeepCopy()
		cluster.Status.Phase = corev1alpha1.LogicalClusterPhaseReady
		m.clusters[name] = cluster
		m.log("there %s is ready", name)
	}
}

// findViolations returns the violations in a settled state.
func (m *model) findViolations() []string {
	var violations []string
	for name, workspace := range m.workspaces {
		cluster := m.clusters[workspace.Spec.Cluster]
		switch {
		case workspace.DeletionTimestamp != nil:
			violations = append(violations, fmt.Sprintf("workspace %s is not deleted", name))
		case placement.Ended(workspace):
			if cluster != nil || workspace.Status.Phase != corev1alpha1.LogicalClusterPhaseUnavailable {
				violations = append(violations, fmt.Sprintf("workspace %s has ended in phase %s with %v", name, workspace.Status.Phase, cluster))
			}
		case cluster == nil || cluster.Status.Phase != corev1alpha1.LogicalClusterPhaseReady || workspace.Status.Phase != corev1alpha1.LogicalClusterPhaseReady || cluster.Spec.Owner.UID != workspace.UID:
			violations = append(violations, fmt.Sprintf("workspace %s has cluster %q in phase %s, and the logical cluster is %+v", name, workspace.Spec.Cluster, workspace.Status.Phase, cluster))
		default:
			for key := range m.requests {
				if strings.HasPrefix(key, name+".") {
					violations = append(violations, fmt.Sprintf("%s is requested for a settled workspace", key))
				}
			}
			if key := workspace.Spec.Cluster + "/" + placement.ReportName(modelParent, name); m.reports[key] != nil {
				violations = append(violations, fmt.Sprintf("%s is reported for a settled workspace", key))
			}
		}
	}
	for name, cluster := range m.clusters {
		workspace := m.workspaces[cluster.Spec.Owner.Name]
		if workspace == nil || workspace.UID != cluster.Spec.Owner.UID || workspace.Spec.Cluster != name {
			violations = append(violations, fmt.Sprintf("no workspace has logical cluster %s", name))
		}
	}
	for key := range m.requests {
		if name, cluster, _ := placement.ParseRequestName(key); m.workspaces[name] == nil || m.workspaces[name].Spec.Cluster != cluster.String() {
			violations = append(violations, fmt.Sprintf("%s is requested without a workspace", key))
		}
	}
	return violations
}
