package shard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/etcd"
	"github.com/atoll-dev/atoll/controllers/internal/memory"
	"github.com/atoll-dev/atoll/controllers/reconcile"
	"github.com/atoll-dev/atoll/controllers/status"
	"github.com/atoll-dev/atoll/internal/drain"
	"github.com/atoll-dev/atoll/internal/golden"
	"github.com/atoll-dev/atoll/internal/rebalance"
)

// env is a Shard in an in-memory cluster, with an installation whose responses the test sets.
type env struct {
	t          *testing.T
	client     client.Client
	clock      time.Time
	calls      []string
	registered bool
	count      int
	err        error // of every request to the installation
	countErr   error // of the count of workspaces
	live       client.Reader

	progress drain.Progress
	found    rebalance.Decision
	drainErr error
	// migrations are the answers to one request after the other; without any there are none
	migrations [][]string
	running    int // moves that a stopped drain has to finish
	events     *events.FakeRecorder
}

func (e *env) Drain(context.Context, *operatorv1alpha1.RootShard, *operatorv1alpha1.Shard, time.Time) (drain.Progress, error) {
	e.calls = append(e.calls, "drain")
	return e.progress, errors.Join(e.err, e.drainErr)
}

func (e *env) StopDrain(context.Context, *operatorv1alpha1.RootShard, *operatorv1alpha1.Shard) (drain.Progress, error) {
	e.calls = append(e.calls, "stop")
	return drain.Progress{Moving: e.running}, errors.Join(e.err, e.drainErr)
}

func (e *env) Rebalance(_ context.Context, _ *operatorv1alpha1.RootShard, options rebalance.Options, _ time.Time) (rebalance.Decision, error) {
	e.calls = append(e.calls, fmt.Sprintf("rebalance %d%% max %d", options.Threshold, options.MaxConcurrent))
	if options.GiveUp {
		e.calls = append(e.calls, "give up")
	}
	return e.found, errors.Join(e.err, e.drainErr)
}

func (e *env) StopRebalancing(context.Context, *operatorv1alpha1.RootShard) (int, error) {
	e.calls = append(e.calls, "stop")
	return e.running, e.err
}

func (e *env) Migrations(context.Context, *operatorv1alpha1.RootShard, *operatorv1alpha1.Shard) ([]string, error) {
	if len(e.migrations) == 0 {
		return nil, e.err
	}
	names := e.migrations[0]
	e.migrations = e.migrations[1:]
	return names, e.err
}

func (e *env) Registered(context.Context, *operatorv1alpha1.RootShard, *operatorv1alpha1.Shard) (bool, error) {
	return e.registered, e.err
}

func (e *env) LogicalClusters(context.Context, *operatorv1alpha1.RootShard, *operatorv1alpha1.Shard) (int, error) {
	e.calls = append(e.calls, "count")
	return e.count, errors.Join(e.err, e.countErr)
}

func (e *env) Workspaces(context.Context, *operatorv1alpha1.RootShard) (int, error) {
	e.calls = append(e.calls, "count all")
	return e.count, e.err
}

func (e *env) CordonAll(context.Context, *operatorv1alpha1.RootShard) error {
	e.calls = append(e.calls, "cordon all")
	return e.err
}

func (e *env) Cordon(context.Context, *operatorv1alpha1.RootShard, *operatorv1alpha1.Shard) error {
	e.calls = append(e.calls, "cordon")
	return e.err
}

func (e *env) Unregister(context.Context, *operatorv1alpha1.RootShard, *operatorv1alpha1.Shard) error {
	e.calls = append(e.calls, "unregister")
	if e.err == nil {
		e.registered = false
	}
	return e.err
}

func newEnv(t *testing.T, objects ...client.Object) *env {
	t.Helper()
	return &env{t: t, clock: time.Now(), registered: true, client: memory.NewClient(t, objects...), events: events.NewFakeRecorder(100)}
}

func (e *env) config() reconcile.Config {
	return reconcile.Config{
		Cluster: apply.Cluster{Client: e.client}, Live: e.live, Recorder: e.events, Now: func() time.Time { return e.clock },
		Image:      desired.Image{Repository: "registry.example.com/atoll", Tag: "v1"},
		LookupHost: func(context.Context, string) ([]string, error) { return nil, &net.DNSError{IsNotFound: true} },
	}
}

