package status_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/status"
)

func TestSummary(t *testing.T) {
	satisfied := status.OK("A", "Good", "good")
	waiting := status.Wait("B", "Slow", "waiting for b")
	stalled := status.Stall("C", "Wrong", "correct c")
	warning := status.Warn("D", "Less", "d is ignored")
	for name, tc := range map[string]struct {
		results                     []status.Result
		err                         error
		ready, reconciling, stalled string // status/reason
		message                     string // of Ready
	}{
		"satisfied results are ready":            {[]status.Result{satisfied}, nil, "True/AsWanted", "False/NothingToDo", "False/NotStalled", "everything"},
		"a waiting result is reconciling":        {[]status.Result{satisfied, waiting}, nil, "False/Slow", "True/Slow", "False/NotStalled", "waiting for b"},
		"stalled takes precedence over waiting":  {[]status.Result{waiting, stalled}, nil, "False/Wrong", "False/NeedsUser", "True/Wrong", "correct c"},
		"a warning does not prevent ready":       {[]status.Result{warning, satisfied}, nil, "True/AsWanted", "False/NothingToDo", "False/NotStalled", "see condition D"},
		"an error is retried":                    {[]status.Result{satisfied}, errors.New("boom"), "False/Retrying", "True/Retrying", "False/NotStalled", "boom"},
		"stalled takes precedence over an error": {[]status.Result{stalled}, errors.New("boom"), "False/Wrong", "False/NeedsUser", "True/Wrong", "correct c"},
	} {
		t.Run(name, func(t *testing.T) {
			report := status.Report{Transient: tc.err}
			for _, result := range tc.results {
				report.Set(result)
			}
			conditions := report.Conditions(nil, 7)
			for conditionType, want := range map[string]string{"Ready": tc.ready, "Reconciling": tc.reconciling, "Stalled": tc.stalled} {
				condition := meta.FindStatusCondition(conditions, conditionType)
				if have := string(condition.Status) + "/" + condition.Reason; have != want {
					t.Errorf("%s is %s, want %s", conditionType, have, want)
				}
				if condition.ObservedGeneration != 7 {
					t.Errorf("%s observed generation %d", conditionType, condition.ObservedGeneration)
				}
			}
			if message := meta.FindStatusCondition(conditions, "Ready").Message; !strings.Contains(message, tc.message) {
				t.Errorf("the message of Ready is %q, want %q", message, tc.message)
			}
		})
	}
}

func TestConditionsAreStable(t *testing.T) {
	report := status.Report{}
	report.Set(status.Wait("B", "Slow", "waiting"))
	first := report.Conditions(nil, 1)
	if events := status.Transitions(first, report.Conditions(first, 1)); len(events) != 0 {
		t.Errorf("an unchanged report has events: %v", events)
	}
	report.Set(status.Wait("B", "Slow", "waiting still"))
	second := report.Conditions(first, 1)
	if condition := meta.FindStatusCondition(second, "B"); condition.Message != "waiting still" {
		t.Errorf("a new message is not written: %q", condition.Message)
	}
	if first[0].LastTransitionTime != second[0].LastTransitionTime {
		t.Error("a new message counts as a transition")
	}
}

