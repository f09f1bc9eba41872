package connection

import (
	"errors"
	"strings"

	"github.com/atoll-dev/atoll/logicalcluster"
)

var (
	// ErrAboveTreeRoot reports a ".." that leads out of the tree.
	ErrAboveTreeRoot = errors.New("cannot go up from root")
	// ErrInvalidSegment reports a segment that is no workspace name. Callers add the argument to the error.
	ErrInvalidSegment = errors.New("invalid workspace name")
)

// ResolvePath resolves a relative path like "a:b", ".." or "..:x:." from a workspace. An empty from is above all trees, so
// that "a:b" is absolute then.
func ResolvePath(from logicalcluster.Path, relative string) (logicalcluster.Path, error) {
	for segment := range strings.SplitSeq(relative, ":") {
		switch segment {
		case ".":
		case "..":
			parent, ok := ParentOf(from)
			if !ok {
				return logicalcluster.Path{}, ErrAboveTreeRoot
			}
			from = parent
		default:
			if _, err := logicalcluster.ParseName(segment); err != nil {
				return logicalcluster.Path{}, ErrInvalidSegment
			}
			from = from.Join(segment)
		}
	}
	if from.Empty() { // only dots behind a leading colon
		return logicalcluster.Path{}, ErrInvalidSegment
	}
	return from, nil
}