// reconcile reconciles Shard alpha once.
func (e *env) reconcile() {
	e.t.Helper()
	r := NewShardReconciler(e.config(), e)
	request := ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "kcp", Name: "alpha"}}
	if _, err := r.Reconcile(e.t.Context(), request); err != nil {
		e.t.Fatal(err)
	}
}

// getShard reads Shard alpha; it is nil once the Shard is deleted.
func (e *env) getShard() *operatorv1alpha1.Shard {
	e.t.Helper()
	shard := &operatorv1alpha1.Shard{}
	err := e.client.Get(e.t.Context(), client.ObjectKey{Namespace: "kcp", Name: "alpha"}, shard)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		e.t.Fatal(err)
	}
	return shard
}

func newRootShard() *operatorv1alpha1.RootShard {
	return &operatorv1alpha1.RootShard{
		ObjectMeta: metav1.ObjectMeta{Name: "root", Namespace: "kcp", UID: "root"},
		Spec:       operatorv1alpha1.RootShardSpec{External: operatorv1alpha1.ExternalConfig{Hostname: "kcp.example.com", Port: 443}},
	}
}

func newShard(change func(*operatorv1alpha1.Shard)) *operatorv1alpha1.Shard {
	shard := &operatorv1alpha1.Shard{
		ObjectMeta: metav1.ObjectMeta{Name: "alpha", Namespace: "kcp", UID: "alpha"},
		Spec:       operatorv1alpha1.ShardSpec{RootShard: operatorv1alpha1.RootShardReference{Reference: &corev1.LocalObjectReference{Name: "root"}}},
	}
	if change != nil {
		change(shard)
	}
	return shard
}

