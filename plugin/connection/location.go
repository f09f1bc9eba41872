package connection

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/atoll-dev/atoll/logicalcluster"
)

const clustersSegment = "/clusters/"

// Location is a parsed server URL: the installation and the logical cluster in it.
type Location struct {
	// Base is the URL in front of "/clusters/", without a trailing slash. It may have a path of its own.
	Base string
	// Path is the logical cluster behind "/clusters/". It is never empty and never the wildcard.
	Path logicalcluster.Path
}

// ForeignURLError reports a server URL that names no workspace: an ordinary Kubernetes cluster, or the base URL of an
// installation.
type ForeignURLError struct{ URL string }

func (e *ForeignURLError) Error() string {
	return fmt.Sprintf("current URL %q does not point to a workspace", e.URL)
}

// ParseLocation parses the server URL of a kubeconfig cluster. The path after the logical cluster is dropped. It fails
// with a *ForeignURLError when the URL names none.
func ParseLocation(serverURL string) (Location, error) {
	foreign := &ForeignURLError{URL: serverURL}
	parsed, err := url.Parse(serverURL)
	if err != nil {
		return Location{}, foreign
	}
	before, after, ok := strings.Cut(parsed.Path, clustersSegment)
	if !ok {
		return Location{}, foreign
	}
	segment, _, _ := strings.Cut(after, "/")
	path, err := logicalcluster.ParsePath(segment)
	if err != nil || path == logicalcluster.Wildcard.Path() {
		return Location{}, foreign
	}
	parsed.Path, parsed.RawPath, parsed.RawQuery, parsed.Fragment = before, "", "", ""
	return Location{Base: parsed.String(), Path: path}, nil
}

// URLOf returns the server URL of another logical cluster of the same installation.
func (l Location) URLOf(path logicalcluster.Path) string { return l.Base + path.URLPath() }

// Above returns the workspace that holds the Workspace object of path, and whether there is one. Single names,
// "system:" names and homes ("user:<name>") are the top of their trees.
func Above(path logicalcluster.Path) (logicalcluster.Path, bool) {
	if isHome(path) {
		return logicalcluster.Path{}, false
	}
	return path.Parent()
}

// Top returns the topmost workspace of the tree that path lies in.
func Top(path logicalcluster.Path) logicalcluster.Path {
	for {
		above, ok := Above(path)
		if !ok {
			return path
		}
		path = above
	}
}

func isHome(path logicalcluster.Path) bool {
	segments := path.Segments()
	return len(segments) == 2 && segments[0] == "user"
}
