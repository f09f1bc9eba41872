package binding

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestReserve(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	early := metav1.NewTime(now.Add(time.Second))
	widgets := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	for name, tc := range map[string]struct {
		held    reservations
		want    string
		changed bool
		refused bool
	}{
		"an unreserved resource":             {reservations{}, `{"widgets.example.com":{"c":true,"e":"2026-01-01T00:01:00Z"}}`, true, false},
		"reserved for a binding":             {reservations{"widgets.example.com": {Binding: "b"}}, `{"widgets.example.com":{"n":"b"}}`, false, true},
		"reserved for a definition":          {reservations{"widgets.example.com": {Definition: true}}, `{"widgets.example.com":{"c":true}}`, false, false},
		"an expiring reservation is renewed": {reservations{"widgets.example.com": {Definition: true, Expiry: &early}}, `{"widgets.example.com":{"c":true,"e":"2026-01-01T00:01:00Z"}}`, true, false},
		"another resource is reserved":       {reservations{"widgets": {Binding: "b"}}, `{"widgets":{"n":"b"},"widgets.example.com":{"c":true,"e":"2026-01-01T00:01:00Z"}}`, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			changed, err := tc.held.reserve(widgets, now)
			if changed != tc.changed || errors.Is(err, ErrReserved) != tc.refused || (err != nil) != tc.refused {
				t.Errorf("changed %v, %v", changed, err)
			}
			if got := tc.held.String(); got != tc.want {
				t.Errorf("reservations %s", got)
			}
		})
	}
}
