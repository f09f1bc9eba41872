package ladder_test

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
	"github.com/atoll-dev/atoll/controllers/ladder"
	"github.com/atoll-dev/atoll/controllers/status"
)

func TestClimb(t *testing.T) {
	boom := errors.New("boom")
	for sentence, tc := range map[string]struct {
		ends map[string]error // by step
		took []string
		err  error
	}{
		"takes all steps in order":            {nil, []string{"a", "b", "c"}, nil},
		"ends at a failure":                   {map[string]error{"b": boom}, []string{"a", "b"}, boom},
		"ends without one where a step stops": {map[string]error{"b": ladder.ErrStop}, []string{"a", "b"}, nil},
	} {
		t.Run(sentence, func(t *testing.T) {
			var took []string
			step := func(name string) func(context.Context, *[]string) error {
				return func(_ context.Context, took *[]string) error {
					*took = append(*took, name)
					return tc.ends[name]
				}
			}
			err := ladder.Climb(t.Context(), &took, step("a"), step("b"), step("c"))
			if !errors.Is(err, tc.err) || !slices.Equal(took, tc.took) {
				t.Errorf("took %v, %v", took, err)
			}
		})
	}
}

func TestEnd(t *testing.T) {
	boom := errors.New("boom")
	for sentence, tc := range map[string]struct {
		err   error // of the ladder
		write error // of the status
		event bool
	}{
		"writes the status and tells what became of it": {nil, nil, true},
		"writes the status of a failure, too":           {boom, nil, true},
		"tells nothing that is not written":             {nil, boom, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			before := &operatorv1alpha1.CacheServer{ObjectMeta: metav1.ObjectMeta{Name: "cache", Namespace: "kcp"}}
			cluster := interceptor.NewClient(memory.NewClient(t, before).(client.WithWatch), interceptor.Funcs{
				SubResourcePatch: func(ctx context.Context, c client.Client, _ string, object client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
					if tc.write != nil {
						return tc.write
					}
					return c.Status().Patch(ctx, object, patch, opts...)
				},
			})
			if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(before), before); err != nil {
				t.Fatal(err)
			}
			after := before.DeepCopy()
			report := &status.Report{Transient: tc.err}
			after.Status.Conditions = report.Conditions(nil, 1)
			recorder := events.NewFakeRecorder(10)
			look := ladder.Look{Cluster: apply.Cluster{Client: cluster}, Recorder: recorder, Before: before, Object: after}
			_, err := look.End(t.Context(), report, tc.err)
			if want := errors.Join(tc.err, tc.write); (err == nil) != (want == nil) {
				t.Errorf("got %v, want %v", err, want)
			}
			written := &operatorv1alpha1.CacheServer{}
			if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(before), written); err != nil {
				t.Fatal(err)
			}
			if (len(written.Status.Conditions) > 0) != (tc.write == nil) {
				t.Errorf("conditions are %v", written.Status.Conditions)
			}
			if told := len(recorder.Events) > 0; told != (tc.event && tc.err == nil) {
				t.Errorf("events: %v", told)
			}
		})
	}
}

func TestAnObjectThatCannotBeReadIsToldApart(t *testing.T) {
	cluster := interceptor.NewClient(memory.NewClient(t).(client.WithWatch), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errors.New("boom")
		},
	})
	_, err := ladder.Read[operatorv1alpha1.Shard](t.Context(), apply.Cluster{Client: cluster}, ctrl.Request{})
	if !errors.Is(err, ladder.ErrRead) {
		t.Errorf("got %v", err)
	}
}
