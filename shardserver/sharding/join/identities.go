// Package handshake gives a shard that is not root the identities by which the objects of kcp's own APIs are stored. The
// secrets behind them are in root. The shard learns their hashes from the root shard when it starts for the first time,
// writes them down in its own system:shard, and never asks again: it starts whether the root shard is there or not.
//
// An identity that was written down is never replaced. A root shard that says something else is another installation, or
// one that lost its secrets: objects of this shard would be out of reach.
//
// The package knows how identities are learned and kept. What is done with them is for the storage.
package join

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/atoll-dev/atoll/shardserver/bootstrap/rootapis"
)

// Identities are the identity hashes of exports of root, by name of the export.
type Identities map[string]string

// missing returns the names of those exports of this version of kcp's APIs that have no identity here.
func (i Identities) missing() []string {
	var names []string
	for _, export := range rootapis.Exports() {
		if i[export.Name] == "" {
			names = append(names, export.Name)
		}
	}
	return names
}

// Needed returns those that the storage of this shard depends on. They never change.
func (i Identities) Needed() Identities {
	needed := Identities{}
	for _, export := range rootapis.Exports() {
		needed[export.Name] = i[export.Name]
	}
	return needed
}

// ByResource returns the identities by the resources that the exports are of.
func (i Identities) ByResource() map[schema.GroupResource]string {
	identities := map[schema.GroupResource]string{}
	for _, export := range rootapis.Exports() {
		for _, resource := range export.Resources {
			identities[resource.GroupResource] = i[export.Name]
		}
	}
	return identities
}

// Merge adds to what is held what was heard, for names that have nothing yet. What contradicts is a *ConflictError, and
// nothing is added then. It counts as a contradiction only where objects are stored by it: exports that people make in
// root may come back with another identity, and theirs is taken then.
func Merge(held, heard Identities) (Identities, error) {
	var conflicts []Conflict
	merged := maps.Clone(held)
	if merged == nil {
		merged = Identities{}
	}
	needed := held.Needed()
	for _, name := range slices.Sorted(maps.Keys(heard)) {
		if before := needed[name]; before != "" && before != heard[name] {
			conflicts = append(conflicts, Conflict{Export: name, Held: before, Heard: heard[name]})
			continue
		}
		merged[name] = heard[name]
	}
	if len(conflicts) > 0 {
		return nil, &ConflictError{Conflicts: conflicts}
	}
	return merged, nil
}

// Conflict is an export whose identity in root is not the one that this shard stores objects by.
type Conflict struct{ Export, Held, Heard string }

// ConflictError says that root is not the one that this shard belongs to.
type ConflictError struct{ Conflicts []Conflict }

func (e *ConflictError) Error() string {
	var texts []string
	for _, c := range e.Conflicts {
		texts = append(texts, fmt.Sprintf("export %s has identity %s in root, but objects here are stored by %s", c.Export, c.Heard, c.Held))
	}
	return "this shard belongs to another installation, or the identity secrets of root were lost (restore them from a backup): " + strings.Join(texts, "; ")
}
