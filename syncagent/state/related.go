package state

import (
	"slices"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
)

// Related is a related object that may have a copy or a finalizer. It is recorded before either is written, and removed when they
// are gone, so that neither is left behind when the primary object no longer refers to it or the published resource changes.
type Related struct {
	Identifier string                                         `json:"identifier"`
	Side       syncagentv1alpha1.RelatedResourceOrigin        `json:"side"`
	Policy     syncagentv1alpha1.RelatedResourceCleanupPolicy `json:"policy,omitempty"`
	Origin     Object                                         `json:"origin"`
	Copy       Object                                         `json:"copy"`
}

// Object is an object on one side.
type Object struct {
	Group     string `json:"group,omitempty"`
	Version   string `json:"version"`
	Kind      string `json:"kind"`
	Resource  string `json:"resource"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// Key returns the key of the object's content.
func (r Related) Key() string {
	return Key("related", r.Identifier, string(r.Side), r.Origin.Group, r.Origin.Resource, r.Origin.Namespace, r.Origin.Name,
		r.Copy.Group, r.Copy.Resource, r.Copy.Namespace, r.Copy.Name)
}

// Related returns the related objects, and whether these are all.
func (s *State) Related() (objects []Related, known bool) { return s.related, s.relatedKnown }

// SetRelated replaces the related objects.
func (s *State) SetRelated(objects []Related) {
	s.related, s.relatedKnown = slices.Clone(objects), true
	if s.related == nil {
		s.related = []Related{}
	}
}
