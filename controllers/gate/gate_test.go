package gate_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/gate"
	"github.com/atoll-dev/atoll/controllers/rollout"
	"github.com/atoll-dev/atoll/controllers/status"
	"github.com/atoll-dev/atoll/controllers/workload"
)

const namespace = "kcp"

// env is a small installation in an in-memory cluster: six components, an operator that can be restarted, servers with
// the health that the test sets, and a clock.
type env struct {
	t       *testing.T
	client  client.Client
	cluster apply.Cluster
	gate    *gate.Gate
	clock   time.Time
	health  health
	owners  map[string]client.Object // by Deployment
	images  map[string]string        // wanted, by Deployment
	flapped []string                 // Deployments that were not available although enough pods served
	updated []string                 // in the order of the updates
}

// health is the result of each health check.
type health struct {
	shard, cache, proxy, virtualWorkspace, probe, proxyProbe, heartbeats error
	lag                                                                  time.Duration
}

// withoutPods is part of the names of custom resources that have no Deployment. Their servers do not respond.
const withoutPods = "podless"

func (h *health) ShardReady(_ context.Context, shard desired.Shard) error {
	return answer(shard.Name(), h.shard)
}
func (h *health) CacheReady(_ context.Context, cache *operatorv1alpha1.CacheServer) error {
	return answer(cache.Name, h.cache)
}

func answer(server string, err error) error {
	if strings.Contains(server, withoutPods) {
		return errors.New("there is no server " + server)
	}
	return err
}
func (h *health) ProxyReady(context.Context, desired.Proxy) error { return h.proxy }
func (h *health) VirtualWorkspaceReady(context.Context, desired.VirtualWorkspace) error {
	return h.virtualWorkspace
}
func (h *health) Probe(_ context.Context, shard desired.Shard, proxies ...desired.Proxy) error {
	if len(proxies) > 0 && h.proxyProbe != nil {
		return h.proxyProbe
	}
	return answer(shard.Name(), h.probe)
}
func (h *health) MissingHeartbeats(context.Context, *operatorv1alpha1.RootShard) (map[string]string, error) {
	return nil, h.heartbeats
}
func (h *health) Lag(_ context.Context, shard desired.Shard) (time.Duration, error) {
	return h.lag, answer(shard.Name(), nil)
}

var workloads = []string{"cache-cache-server", "root-kcp", "alpha-shard-kcp", "beta-shard-kcp", "views-virtual-workspace", "door-front-proxy"}

func newEnv(t *testing.T) *env {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, operatorv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	root := &operatorv1alpha1.RootShard{ObjectMeta: meta("root")}
	root.Spec.Cache.Ref = &corev1.LocalObjectReference{Name: "cache"}
	owners := map[string]client.Object{
		"cache-cache-server": &operatorv1alpha1.CacheServer{ObjectMeta: meta("cache")},
		"root-kcp":           root,
		"alpha-shard-kcp":    &operatorv1alpha1.Shard{ObjectMeta: meta("alpha"), Spec: operatorv1alpha1.ShardSpec{RootShard: rootShardRef}},
		"beta-shard-kcp":     &operatorv1alpha1.Shard{ObjectMeta: meta("beta"), Spec: operatorv1alpha1.ShardSpec{RootShard: rootShardRef}},
		"views-virtual-workspace": &operatorv1alpha1.VirtualWorkspace{ObjectMeta: meta("views"), Spec: operatorv1alpha1.VirtualWorkspaceSpec{
			Target: operatorv1alpha1.VirtualWorkspaceTarget{ShardRef: &corev1.LocalObjectReference{Name: "alpha"}},
		}},
		"door-front-proxy": &operatorv1alpha1.FrontProxy{ObjectMeta: meta("door"), Spec: operatorv1alpha1.FrontProxySpec{RootShard: rootShardRef}},
	}
	builder := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&appsv1.Deployment{})
	for _, owner := range owners {
		builder = builder.WithObjects(owner)
	}
	s := &env{t: t, client: builder.Build(), clock: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), owners: owners, images: map[string]string{}}
	s.startOperator()
	s.setImage("example.com/atoll:v1")
	for _, name := range workloads {
		s.reconcile(name)
		s.updatePods(name, true)
	}
	s.updated = nil
	return s
}

