package logicalcluster

import (
	"fmt"
	"strings"
)

// Path is a colon-separated path to a logical cluster: a cluster name followed by workspace names. The zero Path
// identifies none.
type Path struct{ s string }

// ParsePath accepts segments as ParseName does, joined by colons, and the wildcard "*".
func ParsePath(s string) (Path, error) {
	if s == Wildcard.s {
		return Path{s}, nil
	}
	if len(s) > maxPathLength || !isPath(s) {
		shown := s
		if len(shown) > 100 {
			shown = shown[:100] + "..."
		}
		return Path{}, fmt.Errorf("invalid cluster: %q does not match the regex %s", shown, pathPattern)
	}
	return Path{s}, nil
}

// MustParsePath is ParsePath for literals. It panics if ParsePath returns an error.
func MustParsePath(s string) Path {
	p, err := ParsePath(s)
	if err != nil {
		panic(err)
	}
	return p
}

// HomePrefix is the first segment of the paths of home workspaces. It is not a logical cluster.
const HomePrefix = "user"

// HomePath returns the path of a user's home workspace, "user:<name>", and whether it has one: a user name that is not
// one segment is no part of a path, and with a colon would name a workspace in the home of another user.
func HomePath(user string) (Path, bool) {
	if !isSegment(user) {
		return Path{}, false
	}
	return Path{HomePrefix + ":" + user}, true
}

// String returns the path in the form of URLs.
func (p Path) String() string { return p.s }

// Empty reports whether p is the zero Path.
func (p Path) Empty() bool { return p.s == "" }

// Name returns the path as a name, and whether it is one: a single segment, a "system:" name, or the wildcard.
func (p Path) Name() (Name, bool) {
	if p.s == "" || (strings.Contains(p.s, ":") && !strings.HasPrefix(p.s, systemPrefix)) {
		return Name{}, false
	}
	return Name{p.s}, true
}

// Segments returns the parts between the colons; a "system:" name is one segment.
func (p Path) Segments() []string {
	if _, ok := p.Name(); ok {
		return []string{p.s}
	}
	if p.s == "" {
		return nil
	}
	return strings.Split(p.s, ":")
}

// Join returns the path of the named workspace below p.
func (p Path) Join(name string) Path {
	if p.s == "" {
		return Path{name}
	}
	return Path{p.s + ":" + name}
}

// Parent returns the path without its last segment, and whether there is one.
func (p Path) Parent() (Path, bool) {
	if _, ok := p.Name(); ok || p.s == "" {
		return Path{}, false
	}
	return Path{p.s[:strings.LastIndex(p.s, ":")]}, true
}

// Base returns the last segment.
func (p Path) Base() string {
	segments := p.Segments()
	if len(segments) == 0 {
		return ""
	}
	return segments[len(segments)-1]
}

// HasPrefix reports whether p is other or below it.
func (p Path) HasPrefix(other Path) bool {
	return p.s == other.s || strings.HasPrefix(p.s, other.s+":")
}

// URLPath returns the URL path of the logical cluster's API root, "/clusters/<path>".
func (p Path) URLPath() string { return clustersPrefix + p.s }
