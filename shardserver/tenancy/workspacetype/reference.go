package workspacetype

import (
	"fmt"
	"strings"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// Reference references a workspace type. Its text is "<path>:<name>", as in the type annotation of a
// logical cluster.
type Reference struct {
	// Path is the canonical path, or the cluster name, of the logical cluster of the type. It is the zero
	// Path in a reference that is searched from a workspace upwards.
	Path logicalcluster.Path
	// Name is the name of the WorkspaceType object. It is empty in a reference to the default type.
	Name string
}

// NewReference returns the reference of a path and a name of an object. An empty path is allowed.
func NewReference(path, name string) (Reference, error) {
	if path == "" {
		return Reference{Name: name}, nil
	}
	parsed, err := logicalcluster.ParsePath(path)
	if err != nil {
		return Reference{}, err
	}
	if parsed == logicalcluster.Wildcard.Path() {
		return Reference{}, fmt.Errorf("invalid path %q of workspace type %q: it spans all logical clusters", path, name)
	}
	return Reference{Path: parsed, Name: name}, nil
}

// ParseReference parses "<path>:<name>".
func ParseReference(text string) (Reference, error) {
	colon := strings.LastIndex(text, ":")
	if colon <= 0 || colon == len(text)-1 {
		return Reference{}, fmt.Errorf("invalid workspace type %q: want <path>:<name>", text)
	}
	return NewReference(text[:colon], text[colon+1:])
}

// String returns "<path>:<name>", or the name alone without a path.
func (r Reference) String() string {
	if r.Path.Empty() {
		return r.Name
	}
	return r.Path.String() + ":" + r.Name
}