// rootShardRef names the RootShard of the installation.
var rootShardRef = operatorv1alpha1.RootShardReference{Reference: &corev1.LocalObjectReference{Name: "root"}}

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: namespace, UID: types.UID(name), Generation: 1}
}

// startOperator starts with empty trackers, like a new process.
func (e *env) startOperator() {
	e.cluster = apply.Cluster{Client: e.client}
	e.gate = gate.New(e.cluster, &e.health, func() time.Time { return e.clock })
}

func (e *env) setImage(image string) {
	for _, name := range workloads {
		e.images[name] = image
	}
}

// reconcile reconciles one component, and returns the result for RolledOut.
func (e *env) reconcile(name string) status.Result {
	e.t.Helper()
	kind := kindOf(e.owners[name])
	labels := desired.AppLabels(kind, e.owners[name].GetName())
	object := &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, OwnerReferences: desired.NewOwnerReferences(kind, e.owners[name])},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](2),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "server", Image: e.images[name]}}},
			},
		},
	}
	before := e.liveImage(name)
	report := status.Report{}
	deployment := workload.Deployment{
		Cluster: e.cluster, Gate: e.gate, Report: &report, Now: func() time.Time { return e.clock },
		Condition: operatorv1alpha1.ConditionAvailable, Namespace: namespace, Name: name,
	}
	for _, step := range []func(context.Context) error{
		deployment.Observe,
		func(ctx context.Context) error {
			return deployment.SetDesired(ctx, desired.Server{Deployment: object})
		},
		deployment.AdmitRollout,
		deployment.Apply,
	} {
		if err := step(e.t.Context()); err != nil {
			e.t.Fatalf("%s: %v", name, err)
		}
	}
	if before != "" && report.Get(operatorv1alpha1.ConditionAvailable).State != status.Satisfied {
		e.flapped = append(e.flapped, name)
	}
	if after := e.liveImage(name); after != before {
		e.updated = append(e.updated, name)
		e.updatePods(name, false)
	}
	return report.Get(operatorv1alpha1.ConditionRolledOut)
}

func kindOf(object client.Object) string {
	switch object.(type) {
	case *operatorv1alpha1.CacheServer:
		return "CacheServer"
	case *operatorv1alpha1.RootShard:
		return "RootShard"
	case *operatorv1alpha1.Shard:
		return "Shard"
	case *operatorv1alpha1.VirtualWorkspace:
		return "VirtualWorkspace"
	}
	return "FrontProxy"
}

func (e *env) deployment(name string) *appsv1.Deployment {
	e.t.Helper()
	live, err := apply.Get[appsv1.Deployment](e.t.Context(), e.client, namespace, name)
	if err != nil {
		e.t.Fatal(err)
	}
	return live
}

// liveImage is the image of the pods of a component, "" before there are any.
func (e *env) liveImage(name string) string {
	if live := e.deployment(name); live != nil {
		return live.Spec.Template.Spec.Containers[0].Image
	}
	return ""
}

// updatePods sets the status of the Deployment: all pods are new and ready, or the first new one is not ready and two old
// ones serve.
func (e *env) updatePods(name string, ready bool) {
	e.t.Helper()
	live := e.deployment(name)
	live.Status = appsv1.DeploymentStatus{ObservedGeneration: live.Generation, Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 2}
	if !ready {
		live.Status.Replicas, live.Status.UpdatedReplicas = 3, 1
	}
	if err := e.client.Status().Update(e.t.Context(), live); err != nil {
		e.t.Fatal(err)
	}
}

// createCrashingPod adds a pod of a Deployment whose container crashes.
func (e *env) createCrashingPod(name string) {
	e.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name + "-crashing", Namespace: namespace, Labels: e.deployment(name).Spec.Selector.MatchLabels}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "server", LastTerminationState: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: "starting\nError: broken\n"},
	}}}
	if err := e.client.Create(e.t.Context(), pod); err != nil {
		e.t.Fatal(err)
	}
}