func TestDeletion(t *testing.T) {
	force := func(shard *operatorv1alpha1.Shard) {
		shard.Annotations = map[string]string{operatorv1alpha1.AnnotationForceDelete: "true"}
	}
	for name, tc := range map[string]struct {
		change func(*operatorv1alpha1.Shard)
		env    func(*env)
		after  time.Duration // since the deletion
		text   string        // of the condition; "" once it is deleted
		calls  string
	}{
		"a shard without workspaces is deleted":        {calls: "cordon count unregister"},
		"a shard with one waits and counts":            {env: func(s *env) { s.count = 1 }, text: "deletion waits for 1 workspace on the shard", calls: "cordon count"},
		"a shard with several waits without limit":     {env: func(s *env) { s.count = 12 }, after: 24 * time.Hour, text: "12 workspaces", calls: "cordon count"},
		"a shard that was never registered is deleted": {env: func(s *env) { s.registered = false }},
		"a shard that does not answer waits":           {env: func(s *env) { s.err = errors.New("no connection") }, after: 24 * time.Hour, text: "no connection; repair it, or set the annotation operator.kcp.io/force-delete=true"},
		"in the foreground workspaces are not counted": {
			change: func(s *operatorv1alpha1.Shard) { s.Finalizers = append(s.Finalizers, metav1.FinalizerDeleteDependents) }, text: "the servers are created again", calls: "cordon"},
		"a migration to the shard holds what nobody counts": {
			env: func(s *env) { s.migrations = [][]string{{"team-a"}} }, text: "deletion waits for 1 LogicalClusterMigrations from or to the shard, which are finished first: team-a.", calls: "cordon count"},
		"so does one that has begun since the count": {env: func(s *env) { s.migrations = [][]string{nil, {"team-a"}} }, text: "finished first: team-a.", calls: "cordon count"},
		"force deletes workspaces, too":              {change: force, env: func(s *env) { s.count = 12 }, calls: "unregister"},
		"force waits for the root shard":             {change: force, env: func(s *env) { s.err = errors.New("no connection") }, text: "deletion is forced and waits 2m0s", calls: "unregister"},
		"force waits for a limited time":             {change: force, env: func(s *env) { s.err = errors.New("no connection") }, after: 3 * time.Minute, calls: "unregister"},
		"any other value of the annotation is ignored": {change: func(s *operatorv1alpha1.Shard) {
			s.Annotations = map[string]string{operatorv1alpha1.AnnotationForceDelete: "yes"}
		}, env: func(s *env) { s.count = 2 }, text: "2 workspaces", calls: "cordon count"},
		"a shard of an installation that waits for its workspaces waits, too": {
			change: func(s *operatorv1alpha1.Shard) { s.Spec.RootShard.Reference.Name = "waiting" }, env: func(s *env) { s.count = 12 },
			text: "12 workspaces", calls: "cordon count"},
		"a shard of an installation whose deletion is confirmed is deleted": {
			change: func(s *operatorv1alpha1.Shard) { s.Spec.RootShard.Reference.Name = "confirmed" }, env: func(s *env) { s.count = 12 }},
		"the installation was deleted first": {
			change: func(s *operatorv1alpha1.Shard) { s.Spec.RootShard.Reference.Name = "gone" }, env: func(s *env) { s.count = 12 }},
		"a shard of an installation whose keys are not known waits": {
			change: func(s *operatorv1alpha1.Shard) { s.Spec.RootShard.Reference.Name = "unknown" }, after: 24 * time.Hour,
			text: "waiting until RootShard unknown has found the keys of its certificate authorities"},
		"unless it is forced": {
			change: func(s *operatorv1alpha1.Shard) { s.Spec.RootShard.Reference.Name = "unknown"; force(s) }, calls: "unregister"},
		"a shard without an installation is deleted": {change: func(s *operatorv1alpha1.Shard) { s.Spec.RootShard.Reference = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			waiting := deletedRootShard("waiting", "")
			confirmed := deletedRootShard("confirmed", "true")
			unknown := newRootShard()
			unknown.Name, unknown.UID = "unknown", "unknown"
			unknown.Spec.Certificates.Rekey = []operatorv1alpha1.CertificateRekey{{CA: operatorv1alpha1.ClientCA, Generation: 2}}
			s := newEnv(t, newRootShard(), waiting, confirmed, unknown, newShard(func(shard *operatorv1alpha1.Shard) {
				shard.Finalizers = []string{operatorv1alpha1.FinalizerShard}
				if tc.change != nil {
					tc.change(shard)
				}
			}))
			if tc.env != nil {
				tc.env(s)
			}
			if err := s.client.Delete(t.Context(), s.getShard()); err != nil {
				t.Fatal(err)
			}
			s.clock = s.clock.Add(tc.after)
			s.reconcile()
			if calls := strings.Join(s.calls, " "); calls != tc.calls {
				t.Errorf("calls are %q, want %q", calls, tc.calls)
			}
			shard := s.getShard()
			if (shard == nil) != (tc.text == "") {
				t.Fatalf("gone: %t, want %t", shard == nil, tc.text == "")
			}
			if shard == nil {
				return
			}
			condition := meta.FindStatusCondition(shard.Status.Conditions, operatorv1alpha1.ConditionWorkspacesGone)
			if condition == nil || !strings.Contains(condition.Message, tc.text) || shard.Status.Phase != operatorv1alpha1.ShardPhaseDeleting {
				t.Errorf("phase %s, condition %+v", shard.Status.Phase, condition)
			}
		})
	}
}

func TestDeletionOfShardNamedLikeRootShard(t *testing.T) {
	shard := newShard(func(shard *operatorv1alpha1.Shard) { shard.Finalizers = []string{operatorv1alpha1.FinalizerShard} })
	root := newRootShard()
	root.Name, shard.Spec.RootShard.Reference.Name = "alpha", "alpha"
	s := newEnv(t, root, shard)
	if err := s.client.Delete(t.Context(), s.getShard()); err != nil {
		t.Fatal(err)
	}
	s.reconcile()
	if s.getShard() != nil || len(s.calls) > 0 {
		t.Errorf("exists: %t, calls %v", s.getShard() != nil, s.calls)
	}
}

