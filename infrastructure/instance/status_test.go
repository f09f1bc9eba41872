package instance

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
)

const (
	ready        = infrastructurev1alpha1.PhaseReady
	provisioning = infrastructurev1alpha1.PhaseProvisioning
	failed       = infrastructurev1alpha1.PhaseFailed
)

// written returns an instance of a generation whose status was written for each of the states, one minute apart.
func written(generation int64, states ...State) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetGeneration(generation)
	for i, state := range states {
		at := start.Add(time.Duration(i) * time.Minute)
		object.Object["status"], _ = newStatus(object, settle(object, state, time.Hour, at), connection{}, at)
	}
	return object
}

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestPhasesDoNotAlternate(t *testing.T) {
	quota := State{Phase: failed, Reason: "QuotaExceeded"}
	edited := written(1, State{Phase: failed})
	edited.SetGeneration(2)
	for name, test := range map[string]struct {
		object *unstructured.Unstructured
		after  time.Duration
		state  State
		phase  infrastructurev1alpha1.InstancePhase
		reason string
	}{
		"an instance without status is provisioned":                     {written(1), 0, State{Phase: provisioning}, provisioning, ""},
		"a failure stays while it is tried again":                       {written(1, State{Phase: failed}), time.Minute, State{Phase: provisioning}, failed, "Failed"},
		"a failure ends when the instance is ready":                     {written(1, State{Phase: failed}), time.Minute, State{Phase: ready}, ready, ""},
		"a failure ends when the spec changes":                          {edited, time.Minute, State{Phase: provisioning}, provisioning, ""},
		"a failure with a reason of its own ends with this reason":      {written(1, quota), time.Minute, State{Phase: provisioning}, provisioning, ""},
		"what is provisioned for too long has failed":                   {written(1, State{Phase: provisioning}), time.Hour, State{Phase: provisioning}, failed, "ProvisioningTimedOut"},
		"what is provisioned for long enough has not":                   {written(1, State{Phase: provisioning}), time.Hour - time.Second, State{Phase: provisioning}, provisioning, ""},
		"what has timed out stays so":                                   {written(1, State{Phase: failed, Reason: "ProvisioningTimedOut"}), time.Minute, State{Phase: provisioning}, failed, "ProvisioningTimedOut"},
		"the time of an instance that was ready begins when it is not":  {written(1, State{Phase: ready}, State{Phase: provisioning}), time.Hour, State{Phase: provisioning}, provisioning, ""},
		"an instance that is not ready any more is provisioned at once": {written(1, State{Phase: ready}), 2 * time.Hour, State{Phase: provisioning}, provisioning, ""},
	} {
		got := settle(test.object, test.state, time.Hour, start.Add(test.after))
		if got.Phase != test.phase || got.Reason != test.reason {
			t.Errorf("%s: got %s %s", name, got.Phase, got.Reason)
		}
	}
	if got := settle(written(1, State{Phase: provisioning}), State{Phase: provisioning}, time.Hour, start.Add(time.Minute)); got.RecheckAfter != 59*time.Minute {
		t.Errorf("an instance that nobody looks at is looked at after %s", got.RecheckAfter)
	}
}

func TestANewSpecHasItsOwnTime(t *testing.T) {
	object := written(1, State{Phase: provisioning})
	object.SetGeneration(2)
	object.Object["status"], _ = newStatus(object, State{Phase: provisioning}, connection{}, start.Add(50*time.Minute))
	if got := settle(object, State{Phase: provisioning}, time.Hour, start.Add(100*time.Minute)); got.Phase != provisioning {
		t.Errorf("got %s", got.Phase)
	}
}

func TestOutputsStayWhileAnInstanceIsNotReady(t *testing.T) {
	object := written(1, State{Phase: ready, Outputs: map[string]any{"endpoint": "a", "phase": "forged", "connectionSecret": "forged"}}, State{Phase: provisioning})
	status := statusOf(object)
	if status["endpoint"] != "a" || status["phase"] != string(provisioning) || status["connectionSecret"] != nil {
		t.Errorf("got %v", status)
	}
	if _, changed := newStatus(object, State{Phase: provisioning}, connection{}, start.Add(time.Hour)); changed {
		t.Error("an unchanged state is written")
	}
	without, _ := newStatus(object, State{Phase: ready}, connection{}, start)
	if without["endpoint"] != nil {
		t.Errorf("an output that is gone is in %v", without)
	}
}

func TestUnavailableKeepsTheStatus(t *testing.T) {
	object := written(1, State{Phase: ready, Outputs: map[string]any{"endpoint": "a"}})
	status, changed := unavailableStatus(object, start.Add(time.Minute))
	condition := readyCondition(status)
	if !changed || status["phase"] != string(ready) || status["endpoint"] != "a" || condition.Status != metav1.ConditionUnknown || condition.Reason != reasonUnavailable {
		t.Errorf("got %v", status)
	}
	now := metav1.Now()
	object.SetDeletionTimestamp(&now)
	if status, _ := unavailableStatus(object, start); status["phase"] != string(infrastructurev1alpha1.PhaseDeleting) {
		t.Errorf("while it is deleted, got %v", status)
	}
}

func TestRemovalSaysWhy(t *testing.T) {
	object := written(1, State{Phase: ready})
	if got := removalState(object); got.Phase != infrastructurev1alpha1.PhaseDeleting {
		t.Errorf("an instance that its tenant deletes is %s", got.Phase)
	}
	if err := unstructured.SetNestedField(object.Object, string(infrastructurev1alpha1.PhaseTemplateRemoved), "status", "phase"); err != nil {
		t.Fatal(err)
	}
	status, changed := newStatus(object, removalState(object), connection{}, start)
	if !changed || readyCondition(status).Reason != reasonRemoved || status["phase"] != string(infrastructurev1alpha1.PhaseTemplateRemoved) {
		t.Errorf("an instance whose Template is removed has %v", status)
	}
}
