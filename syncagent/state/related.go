package state

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
)

// Related is a related object that may have a copy or a finalizer. The syncer records it before it writes either, and removes the record
// after it has removed both, so that neither is left behind when the primary object does not reference it any more or the published
// resource changes.
type Related struct {
	Identifier string                                         `json:"identifier"`
	Side       syncagentv1alpha1.RelatedResourceOrigin        `json:"side"`
	Policy     syncagentv1alpha1.RelatedResourceCleanupPolicy `json:"policy,omitempty"`
	Origin     Object                                         `json:"origin"`
	Copy       Object                                         `json:"copy"`
	// CopyUID is the UID of the copy, if it is known. An object that a user creates in its place has another UID.
	CopyUID types.UID `json:"copyUID,omitempty"`
	// Previous means that api-syncagent has synced the object, so that an origin in the workspace has its finalizer.
	Previous bool `json:"former,omitempty"`
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

// Related returns the related objects, and whether the list is complete.
func (s *State) Related() (objects []Related, known bool) { return s.related, s.relatedKnown }

// SetRelated replaces the related objects.
func (s *State) SetRelated(objects []Related) {
	s.related, s.relatedKnown = slices.Clone(objects), true
	if s.related == nil {
		s.related = []Related{}
	}
}

// SetRelatedCopy records the UID of the copy of a recorded related object.
func (s *State) SetRelatedCopy(key string, uid types.UID) {
	for i := range s.related {
		if s.related[i].Key() == key {
			s.related[i].CopyUID = uid
		}
	}
}

// HasCopy reports whether the recorded copy of a related object has this UID.
func (s *State) HasCopy(key string, uid types.UID) bool {
	return slices.ContainsFunc(s.related, func(r Related) bool { return r.Key() == key && r.CopyUID == uid && uid != "" })
}

// ForgetRelated removes a related object and its content.
func (s *State) ForgetRelated(key string) {
	s.Forget(key)
	s.related = slices.DeleteFunc(slices.Clone(s.related), func(r Related) bool { return r.Key() == key })
}