// reconcileAll reconciles every component, in reverse order of the rollout.
func (e *env) reconcileAll(afterEach func(name string)) {
	e.clock = e.clock.Add(6 * time.Second)
	for _, name := range slices.Backward(workloads) {
		e.reconcile(name)
		afterEach(name)
	}
}

func (e *env) setAnnotation(name, key, value string) {
	e.t.Helper()
	owner := e.owners[name]
	owner.SetAnnotations(map[string]string{key: value})
	if err := e.client.Update(e.t.Context(), owner); err != nil {
		e.t.Fatal(err)
	}
}

func TestRolloutOrder(t *testing.T) {
	s := newEnv(t)
	s.setImage("example.com/atoll:v2")
	for range 3 * len(workloads) {
		rolling := 0
		s.reconcileAll(func(string) {})
		for _, name := range workloads {
			if live := s.deployment(name); live.Status.UpdatedReplicas < 2 {
				rolling++
				s.updatePods(name, true)
			}
		}
		if rolling > 1 {
			t.Fatalf("%d components roll out at once", rolling)
		}
	}
	if !slices.Equal(s.updated, workloads) {
		t.Errorf("rolled out in the order %v", s.updated)
	}
	if len(s.flapped) > 0 {
		t.Errorf("not available while old pods serve: %v", s.flapped)
	}
	for _, name := range workloads {
		if result := s.reconcile(name); result.State != status.Satisfied {
			t.Errorf("%s: %+v", name, result)
		}
	}
	if slot, _ := apply.Get[corev1.ConfigMap](t.Context(), s.client, namespace, "root-rollout"); slot == nil || slot.Data["component"] != "" {
		t.Errorf("the slot is not free: %v", slot)
	}
}

