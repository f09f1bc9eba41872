package binding

import (
	"errors"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func TestReservationsRoundTrip(t *testing.T) {
	const text = `{"a.example.io":{"n":"one"},"b.example.io":{"c":true,"e":"2026-05-01T12:00:00Z"},"configmaps":{"n":"two"}}`
	parsed, err := parseReservations(text)
	if err != nil {
		t.Fatal(err)
	}
	if got := parsed.String(); got != text {
		t.Errorf("got %s, want %s", got, text)
	}
	if parsed["a.example.io"].Binding != "one" || !parsed["b.example.io"].Definition || !parsed["b.example.io"].Expiry.Time.Equal(now) {
		t.Errorf("got %+v", parsed)
	}
	for _, invalid := range []string{"", "[]", "yes", `{"a":1}`} {
		if _, err := parseReservations(invalid); err == nil {
			t.Errorf("%q was parsed", invalid)
		}
	}
	if empty, err := parseReservations("null"); err != nil || empty == nil {
		t.Errorf("null is parsed as %v, %v", empty, err)
	}
}

func TestAcquire(t *testing.T) {
	core, widgets := schema.GroupResource{Resource: "configmaps"}, schema.GroupResource{Group: "example.io", Resource: "widgets"}
	current := reservations{"widgets.example.io": {Definition: true}}
	if !current.acquire(core, "one") || current["configmaps"].Binding != "one" {
		t.Errorf("an unreserved resource is not acquired: %v", current)
	}
	if !current.acquire(core, "one") || current.acquire(core, "two") || current.acquire(widgets, "one") {
		t.Errorf("a reserved resource is acquired: %v", current)
	}
}

func TestPrune(t *testing.T) {
	expires := func(in time.Duration) *metav1.Time { return &metav1.Time{Time: now.Add(in)} }
	for name, tc := range map[string]struct {
		existing, want reservation
		defined        bool // the resource has a definition
		established    bool
		bindingDeleted bool
		requeue        bool
	}{
		"a binding keeps its reservation":                                     {existing: reservation{Binding: "one"}, want: reservation{Binding: "one"}},
		"a binding keeps its reservation if a definition exists":              {existing: reservation{Binding: "one"}, want: reservation{Binding: "one"}, defined: true, established: true},
		"the reservation of a deleted binding is pruned":                      {existing: reservation{Binding: "one"}, bindingDeleted: true},
		"an established definition gets the reservation of a deleted binding": {existing: reservation{Binding: "one"}, bindingDeleted: true, defined: true, established: true, want: reservation{Definition: true}},
		"an established definition gets an unreserved resource":               {defined: true, established: true, want: reservation{Definition: true}},
		"a definition that is not established gets no reservation":            {defined: true},
		"a definition keeps its reservation":                                  {existing: reservation{Definition: true}, defined: true, want: reservation{Definition: true}},
		"the reservation of a deleted definition is pruned":                   {existing: reservation{Definition: true}},
		"a pending definition keeps its reservation until it expires":         {existing: reservation{Definition: true, Expiry: expires(time.Minute)}, want: reservation{Definition: true, Expiry: expires(time.Minute)}, requeue: true},
		"an expired reservation without a definition is pruned":               {existing: reservation{Definition: true, Expiry: expires(-time.Second)}},
		"an expired reservation with a definition is kept":                    {existing: reservation{Definition: true, Expiry: expires(-time.Second)}, defined: true, want: reservation{Definition: true, Expiry: expires(-time.Second)}},
		"a definition that is being deleted keeps its reservation":            {existing: reservation{Definition: true}, defined: true, established: true, want: reservation{Definition: true}},
	} {
		t.Run(name, func(t *testing.T) {
			current := reservations{}
			if tc.existing != (reservation{}) {
				current["widgets.example.io"] = tc.existing
			}
			inputs := pruneInputs{definitions: map[string]bool{}, exists: func(string) (bool, error) { return !tc.bindingDeleted, nil }, now: now}
			if tc.defined {
				inputs.definitions["widgets.example.io"] = tc.established
			}
			again, err := current.prune(inputs)
			if err != nil || (again > 0) != tc.requeue {
				t.Errorf("requeue after %v, %v", again, err)
			}
			got := current["widgets.example.io"]
			if got.Binding != tc.want.Binding || got.Definition != tc.want.Definition || !got.Expiry.Equal(tc.want.Expiry) {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestReservationsAreNotPrunedOnErrors(t *testing.T) {
	current := reservations{"widgets.example.io": {Binding: "one"}}
	_, err := current.prune(pruneInputs{exists: func(string) (bool, error) { return false, errors.New("storage is unavailable") }})
	if err == nil || current["widgets.example.io"].Binding != "one" {
		t.Errorf("got %v, %v", current, err)
	}
}

func TestReservationsFit(t *testing.T) {
	newResources := func(group string, count int) []*exportedResource {
		var all []*exportedResource
		for i := range count {
			all = append(all, &exportedResource{GroupResource: schema.GroupResource{Group: group, Resource: fmt.Sprintf("resource%05d", i)}})
		}
		return all
	}
	current := reservations{}
	if few := newResources("few.example.com", 100); !current.fits(few, "few") {
		t.Error("a hundred reservations do not fit")
	}
	hundred := newResources("held.example.com", 100)
	for _, resource := range hundred {
		current.acquire(resource.GroupResource, "held")
	}
	if before, one := len(current.String()), hundred[0]; before > 100*entrySize(one.String(), "held")+2 {
		t.Errorf("a hundred reservations have %d bytes", before)
	}
	if current.fits(newResources("long-names-that-take-a-lot-of-room.example.com", 5000), "many") {
		t.Error("five thousand reservations fit")
	}
	if !current.fits(hundred, "held") {
		t.Error("existing reservations do not fit")
	}
}
