package connection

import (
	"errors"
	"strings"

	"github.com/atoll-dev/atoll/logicalcluster"
)

var (
	// ErrAboveTop reports a ".." that leads out of the tree.
	ErrAboveTop = errors.New("cannot go up from root")
	// ErrBadSegment reports a segment that is no workspace name. Callers add the argument to the error.
	ErrBadSegment = errors.New("invalid workspace name")
)

// Walk resolves a relative path like "a:b", ".." or "..:x:." from a workspace. An empty from is above all trees, so
// that "a:b" is absolute then.
func Walk(from logicalcluster.Path, way string) (logicalcluster.Path, error) {
	for segment := range strings.SplitSeq(way, ":") {
		switch segment {
		case ".":
		case "..":
			above, ok := Above(from)
			if !ok {
				return logicalcluster.Path{}, ErrAboveTop
			}
			from = above
		default:
			if _, err := logicalcluster.ParseName(segment); err != nil {
				return logicalcluster.Path{}, ErrBadSegment
			}
			from = from.Join(segment)
		}
	}
	if from.Empty() { // only dots behind a leading colon
		return logicalcluster.Path{}, ErrBadSegment
	}
	return from, nil
}