func TestTransitions(t *testing.T) {
	report := func(results ...status.Result) []metav1.Condition {
		r := status.Report{}
		for _, result := range results {
			r.Set(result)
		}
		return r.Conditions(nil, 1)
	}
	good, bad, worse := report(status.OK("A", "Good", "good")), report(status.Wait("A", "Slow", "slow")), report(status.Stall("A", "Wrong", "wrong"))
	for name, tc := range map[string]struct {
		before, after []metav1.Condition
		want          string
	}{
		"becoming ready":           {bad, good, "Normal A,Normal Ready"},
		"becoming not ready":       {good, bad, "Warning NotReady"},
		"becoming stalled":         {bad, worse, "Warning Wrong"},
		"becoming stalled at once": {nil, worse, "Warning Wrong"},
		"the first reconcile":      {nil, bad, ""},
		"a reference is missing":   {nil, report(status.Wait("A", operatorv1alpha1.ReasonReferenceNotFound, "x")), "Warning ReferenceNotFound"},
		"no change":                {worse, worse, ""},
		"an end of being stalled":  {worse, bad, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var have []string
			for _, event := range status.Transitions(tc.before, tc.after) {
				have = append(have, event.Type+" "+event.Reason)
			}
			if got := strings.Join(have, ","); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestDeploymentResult(t *testing.T) {
	live := func(generation, observed int64, want, updated, ready, total int32) *appsv1.Deployment {
		return &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: "root-kcp", Namespace: "kcp", Generation: generation},
			Spec: appsv1.DeploymentSpec{
				Replicas: ptr.To(want), Selector: &metav1.LabelSelector{},
				Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: "example.com/atoll:v3"}}}},
			},
			Status: appsv1.DeploymentStatus{ObservedGeneration: observed, UpdatedReplicas: updated, ReadyReplicas: ready, Replicas: total},
		}
	}
	const up, unavailable, none = operatorv1alpha1.ReasonReplicasUp, operatorv1alpha1.ReasonReplicasUnavailable, operatorv1alpha1.ReasonDeploymentUnavailable
	for name, tc := range map[string]struct {
		live    *appsv1.Deployment
		reason  string // of Available
		old     bool   // pods of an older revision exist
		rollout string // part of the message; "" if it is complete
		version string
	}{
		"none yet": {live: nil, reason: none},
		"all pods of the newest revision are ready": {live(2, 2, 2, 2, 2, 2), up, false, "", "v3"},
		"a change that is not observed yet":         {live(2, 1, 2, 2, 2, 2), up, true, "is being updated", ""},
		"a Deployment that is not observed yet":     {live(1, 0, 2, 0, 0, 0), unavailable, false, "is being updated", ""},
		"old pods serve until the new ones do":      {live(2, 2, 2, 1, 2, 3), up, true, "1 of 2 pods of Deployment root-kcp run the newest revision, 2 pods are ready", ""},
		"an old pod is still there":                 {live(2, 2, 2, 2, 3, 3), up, true, "2 of 2 pods", ""},
		"a pod is not ready":                        {live(2, 2, 2, 2, 1, 2), unavailable, false, "1 pods are ready", "v3"},
		"an old and a new pod are not ready":        {live(2, 2, 2, 1, 1, 3), unavailable, true, "1 of 2 pods", ""},
		"no replicas are desired":                   {live(2, 2, 0, 0, 0, 0), up, false, "", "v3"},
	} {
		t.Run(name, func(t *testing.T) {
			result := status.DeploymentResult(operatorv1alpha1.ConditionAvailable, "root-kcp", tc.live, status.PodProblem{}, time.Time{})
			if result.Reason != tc.reason || (result.State == status.Satisfied) != (tc.reason == up) {
				t.Errorf("got %+v", result)
			}
			if version := status.Version(tc.live); version != tc.version {
				t.Errorf("version is %q, want %q", version, tc.version)
			}
			if tc.live == nil {
				return
			}
			if message := status.RolloutMessage(tc.live, status.PodProblem{}); (message == "") != (tc.rollout == "") || !strings.Contains(message, tc.rollout) {
				t.Errorf("the rollout is %q, want %q", message, tc.rollout)
			}
			if old := status.HasOldPods(tc.live); old != tc.old {
				t.Errorf("old pods: %t, want %t", old, tc.old)
			}
		})
	}
}

// TestStalledPods checks that pods that do not become ready are reported with their problem, and require the user after the deadline.
func TestStalledPods(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	overdue := appsv1.DeploymentCondition{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse, Reason: "ProgressDeadlineExceeded", Message: "timed out progressing"}
	quota := appsv1.DeploymentCondition{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Message: "exceeded quota"}
	crash := func(since time.Duration) status.PodProblem {
		return status.PodProblem{Message: "container kcp exits with code 1", Since: now.Add(-since)}
	}
	for name, tc := range map[string]struct {
		ready      int32
		conditions []appsv1.DeploymentCondition
		problem    status.PodProblem
		state      status.State
		text       string
	}{
		"pods that start":                          {1, nil, status.PodProblem{}, status.Waiting, "1 of 2 pods"},
		"pods that crash":                          {1, nil, crash(time.Minute), status.Waiting, "1 of 2 pods of Deployment root-kcp are ready: container kcp exits with code 1; see"},
		"pods that crash after they were ready":    {1, nil, crash(11 * time.Minute), status.Stalled, "exits with code 1; see"},
		"pods that never became ready":             {1, []appsv1.DeploymentCondition{overdue}, status.PodProblem{}, status.Stalled, "timed out progressing"},
		"pods that exceed a quota":                 {0, []appsv1.DeploymentCondition{quota}, status.PodProblem{}, status.Waiting, "exceeded quota"},
		"new pods that crash while old ones serve": {2, []appsv1.DeploymentCondition{overdue}, crash(time.Hour), status.Satisfied, "all 2 pods are ready"},
	} {
		t.Run(name, func(t *testing.T) {
			live := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "root-kcp", Namespace: "kcp"}}
			live.Spec.Replicas, live.Spec.Selector = ptr.To[int32](2), &metav1.LabelSelector{}
			live.Status = appsv1.DeploymentStatus{ReadyReplicas: tc.ready, Conditions: tc.conditions}
			result := status.DeploymentResult(operatorv1alpha1.ConditionAvailable, live.Name, live, tc.problem, now)
			if result.State != tc.state || !strings.Contains(result.Message, tc.text) {
				t.Errorf("got %+v", result)
			}
		})
	}
}
