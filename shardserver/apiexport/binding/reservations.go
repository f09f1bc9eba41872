package binding

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// reservation names the owner of a resource in a logical cluster: a binding or a CustomResourceDefinition. kcp calls it a
// lock and stores it in the same format.
type reservation struct {
	// Binding is the name of the owning binding.
	Binding string `json:"n,omitempty"`
	// Definition means that the owner is the CustomResourceDefinition of the resource.
	Definition bool `json:"c,omitempty"`
	// Expiry is when the reservation of a CustomResourceDefinition expires if that does not exist. Nil once it does.
	Expiry *metav1.Time `json:"e,omitempty"`
}

func (r reservation) isExpired(now time.Time) bool {
	return r.Expiry == nil || r.Expiry.Time.Before(now)
}

// describeOwner returns the owner for messages.
func (r reservation) describeOwner(resource string) string {
	if r.Definition {
		return fmt.Sprintf("CustomResourceDefinition %q", resource)
	}
	return fmt.Sprintf("APIBinding %q", r.Binding)
}

// reservations are those of one logical cluster, by "<plural>.<group>", or "<plural>" for the core group.
type reservations map[string]reservation

// parseReservations decodes the annotation of a LogicalCluster.
func parseReservations(annotation string) (reservations, error) {
	var parsed reservations
	if err := json.Unmarshal([]byte(annotation), &parsed); err != nil {
		return nil, fmt.Errorf("the resource reservations of the logical cluster cannot be decoded: %w", err)
	}
	if parsed == nil {
		parsed = reservations{}
	}
	return parsed, nil
}

func (r reservations) String() string {
	text, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings, flags and times can always be encoded
	}
	return string(text)
}

func (r reservations) clone() reservations { return maps.Clone(r) }

func (r reservations) equal(other reservations) bool {
	return maps.EqualFunc(r, other, func(a, b reservation) bool {
		return a.Binding == b.Binding && a.Definition == b.Definition && a.Expiry.Equal(b.Expiry)
	})
}

// acquire reserves a resource for a binding unless it has another owner.
func (r reservations) acquire(resource schema.GroupResource, binding string) (acquired bool) {
	current, ok := r[resource.String()]
	if !ok {
		r[resource.String()] = reservation{Binding: binding}
		return true
	}
	return current.Binding == binding && !current.Definition
}

// maxAnnotationBytes is the maximum size of the encoded reservations. All annotations of an object together may have
// 256 KiB.
const maxAnnotationBytes = 192 << 10

// entrySize is the maximum number of bytes that a reservation adds to the annotation: `"resource":{"n":"binding"},`.
func entrySize(resource, binding string) int {
	return len(resource) + len(binding) + len(`"":{"n":""},`)
}

// fits reports whether reservations for all wanted resources fit into the annotation.
func (r reservations) fits(resources []*exportedResource, binding string) bool {
	size := 0
	for _, resource := range resources {
		if _, reserved := r[resource.String()]; !reserved {
			size += entrySize(resource.String(), binding)
		}
	}
	return size == 0 || len(r.String())+size <= maxAnnotationBytes
}

// pruneInputs is what prune compares reservations with.
type pruneInputs struct {
	// definitions maps the names of the CustomResourceDefinitions of the cluster to whether they are established.
	definitions map[string]bool
	// exists reports whether a binding exists. It is called only for bindings with a reservation.
	exists func(binding string) (bool, error)
	now    time.Time
}

// prune deletes the reservations of bindings and definitions that do not exist, and adds those of established definitions
// without an owner. It returns the time until the next reservation expires, or zero.
func (r reservations) prune(inputs pruneInputs) (requeueAfter time.Duration, err error) {
	for resource, owner := range r {
		switch _, defined := inputs.definitions[resource]; {
		case !owner.Definition:
			exists, err := inputs.exists(owner.Binding)
			if err != nil {
				return 0, err
			}
			if !exists {
				delete(r, resource)
			}
		case defined:
		case owner.isExpired(inputs.now):
			delete(r, resource)
		default:
			if remaining := owner.Expiry.Sub(inputs.now) + time.Second; requeueAfter == 0 || remaining < requeueAfter {
				requeueAfter = remaining
			}
		}
	}
	for resource, established := range inputs.definitions {
		if _, owner := r[resource]; established && !owner {
			r[resource] = reservation{Definition: true}
		}
	}
	return requeueAfter, nil
}
