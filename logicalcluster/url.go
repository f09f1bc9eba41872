package logicalcluster

import (
	"errors"
	"strings"
)

const clustersPrefix = "/clusters/"

// ErrNoClusterSegment says that a URL starts with /clusters/ and goes no further.
var ErrNoClusterSegment = errors.New(`invalid URL: "/clusters/" must be followed by a logical cluster and "/"`)

// Target is what a request path "/clusters/<path>/<rest>" addresses.
type Target struct {
	// Path is the logical cluster, or the zero Path when the URL names none.
	Path Path
	// Rest is the Kubernetes part of the URL path. It always starts with "/".
	Rest string
}

// FromURLPath splits the path of a URL. A path that does not start with /clusters/ has no cluster and is its own
// rest. An unparsable cluster is an error.
func FromURLPath(urlPath string) (Target, error) {
	if urlPath == "/clusters" {
		return Target{}, ErrNoClusterSegment
	}
	after, ok := strings.CutPrefix(urlPath, clustersPrefix)
	if !ok {
		return Target{Rest: urlPath}, nil
	}
	raw, rest, slash := strings.Cut(after, "/")
	if raw == "" || !slash {
		return Target{}, ErrNoClusterSegment
	}
	path, err := ParsePath(raw)
	if err != nil {
		return Target{}, err
	}
	return Target{Path: path, Rest: "/" + rest}, nil
}