func TestVolumeClaimDeletion(t *testing.T) {
	claim := func(name string, labels map[string]string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "kcp", Labels: labels}}
	}
	others := desired.AppLabels(desired.ComponentEtcd, "alpha") // of a RootShard or CacheServer of that name
	s := newEnv(t, newRootShard(), newShard(func(shard *operatorv1alpha1.Shard) { shard.Finalizers = []string{operatorv1alpha1.FinalizerShard} }),
		claim("own", etcd.ShardVolumeClaimLabels("alpha")), claim("others", others))
	s.count = 1
	if err := s.client.Delete(t.Context(), s.getShard()); err != nil {
		t.Fatal(err)
	}
	names := func() string {
		t.Helper()
		s.reconcile()
		var list corev1.PersistentVolumeClaimList
		if err := s.client.List(t.Context(), &list); err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, item := range list.Items {
			out = append(out, item.Name)
		}
		return strings.Join(out, " ")
	}
	if have := names(); have != "others own" {
		t.Errorf("while a workspace is there: %s", have)
	}
	s.count = 0
	if have := names(); have != "others" {
		t.Errorf("afterwards: %s", have)
	}
}

func TestConditions(t *testing.T) {
	for name, tc := range map[string]struct {
		change    func(*operatorv1alpha1.Shard)
		condition string
		text      string
	}{
		"a Shard without a RootShard is reported": {
			func(s *operatorv1alpha1.Shard) { s.Spec.RootShard.Reference = nil }, operatorv1alpha1.ConditionRootShard, "rootShard.ref.name is empty"},
		"a RootShard that does not exist is named": {
			func(s *operatorv1alpha1.Shard) { s.Spec.RootShard.Reference.Name = "missing" }, operatorv1alpha1.ConditionRootShard, "RootShard missing does not exist in namespace kcp"},
		"a CacheServer that does not exist is named": {
			func(s *operatorv1alpha1.Shard) { s.Spec.Cache.Ref = &corev1.LocalObjectReference{Name: "c"} }, operatorv1alpha1.ConditionSpecHonored, "CacheServer c, which cache.ref names, does not exist"},
		"a VirtualWorkspace that does not exist is named": {
			func(s *operatorv1alpha1.Shard) { s.Spec.KCPVirtualWorkspace = &corev1.LocalObjectReference{Name: "v"} }, operatorv1alpha1.ConditionSpecHonored, "VirtualWorkspace v, which kcpVirtualWorkspace names, does not exist"},
		"without certificates it waits": {nil, operatorv1alpha1.ConditionCertificatesReady, "certificates are not issued yet"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newEnv(t, newRootShard(), newShard(tc.change))
			s.reconcile()
			shard := s.getShard()
			condition := meta.FindStatusCondition(shard.Status.Conditions, tc.condition)
			if condition == nil || condition.Status != metav1.ConditionFalse || !strings.Contains(condition.Message, tc.text) {
				t.Errorf("got %+v", condition)
			}
			if len(shard.Finalizers) != 1 || shard.Status.Phase != operatorv1alpha1.ShardPhaseProvisioning {
				t.Errorf("finalizers %v, phase %s", shard.Finalizers, shard.Status.Phase)
			}
		})
	}
}

// TestSeveralMistakes checks that a Shard reports all mistakes of its spec together, including those that it would otherwise report one
// after the other.
func TestSeveralMistakes(t *testing.T) {
	withoutEtcd := func(s *operatorv1alpha1.Shard) {
		s.Spec.Etcd = &operatorv1alpha1.EtcdConfig{
			Endpoints: []string{"https://etcd-typo:2379"},
			TLSConfig: &operatorv1alpha1.EtcdTLSConfig{SecretRef: corev1.LocalObjectReference{Name: "etcd-client"}},
		}
	}
	for name, tc := range map[string]struct {
		change func(*operatorv1alpha1.Shard)
		reason string
		texts  []string
	}{
		"invalid fields": {func(s *operatorv1alpha1.Shard) {
			s.Spec.Etcd, s.Spec.ShardBaseURL = &operatorv1alpha1.EtcdConfig{TLSConfig: &operatorv1alpha1.EtcdTLSConfig{}}, "http://x"
		}, "InvalidSpec", []string{"etcd.endpoints is empty", "etcd.tlsConfig.secretRef.name is empty", `shardBaseURL is "http://x"`}},
		"references": {func(s *operatorv1alpha1.Shard) {
			s.Spec.Cache.Ref, s.Spec.KCPVirtualWorkspace = &corev1.LocalObjectReference{Name: "c"}, &corev1.LocalObjectReference{Name: "v"}
		}, operatorv1alpha1.ReasonReferenceNotFound, []string{"CacheServer c", "VirtualWorkspace v"}},
		"an etcd without a host, and its Secret, before there are certificates": {withoutEtcd, "EtcdNotFound", []string{"DNS does not know etcd-typo", "Secret etcd-client is missing"}},
		"a reference, and an etcd without a host": {func(s *operatorv1alpha1.Shard) {
			withoutEtcd(s)
			s.Spec.Cache.Ref = &corev1.LocalObjectReference{Name: "c"}
		}, operatorv1alpha1.ReasonReferenceNotFound, []string{"CacheServer c", "DNS does not know etcd-typo", "Secret etcd-client is missing"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newEnv(t, newRootShard(), newShard(tc.change))
			s.reconcile()
			condition := meta.FindStatusCondition(s.getShard().Status.Conditions, operatorv1alpha1.ConditionSpecHonored)
			if condition == nil || condition.Status != metav1.ConditionFalse || condition.Reason != tc.reason {
				t.Fatalf("got %+v", condition)
			}
			for _, text := range tc.texts {
				if strings.Count(condition.Message, text) != 1 {
					t.Errorf("got %q, want %q in it", condition.Message, text)
				}
			}
			if strings.Contains(condition.Message, "Secret alpha") || strings.Contains(condition.Message, "Secret root") {
				t.Errorf("got %q, which names what cert-manager creates", condition.Message)
			}
		})
	}
}

