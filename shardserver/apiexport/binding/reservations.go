package binding

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// reservation says whom a resource of a logical cluster belongs to: a binding, or a definition of the cluster's own.
type reservation struct {
	// Binding is the name of the binding.
	Binding string `json:"n,omitempty"`
	// Definition says that it is a definition, whose name is that of the resource.
	Definition bool `json:"c,omitempty"`
	// Expiry is until when a definition may still come. One that exists needs none.
	Expiry *metav1.Time `json:"e,omitempty"`
}

func (l reservation) expired(now time.Time) bool { return l.Expiry == nil || l.Expiry.Time.Before(now) }

// describeOwner names whom the resource belongs to, for messages.
func (l reservation) describeOwner(resource string) string {
	if l.Definition {
		return fmt.Sprintf("CustomResourceDefinition %q", resource)
	}
	return fmt.Sprintf("APIBinding %q", l.Binding)
}

// reservations are those of one logical cluster, by "<plural>.<group>", or "<plural>" for the core group.
type reservations map[string]reservation

// parseReservations reads the annotation of a LogicalCluster.
func parseReservations(annotation string) (reservations, error) {
	var parsed reservations
	if err := json.Unmarshal([]byte(annotation), &parsed); err != nil {
		return nil, fmt.Errorf("the locks of the logical cluster cannot be read: %w", err)
	}
	if parsed == nil {
		parsed = reservations{}
	}
	return parsed, nil
}

func (l reservations) String() string {
	text, err := json.Marshal(l)
	if err != nil {
		panic(err) // strings, flags and times can always be encoded
	}
	return string(text)
}

func (l reservations) clone() reservations { return maps.Clone(l) }

func (l reservations) equal(other reservations) bool {
	return maps.EqualFunc(l, other, func(a, b reservation) bool {
		return a.Binding == b.Binding && a.Definition == b.Definition && a.Expiry.Equal(b.Expiry)
	})
}

// acquire gives a resource to a binding, unless it belongs to somebody else.
func (l reservations) acquire(resource schema.GroupResource, binding string) (acquired bool) {
	current, ok := l[resource.String()]
	if !ok {
		l[resource.String()] = reservation{Binding: binding}
		return true
	}
	return current.Binding == binding && !current.Definition
}

// maxAnnotationBytes is how many bytes the locks of a logical cluster may take. All annotations of an object together may have 256 KiB.
const maxAnnotationBytes = 192 << 10

// entryBytes is how many bytes the lock of a resource adds to the annotation, at most: `"resource":{"n":"binding"},`.
func entryBytes(resource, binding string) int {
	return len(resource) + len(binding) + len(`"":{"n":""},`)
}

// fits tells whether there is room for all of the resources that a binding wants.
func (l reservations) fits(wanted []*offeredResource, binding string) bool {
	size := 0
	for _, resource := range wanted {
		if _, reserved := l[resource.String()]; !reserved {
			size += entryBytes(resource.String(), binding)
		}
	}
	return size == 0 || len(l.String())+size <= maxAnnotationBytes
}

// pruneInputs is what decides about the locks of a logical cluster besides the locks themselves.
type pruneInputs struct {
	// definitions are the names of the cluster's own definitions, with whether they are established.
	definitions map[string]bool
	// exists tells whether a binding exists. It is asked only about bindings that have a lock.
	exists func(binding string) (bool, error)
	now    time.Time
}

// prune drops the locks of bindings and definitions that are gone, and adds those of definitions that nobody locked out.
// It returns when the next lock runs out, or zero.
func (l reservations) prune(facts pruneInputs) (requeueAfter time.Duration, err error) {
	for resource, owner := range l {
		switch _, defined := facts.definitions[resource]; {
		case !owner.Definition:
			exists, err := facts.exists(owner.Binding)
			if err != nil {
				return 0, err
			}
			if !exists {
				delete(l, resource)
			}
		case defined:
		case owner.expired(facts.now):
			delete(l, resource)
		default:
			if remaining := owner.Expiry.Sub(facts.now) + time.Second; requeueAfter == 0 || remaining < requeueAfter {
				requeueAfter = remaining
			}
		}
	}
	for resource, established := range facts.definitions {
		if _, owner := l[resource]; established && !owner {
			l[resource] = reservation{Definition: true}
		}
	}
	return requeueAfter, nil
}
