package binding

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// lock says whom a resource of a logical cluster belongs to: a binding, or a definition of the cluster's own.
type lock struct {
	// Binding is the name of the binding.
	Binding string `json:"n,omitempty"`
	// Definition says that it is a definition, whose name is that of the resource.
	Definition bool `json:"c,omitempty"`
	// Expiry is until when a definition may still come. One that exists needs none.
	Expiry *metav1.Time `json:"e,omitempty"`
}

func (l lock) expired(now time.Time) bool { return l.Expiry == nil || l.Expiry.Time.Before(now) }

// holder names whom the resource belongs to, for messages.
func (l lock) holder(resource string) string {
	if l.Definition {
		return fmt.Sprintf("CustomResourceDefinition %q", resource)
	}
	return fmt.Sprintf("APIBinding %q", l.Binding)
}

// locks are those of one logical cluster, by "<plural>.<group>", or "<plural>" for the core group.
type locks map[string]lock

// parseLocks reads the annotation of a LogicalCluster.
func parseLocks(annotation string) (locks, error) {
	var parsed locks
	if err := json.Unmarshal([]byte(annotation), &parsed); err != nil {
		return nil, fmt.Errorf("the locks of the logical cluster cannot be read: %w", err)
	}
	if parsed == nil {
		parsed = locks{}
	}
	return parsed, nil
}

func (l locks) String() string {
	text, err := json.Marshal(l)
	if err != nil {
		panic(err) // strings, flags and times can always be encoded
	}
	return string(text)
}

func (l locks) clone() locks { return maps.Clone(l) }

func (l locks) equal(other locks) bool {
	return maps.EqualFunc(l, other, func(a, b lock) bool {
		return a.Binding == b.Binding && a.Definition == b.Definition && a.Expiry.Equal(b.Expiry)
	})
}

// take gives a resource to a binding, unless it belongs to somebody else.
func (l locks) take(resource schema.GroupResource, binding string) (own bool) {
	held, ok := l[resource.String()]
	if !ok {
		l[resource.String()] = lock{Binding: binding}
		return true
	}
	return held.Binding == binding && !held.Definition
}

// room is how many bytes the locks of a logical cluster may take. All annotations of an object together may have 256 KiB.
const room = 192 << 10

// entrySize is how many bytes the lock of a resource adds to the annotation, at most: `"resource":{"n":"binding"},`.
func entrySize(resource, binding string) int {
	return len(resource) + len(binding) + len(`"":{"n":""},`)
}

// fit tells whether there is room for all of the resources that a binding wants.
func (l locks) fit(wanted []*resource, binding string) bool {
	size := 0
	for _, resource := range wanted {
		if _, held := l[resource.String()]; !held {
			size += entrySize(resource.String(), binding)
		}
	}
	return size == 0 || len(l.String())+size <= room
}

// lockFacts is what decides about the locks of a logical cluster besides the locks themselves.
type lockFacts struct {
	// definitions are the names of the cluster's own definitions, with whether they are established.
	definitions map[string]bool
	// exists tells whether a binding exists. It is asked only about bindings that have a lock.
	exists func(binding string) (bool, error)
	now    time.Time
}

// tidy drops the locks of bindings and definitions that are gone, and adds those of definitions that nobody locked out.
// It returns when the next lock runs out, or zero.
func (l locks) tidy(facts lockFacts) (again time.Duration, err error) {
	for resource, held := range l {
		switch _, defined := facts.definitions[resource]; {
		case !held.Definition:
			exists, err := facts.exists(held.Binding)
			if err != nil {
				return 0, err
			}
			if !exists {
				delete(l, resource)
			}
		case defined:
		case held.expired(facts.now):
			delete(l, resource)
		default:
			if left := held.Expiry.Sub(facts.now) + time.Second; again == 0 || left < again {
				again = left
			}
		}
	}
	for resource, established := range facts.definitions {
		if _, held := l[resource]; established && !held {
			l[resource] = lock{Definition: true}
		}
	}
	return again, nil
}
