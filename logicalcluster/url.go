package logicalcluster

import (
	"errors"
	"strings"
)

const clustersPrefix = "/clusters/"

// ErrNoClusterSegment is the error for a URL that starts with /clusters/ and has no logical cluster or nothing after
// it.
var ErrNoClusterSegment = errors.New(`invalid URL: "/clusters/" must be followed by a logical cluster and "/"`)

// Target is the target of a request path "/clusters/<path>/<rest>".
type Target struct {
	// Path is the logical cluster, or the zero Path if the URL names none.
	Path Path
	// Rest is the Kubernetes part of the URL path. It always starts with "/".
	Rest string
}

// FromURLPath parses the path of a URL. A path that does not start with /clusters/ has no logical cluster, and Rest is
// the whole path. An invalid logical cluster is an error.
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
