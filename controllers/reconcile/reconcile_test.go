package reconcile_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/internal/memory"
	"github.com/atoll-dev/atoll/controllers/reconcile"
	"github.com/atoll-dev/atoll/controllers/status"
)

// scope is a kind with three steps.
type scope struct {
	object *operatorv1alpha1.CacheServer
	report *status.Report
	errors map[string]error // by step
	ran    *[]string
}

func (s *scope) Observe(context.Context) error { return nil }

func (s *scope) Steps() []reconcile.Step {
	step := func(name string) reconcile.Step {
		return reconcile.Step{Name: name, Run: func(context.Context) error {
			*s.ran = append(*s.ran, name)
			return s.errors[name]
		}}
	}
	return []reconcile.Step{step("a"), step("b"), step("c")}
}

func (s *scope) SetStatus() { s.object.Status.Conditions = s.report.Conditions(nil, 1) }

// newReconciler reconciles CacheServers by a scope with these errors, and records the steps that ran.
func newReconciler(c client.Client, failures map[string]error, recorder events.EventRecorder, ran *[]string) *reconcile.Reconciler[*operatorv1alpha1.CacheServer] {
	return &reconcile.Reconciler[*operatorv1alpha1.CacheServer]{
		Config:  reconcile.Config{Cluster: apply.Cluster{Client: c}, Recorder: recorder},
		Watches: reconcile.Watches[*operatorv1alpha1.CacheServer]{For: &operatorv1alpha1.CacheServer{}},
		NewScope: func(object *operatorv1alpha1.CacheServer, report *status.Report) reconcile.Scope {
			return &scope{object: object, report: report, errors: failures, ran: ran}
		},
	}
}

func newCacheServer() *operatorv1alpha1.CacheServer {
	return &operatorv1alpha1.CacheServer{ObjectMeta: metav1.ObjectMeta{Name: "cache", Namespace: "kcp"}}
}

var request = ctrl.Request{NamespacedName: client.ObjectKeyFromObject(newCacheServer())}

func TestSteps(t *testing.T) {
	boom := errors.New("boom")
	for name, tc := range map[string]struct {
		errors map[string]error // by step
		ran    []string
		err    error
	}{
		"run in order":                       {nil, []string{"a", "b", "c"}, nil},
		"end at a failure":                   {map[string]error{"b": boom}, []string{"a", "b"}, boom},
		"end without one where a step stops": {map[string]error{"b": reconcile.ErrStop}, []string{"a", "b"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var ran []string
			_, err := newReconciler(memory.NewClient(t, newCacheServer()), tc.errors, events.NewFakeRecorder(10), &ran).Reconcile(t.Context(), request)
			if !errors.Is(err, tc.err) || !slices.Equal(ran, tc.ran) {
				t.Errorf("ran %v, %v", ran, err)
			}
		})
	}
}

func TestStatus(t *testing.T) {
	boom := errors.New("boom")
	for name, tc := range map[string]struct {
		err   error // of a step
		write error // of the status
		event bool
	}{
		"is written, with an event for its change": {nil, nil, true},
		"is written after a failure, too":          {boom, nil, true},
		"that is not written is no event":          {nil, boom, false},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := interceptor.NewClient(memory.NewClient(t, newCacheServer()).(client.WithWatch), interceptor.Funcs{
				SubResourcePatch: func(ctx context.Context, c client.Client, _ string, object client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
					if tc.write != nil {
						return tc.write
					}
					return c.Status().Patch(ctx, object, patch, opts...)
				},
			})
			recorder := events.NewFakeRecorder(10)
			var ran []string
			_, err := newReconciler(cluster, map[string]error{"c": tc.err}, recorder, &ran).Reconcile(t.Context(), request)
			if want := errors.Join(tc.err, tc.write); (err == nil) != (want == nil) {
				t.Errorf("got %v, want %v", err, want)
			}
			written := &operatorv1alpha1.CacheServer{}
			if err := cluster.Get(t.Context(), request.NamespacedName, written); err != nil {
				t.Fatal(err)
			}
			if (len(written.Status.Conditions) > 0) != (tc.write == nil) {
				t.Errorf("conditions are %v", written.Status.Conditions)
			}
			if recorded := len(recorder.Events) > 0; recorded != (tc.event && tc.err == nil) {
				t.Errorf("events: %v", recorded)
			}
		})
	}
}

func TestReadError(t *testing.T) {
	cluster := interceptor.NewClient(memory.NewClient(t).(client.WithWatch), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errors.New("boom")
		},
	})
	if _, err := newReconciler(cluster, nil, nil, nil).Reconcile(t.Context(), request); !errors.Is(err, reconcile.ErrRead) {
		t.Errorf("got %v", err)
	}
}
