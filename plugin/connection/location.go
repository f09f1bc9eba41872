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

// NotWorkspaceURLError reports a server URL that names no workspace: an ordinary Kubernetes cluster, or the base URL of an
// installation.
type NotWorkspaceURLError struct{ URL string }

func (e *NotWorkspaceURLError) Error() string {
	return fmt.Sprintf("current URL %q does not point to a workspace", e.URL)
}

// ParseLocation parses the server URL of a kubeconfig cluster. The path after the logical cluster is dropped. It fails
// with a *NotWorkspaceURLError when the URL names none.
func ParseLocation(serverURL string) (Location, error) {
	notWorkspace := &NotWorkspaceURLError{URL: serverURL}
	parsed, err := url.Parse(serverURL)
	if err != nil {
		return Location{}, notWorkspace
	}
	before, after, ok := strings.Cut(parsed.Path, clustersSegment)
	if !ok {
		return Location{}, notWorkspace
	}
	segment, _, _ := strings.Cut(after, "/")
	path, err := logicalcluster.ParsePath(segment)
	if err != nil || path == logicalcluster.Wildcard.Path() {
		return Location{}, notWorkspace
	}
	parsed.Path, parsed.RawPath, parsed.RawQuery, parsed.Fragment = before, "", "", ""
	return Location{Base: parsed.String(), Path: path}, nil
}

// adminPath is the path of the admin workspace, in which administrators see the shards of an installation.
const adminPath = "/services/admin"

// AdminLocation parses the server URL of an admin workspace: the installation, at its root workspace. It returns false for
// any other URL.
func AdminLocation(serverURL string) (Location, bool) {
	parsed, err := url.Parse(serverURL)
	if err != nil {
		return Location{}, false
	}
	before, ok := strings.CutSuffix(strings.TrimSuffix(parsed.Path, "/"), adminPath)
	if !ok {
		return Location{}, false
	}
	parsed.Path, parsed.RawPath, parsed.RawQuery, parsed.Fragment = before, "", "", ""
	return Location{Base: parsed.String(), Path: logicalcluster.Root.Path()}, true
}

// AdminURL returns the server URL of the admin workspace of the installation.
func (l Location) AdminURL() string { return l.Base + adminPath }

// URLFor returns the server URL of another logical cluster of the same installation.
func (l Location) URLFor(path logicalcluster.Path) string { return l.Base + path.URLPath() }

// ParentOf returns the workspace that holds the Workspace object of path, and whether there is one. Single names,
// "system:" names and homes ("user:<name>") are the top of their trees.
func ParentOf(path logicalcluster.Path) (logicalcluster.Path, bool) {
	if isHome(path) {
		return logicalcluster.Path{}, false
	}
	return path.Parent()
}

// TreeRoot returns the topmost workspace of the tree that path lies in.
func TreeRoot(path logicalcluster.Path) logicalcluster.Path {
	for {
		parent, ok := ParentOf(path)
		if !ok {
			return path
		}
		path = parent
	}
}

func isHome(path logicalcluster.Path) bool {
	segments := path.Segments()
	return len(segments) == 2 && segments[0] == "user"
}