// TestObjectsWithoutPods checks that an object of any kind without a Deployment, because its spec is rejected or it waits for
// certificates, delays no rollout, and that no condition names it.
func TestObjectsWithoutPods(t *testing.T) {
	s := newEnv(t)
	cache := &operatorv1alpha1.CacheServer{ObjectMeta: meta(withoutPods + "-cache")}
	shard := &operatorv1alpha1.Shard{ObjectMeta: meta(withoutPods + "-shard"), Spec: operatorv1alpha1.ShardSpec{RootShard: rootShardRef}}
	shard.Spec.Cache.Ref = &corev1.LocalObjectReference{Name: cache.Name}
	views := &operatorv1alpha1.VirtualWorkspace{ObjectMeta: meta(withoutPods + "-views")}
	views.Spec.Target.ShardRef = &corev1.LocalObjectReference{Name: "alpha"}
	door := &operatorv1alpha1.FrontProxy{ObjectMeta: meta(withoutPods + "-door"), Spec: operatorv1alpha1.FrontProxySpec{RootShard: rootShardRef}}
	for _, object := range []client.Object{cache, shard, views, door} {
		if err := s.client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	s.setImage("example.com/atoll:v2")
	for range 3 * len(workloads) {
		s.reconcileAll(func(name string) {
			if result := s.reconcile(name); result.State == status.Stalled || strings.Contains(result.Message, withoutPods) {
				t.Errorf("%s: %+v", name, result)
			}
		})
		for _, name := range workloads {
			s.updatePods(name, true)
		}
	}
	if !slices.Equal(s.updated, workloads) {
		t.Errorf("rolled out in the order %v", s.updated)
	}
}

// TestSlotWithInvalidTime: a slot whose time cannot be read is not overdue from the start.
func TestSlotWithInvalidTime(t *testing.T) {
	s := newEnv(t)
	s.setImage("example.com/atoll:broken")
	for range 3 {
		s.reconcileAll(func(string) {})
	}
	slot, err := apply.Get[corev1.ConfigMap](t.Context(), s.client, namespace, "root-rollout")
	if err != nil || slot == nil || slot.Data["component"] != "cache-cache-server" {
		t.Fatalf("the slot is %v (%v)", slot, err)
	}
	slot.Data["since"] = "yesterday"
	if err := s.client.Update(t.Context(), slot); err != nil {
		t.Fatal(err)
	}
	if result := s.reconcile("cache-cache-server"); result.State != status.Waiting || result.Reason != rollout.ReasonRollingOut {
		t.Errorf("while there is time: %+v", result)
	}
	s.clock = s.clock.Add(11 * time.Minute)
	if result := s.reconcile("cache-cache-server"); result.State != status.Stalled || result.Reason != rollout.ReasonStopped {
		t.Errorf("after its time: %+v", result)
	}
}

func TestRolloutContinuesAfterOperatorRestart(t *testing.T) {
	s := newEnv(t)
	s.setImage("example.com/atoll:v2")
	for range 4 * len(workloads) {
		s.reconcileAll(func(string) { s.startOperator() }) // a new process after every step
		// A new process is delayed only by the time in which it gathers changes.
		s.reconcileAll(func(string) {})
		s.reconcileAll(func(string) {})
		for _, name := range workloads {
			s.updatePods(name, true)
		}
	}
	if !slices.Equal(s.updated, workloads) {
		t.Errorf("rolled out in the order %v", s.updated)
	}
}

func TestRolloutTimeout(t *testing.T) {
	s := newEnv(t)
	s.setAnnotation("root-kcp", operatorv1alpha1.AnnotationRolloutTimeout, "3m")
	s.setImage("example.com/atoll:broken")
	for range 5 {
		s.reconcileAll(func(string) {})
	}
	if result := s.reconcile("cache-cache-server"); result.State != status.Waiting || result.Reason != rollout.ReasonRollingOut {
		t.Errorf("while there is time: %+v", result)
	}
	s.createCrashingPod("cache-cache-server")
	if result := s.reconcile("cache-cache-server"); !strings.Contains(result.Message, "container server exits with code 1: Error: broken") {
		t.Errorf("while new pods crash: %+v", result)
	}
	s.clock = s.clock.Add(4 * time.Minute)
	if result := s.reconcile("cache-cache-server"); result.State != status.Stalled || result.Reason != rollout.ReasonStopped ||
		!strings.Contains(result.Message, "within 3m0s") || !strings.Contains(result.Message, "Error: broken") {
		t.Errorf("after its time: %+v", result)
	}
	if result := s.reconcile("root-kcp"); result.State != status.Waiting || result.Reason != rollout.ReasonStopped || !strings.Contains(result.Message, "CacheServer cache") {
		t.Errorf("behind it: %+v", result)
	}
	// Reverting the change rolls out immediately.
	s.setImage("example.com/atoll:v1")
	s.reconcile("cache-cache-server")
	s.updatePods("cache-cache-server", true)
	for range 2 {
		s.reconcileAll(func(string) {})
	}
	if want := []string{"cache-cache-server", "cache-cache-server"}; !slices.Equal(s.updated, want) {
		t.Errorf("rolled %v", s.updated)
	}
	if result := s.reconcile("cache-cache-server"); result.State != status.Satisfied {
		t.Errorf("at the end: %+v", result)
	}
}

// TestRolloutTimeoutWithClockSkew: the slot was acquired by an operator whose clock was an hour ahead. The next one
// applies the timeout to the new pods, not an hour more.
func TestRolloutTimeoutWithClockSkew(t *testing.T) {
	s := newEnv(t)
	s.setAnnotation("root-kcp", operatorv1alpha1.AnnotationRolloutTimeout, "3m")
	s.clock = s.clock.Add(time.Hour)
	s.setImage("example.com/atoll:broken")
	for range 3 {
		s.reconcileAll(func(string) {})
	}
	s.clock = s.clock.Add(-time.Hour)
	s.startOperator()
	s.reconcileAll(func(string) {})
	if result := s.reconcile("cache-cache-server"); result.State != status.Waiting || result.Reason != rollout.ReasonRollingOut {
		t.Errorf("while there is time: %+v", result)
	}
	s.clock = s.clock.Add(4 * time.Minute)
	if result := s.reconcile("cache-cache-server"); result.State != status.Stalled || result.Reason != rollout.ReasonStopped {
		t.Errorf("after its time: %+v", result)
	}
}

func TestRolloutHealthChecks(t *testing.T) {
	boom := errors.New("boom")
	for name, tc := range map[string]struct {
		health health
		reason string
	}{
		"of cache servers":                      {health{cache: boom}, rollout.ReasonNotReady},
		"of shards":                             {health{shard: boom}, rollout.ReasonNotReady},
		"of front proxies":                      {health{proxy: boom}, rollout.ReasonNotReady},
		"of servers of virtual workspaces":      {health{virtualWorkspace: boom}, rollout.ReasonNotReady},
		"of workspaces through the front proxy": {health{proxyProbe: boom}, rollout.ReasonProbeFails},
		"of workspaces":                         {health{probe: boom}, rollout.ReasonProbeFails},
		"of heartbeats":                         {health{heartbeats: boom}, rollout.ReasonLag},
		"of replication":                        {health{lag: time.Minute}, rollout.ReasonLag},
	} {
		t.Run(name, func(t *testing.T) {
			s := newEnv(t)
			s.health = tc.health
			s.setImage("example.com/atoll:v2")
			s.reconcileAll(func(string) {})
			s.reconcileAll(func(string) {})
			if result := s.reconcile("cache-cache-server"); result.Reason != tc.reason || len(s.updated) != 0 {
				t.Errorf("got %+v, rolled %v", result, s.updated)
			}
			s.health = health{}
			s.reconcileAll(func(string) {})
			if len(s.updated) != 1 {
				t.Errorf("healthy again, rolled %v", s.updated)
			}
		})
	}
}

// TestImmediateRollout checks that pods that are replaced without the slot are reported like others, while the old ones are available.
func TestImmediateRollout(t *testing.T) {
	s := newEnv(t)
	s.setAnnotation("alpha-shard-kcp", operatorv1alpha1.AnnotationRolloutNow, "true")
	s.setImage("example.com/atoll:v2")
	s.reconcile("alpha-shard-kcp")
	if result := s.reconcile("alpha-shard-kcp"); result.Reason != rollout.ReasonRollingOut || !strings.Contains(result.Message, "1 of 2 pods") {
		t.Errorf("while pods are replaced: %+v", result)
	}
	s.updatePods("alpha-shard-kcp", true)
	if result := s.reconcile("alpha-shard-kcp"); result.State != status.Satisfied {
		t.Errorf("afterwards: %+v", result)
	}
	if len(s.flapped) > 0 || !slices.Equal(s.updated, []string{"alpha-shard-kcp"}) {
		t.Errorf("rolled %v, not available: %v", s.updated, s.flapped)
	}
}

func TestPausedRollout(t *testing.T) {
	s := newEnv(t)
	s.setAnnotation("root-kcp", operatorv1alpha1.AnnotationPauseRollout, "true")
	s.setImage("example.com/atoll:v2")
	for range 3 {
		s.reconcileAll(func(string) {})
	}
	if result := s.reconcile("alpha-shard-kcp"); result.Reason != rollout.ReasonPaused || len(s.updated) != 0 {
		t.Errorf("got %+v, rolled %v", result, s.updated)
	}
	budgets := &policyv1.PodDisruptionBudgetList{}
	if err := s.client.List(t.Context(), budgets); err != nil || len(budgets.Items) != len(workloads) {
		t.Errorf("%d components have %d disruption budgets: %v", len(workloads), len(budgets.Items), err)
	}
	s.setAnnotation("root-kcp", operatorv1alpha1.AnnotationPauseRollout, "false")
	s.reconcileAll(func(string) {})
	if !slices.Equal(s.updated, workloads[:1]) {
		t.Errorf("after the pause, rolled %v", s.updated)
	}
}
