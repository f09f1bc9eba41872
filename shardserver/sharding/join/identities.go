// Package join joins a shard to an installation: it resolves the identity hashes under which objects of kcp's own APIs
// are stored, and registers the shard in root. The identity secrets are in root. A shard reads their hashes from the
// root shard at its first start and stores them in a ConfigMap in system:shard; later starts do not need the root
// shard.
//
// A stored identity is never replaced. A root shard with another identity belongs to another installation or has lost
// its secrets; objects of this shard would not be accessible with it.
package join

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/atoll-dev/atoll/shardserver/bootstrap/rootapis"
)

// Identities maps the names of APIExports in root to their identity hashes.
type Identities map[string]string

// missing returns the names of kcp's own exports that have no identity.
func (i Identities) missing() []string {
	var names []string
	for _, export := range rootapis.Exports() {
		if i[export.Name] == "" {
			names = append(names, export.Name)
		}
	}
	return names
}

// Needed returns the identities that the storage of this shard depends on. They never change.
func (i Identities) Needed() Identities {
	needed := Identities{}
	for _, export := range rootapis.Exports() {
		needed[export.Name] = i[export.Name]
	}
	return needed
}

// ByResource returns the identities by the resources of the exports.
func (i Identities) ByResource() map[schema.GroupResource]string {
	identities := map[schema.GroupResource]string{}
	for _, export := range rootapis.Exports() {
		for _, resource := range export.Resources {
			identities[resource.GroupResource] = i[export.Name]
		}
	}
	return identities
}

// Merge returns the stored identities with the remote ones added. If a remote identity differs from a stored one under
// which objects are stored, it returns a *ConflictError. Identities of other exports in root may change and are
// replaced.
func Merge(stored, remote Identities) (Identities, error) {
	var conflicts []Conflict
	merged := maps.Clone(stored)
	if merged == nil {
		merged = Identities{}
	}
	needed := stored.Needed()
	for _, name := range slices.Sorted(maps.Keys(remote)) {
		if before := needed[name]; before != "" && before != remote[name] {
			conflicts = append(conflicts, Conflict{Export: name, Stored: before, Remote: remote[name]})
			continue
		}
		merged[name] = remote[name]
	}
	if len(conflicts) > 0 {
		return nil, &ConflictError{Conflicts: conflicts}
	}
	return merged, nil
}

// Conflict is an export whose identity in root differs from the one under which this shard stores objects.
type Conflict struct{ Export, Stored, Remote string }

// ConflictError is returned for a root that is not the one of this shard.
type ConflictError struct{ Conflicts []Conflict }

func (e *ConflictError) Error() string {
	var texts []string
	for _, c := range e.Conflicts {
		texts = append(texts, fmt.Sprintf("export %s has identity %s in root, but objects of this shard are stored under %s", c.Export, c.Remote, c.Stored))
	}
	return "this shard belongs to another installation, or the identity secrets of root were lost (restore them from a backup): " + strings.Join(texts, "; ")
}
