package proxy

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/atoll-dev/atoll/logicalcluster"
)

const clustersPrefix = "/clusters/"

// target is what a path "/clusters/<path>/<rest>" addresses. Rest stays as the client escaped it.
type target struct {
	path logicalcluster.Path
	rest string // starts with "/"
}

// parseTarget reads a URL below /clusters/. Whatever is odd about it is an error: the caller answers all alike.
func parseTarget(u *url.URL) (target, error) {
	raw, ok := strings.CutPrefix(u.EscapedPath(), clustersPrefix)
	if !ok {
		return target{}, fmt.Errorf("path does not start with %s", clustersPrefix)
	}
	segment, rest, ok := strings.Cut(raw, "/")
	if !ok {
		return target{}, logicalcluster.ErrNoClusterSegment
	}
	segment, err := url.PathUnescape(segment)
	if err != nil {
		return target{}, err
	}
	path, err := logicalcluster.ParsePath(segment)
	if err != nil {
		return target{}, err
	}
	return target{path: path, rest: "/" + rest}, nil
}

// climbs tells whether a path has "." or ".." segments once it is decoded. The backend may take them for steps, out
// of the cluster that was checked here.
func climbs(u *url.URL) bool {
	if !strings.Contains(u.Path, "/.") {
		return false
	}
	for _, segment := range strings.Split(u.Path, "/") {
		if segment == "." || segment == ".." {
			return true
		}
	}
	return false
}

// clusterInside returns the logical cluster that a path outside of /clusters/ names: the first segment after
// "/clusters/" that is followed by a slash.
func clusterInside(u *url.URL) (string, bool) {
	_, after, ok := strings.Cut(u.Path, clustersPrefix)
	if !ok {
		return "", false
	}
	segment, _, ok := strings.Cut(after, "/")
	return segment, ok
}

// appendPath returns base with the escaped path behind its own.
func appendPath(base *url.URL, escaped string) (*url.URL, error) {
	out := *base
	raw := strings.TrimSuffix(base.EscapedPath(), "/") + escaped
	path, err := url.PathUnescape(raw)
	if err != nil {
		return nil, fmt.Errorf("path %q: %w", raw, err)
	}
	out.Path, out.RawPath = path, raw
	return &out, nil
}

// inClusterHeader marks requests that already went through a proxy.
const inClusterHeader = "X-Kubernetes-Sharded-Request"

// bearer returns the bearer token of the request, or "".
func bearer(req *http.Request) string {
	scheme, token, _ := strings.Cut(req.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
