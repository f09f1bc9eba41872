package v1alpha1

import (
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type object struct{ conditions Conditions }

func (o *object) GetConditions() Conditions  { return o.conditions }
func (o *object) SetConditions(c Conditions) { o.conditions = c }

var (
	early = metav1.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	late  = metav1.Date(2026, 1, 2, 0, 0, 0, 987654321, time.UTC)
)

func TestConditionsAreSortedWithReadyFirst(t *testing.T) {
	var o object
	for _, conditionType := range []Type{"B", Ready, "A", "Z"} {
		MarkTrue(&o, conditionType)
	}
	var got []Type
	for _, condition := range o.conditions {
		got = append(got, condition.Type)
	}
	if want := []Type{Ready, "A", "B", "Z"}; !reflect.DeepEqual(got, want) {
		t.Errorf("types = %v, want %v", got, want)
	}
}

func TestLastTransitionTime(t *testing.T) {
	first := Condition{Type: "A", Status: corev1.ConditionFalse, Severity: SeverityInfo, Reason: "R", Message: "m", LastTransitionTime: early}
	for name, tc := range map[string]struct {
		change  func(*Condition)
		changed bool
	}{
		"not if nothing changes":     {func(*Condition) {}, false},
		"if the status changes":      {func(c *Condition) { c.Status = corev1.ConditionUnknown }, true},
		"if the severity changes":    {func(c *Condition) { c.Severity = SeverityError }, true},
		"if the reason changes":      {func(c *Condition) { c.Reason = "S" }, true},
		"if only the message does":   {func(c *Condition) { c.Message = "n" }, true},
		"if it becomes true at last": {func(c *Condition) { c.Status = corev1.ConditionTrue }, true},
	} {
		t.Run(name, func(t *testing.T) {
			var o object
			Set(&o, first)
			second := first
			second.LastTransitionTime = late
			tc.change(&second)
			Set(&o, second)
			want := early.Time
			if tc.changed {
				want = late.Truncate(time.Second)
			}
			if got := o.conditions[0].LastTransitionTime.Time; !got.Equal(want) {
				t.Errorf("time = %s, want %s", got, want)
			}
		})
	}
}

func TestSetNormalizes(t *testing.T) {
	condition := Condition{Type: "A", Severity: SeverityError, Reason: "R", Message: "m", LastTransitionTime: early}
	for status, want := range map[corev1.ConditionStatus]Condition{
		corev1.ConditionTrue:    {Message: "m"},
		corev1.ConditionUnknown: {Reason: "R", Message: "m"},
		corev1.ConditionFalse:   {Severity: SeverityError, Reason: "R", Message: "m"},
	} {
		var o object
		condition.Status = status
		Set(&o, condition)
		want.Type, want.Status, want.LastTransitionTime = "A", status, early
		if !reflect.DeepEqual(*Get(&o, "A"), want) {
			t.Errorf("%s: %+v, want %+v", status, *Get(&o, "A"), want)
		}
	}
}

func TestSetDoesNotModifyList(t *testing.T) {
	var cached object
	MarkFalse(&cached, "A", "R", SeverityInfo, "m")
	copied := object{conditions: cached.conditions}
	MarkTrue(&copied, "A")
	Delete(&copied, "A")
	if !IsFalse(&cached, "A") {
		t.Error("what shares the list, such as a watch cache, saw the change")
	}
}

func TestSummary(t *testing.T) {
	yes := Condition{Type: "A", Status: corev1.ConditionTrue}
	unknown := Condition{Type: "B", Status: corev1.ConditionUnknown, Reason: "U"}
	info := Condition{Type: "C", Status: corev1.ConditionFalse, Severity: SeverityInfo, Reason: "I"}
	warning := Condition{Type: "D", Status: corev1.ConditionFalse, Severity: SeverityWarning, Reason: "W"}
	failure := Condition{Type: "E", Status: corev1.ConditionFalse, Severity: SeverityError, Reason: "E"}
	other := Condition{Type: "F", Status: corev1.ConditionFalse, Severity: SeverityError, Reason: "F"}
	for name, tc := range map[string]struct {
		conditions Conditions
		only       []Type
		status     corev1.ConditionStatus
		reason     string
	}{
		"nothing to summarise leaves Ready out":    {nil, nil, "", ""},
		"true wins over unknown":                   {Conditions{yes, unknown}, nil, corev1.ConditionTrue, ""},
		"unknown alone is unknown":                 {Conditions{unknown}, nil, corev1.ConditionUnknown, "U"},
		"information wins over true":               {Conditions{yes, info}, nil, corev1.ConditionFalse, "I"},
		"a warning wins over information":          {Conditions{info, warning}, nil, corev1.ConditionFalse, "W"},
		"an error wins over all":                   {Conditions{failure, yes, unknown, info, warning}, nil, corev1.ConditionFalse, "E"},
		"the first by type speaks for its equals":  {Conditions{other, failure}, nil, corev1.ConditionFalse, "E"},
		"only the given types count":               {Conditions{yes, failure}, []Type{"A"}, corev1.ConditionTrue, ""},
		"an old Ready does not count for the new":  {Conditions{yes, {Type: Ready, Status: corev1.ConditionFalse, Severity: SeverityError}}, nil, corev1.ConditionTrue, ""},
		"types that are absent leave Ready as was": {Conditions{yes}, []Type{"X"}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := object{conditions: tc.conditions}
			SetSummary(&o, tc.only...)
			var status corev1.ConditionStatus
			if ready := Get(&o, Ready); ready != nil {
				status = ready.Status
			}
			if status != tc.status || GetReason(&o, Ready) != tc.reason {
				t.Errorf("Ready is %q with reason %q, want %q, %q", status, GetReason(&o, Ready), tc.status, tc.reason)
			}
		})
	}
}