// TestSharedEtcd: a Shard whose etcd and prefix are those of an older one of another namespace gets no server.
func TestSharedEtcd(t *testing.T) {
	share := func(shard *operatorv1alpha1.Shard) {
		shard.Spec.Etcd = &operatorv1alpha1.EtcdConfig{Endpoints: []string{"https://etcd.example.com:2379"}}
	}
	younger := newShard(share)
	younger.CreationTimestamp = metav1.NewTime(time.Unix(1e9, 0))
	other := newShard(share)
	other.Namespace, other.Name, other.UID = "elsewhere", "beta", "beta"
	other.CreationTimestamp = metav1.NewTime(time.Unix(1e9-1, 0))
	s := newEnv(t, newRootShard(), younger, other)
	s.reconcile()
	condition := meta.FindStatusCondition(s.getShard().Status.Conditions, operatorv1alpha1.ConditionStalled)
	if condition == nil || condition.Status != metav1.ConditionTrue || condition.Reason != "EtcdInUse" || !strings.Contains(condition.Message, "Shard elsewhere/beta keeps its data in the same etcd") {
		t.Errorf("got %+v", condition)
	}
	if err := s.client.Delete(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	s.reconcile()
	if condition := meta.FindStatusCondition(s.getShard().Status.Conditions, operatorv1alpha1.ConditionStalled); condition.Status != metav1.ConditionFalse {
		t.Errorf("without the other one: %+v", condition)
	}
}

func TestValidateNames(t *testing.T) {
	for name, tc := range map[string]struct{ name, text string }{
		"an ordinary name":              {"alpha", ""},
		"the root shard's own":          {"root", "inside the installation the shard of RootShard main is called root"},
		"the RootShard's":               {"main", "have the names of those of its RootShard"},
		"a directory of the server's":   {"server", "would be in a directory"},
		"a dot":                         {"a.b", "contains a dot"},
		"the longest":                   {strings.Repeat("a", 27), ""},
		"one character more than that":  {strings.Repeat("a", 28), "has 28 characters and may have 27"},
		"the name of the shard's cache": {"cache", ""},
	} {
		t.Run(name, func(t *testing.T) {
			root := newRootShard()
			root.Name = "main"
			result := validateShard(newShard(func(s *operatorv1alpha1.Shard) { s.Name = tc.name }), root)
			if (result.State == status.Satisfied) != (tc.text == "") || !strings.Contains(result.Message, tc.text) {
				t.Errorf("got %+v", result)
			}
		})
	}
}

func TestFullShardSample(t *testing.T) {
	root := golden.Sample[operatorv1alpha1.RootShard](t, "full/rootshard.yaml")
	if result := validateShard(golden.Sample[operatorv1alpha1.Shard](t, "full/shard.yaml"), root); result.State != status.Satisfied {
		t.Errorf("got %+v", result)
	}
}
