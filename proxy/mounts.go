package proxy

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/atoll-dev/atoll/proxy/backend"
	"github.com/atoll-dev/atoll/proxy/index"
)

const (
	// maxMountHops is the number of mounts that a request may pass. A mount may lead to a front proxy, this one
	// included.
	maxMountHops = 4
	// mountBackend is the name of all mounts in metrics.
	mountBackend = "mount"
)

// parseMountURL parses the URL of a mount. Tenants write it: it must be https, with a host and a path only.
func parseMountURL(text string) (*url.URL, error) {
	base, err := url.Parse(text)
	if err != nil || base.Scheme != "https" || base.Host == "" || base.User != nil || base.RawQuery != "" || base.Fragment != "" {
		return nil, fmt.Errorf("the URL of a mount must start with https:// and have neither user nor query nor fragment")
	}
	return base, nil
}

// resolveMount returns the server that is mounted as a workspace.
func resolveMount(req *http.Request, route index.Route, rest string) (destination, error) {
	base, err := parseMountURL(route.Mount)
	if err != nil {
		return destination{}, internalError("the URL of the mount is invalid")
	}
	header := req.Header.Get(backend.MountHopsHeader)
	hops, err := strconv.Atoi(header)
	if hops < 0 || err != nil && header != "" {
		hops = maxMountHops // a malformed value counts as the limit
	}
	if hops >= maxMountHops {
		return destination{}, errMountLoop
	}
	location, err := appendPath(base, rest)
	return destination{backend: mountBackend, url: location, mountHops: hops + 1}, err
}

// mountRequest returns the request as it is sent to a mount: with the number of hops, and without the credentials of
// the caller, which the server of a mount could use to act as the caller. It receives the user in the identity
// headers, as a shard does, if it has a certificate of the CA of shards; otherwise no connection is made.
func mountRequest(req *http.Request, hops int) *http.Request {
	req = req.Clone(req.Context())
	removeCredentials(req.Header)
	req.Header.Set(backend.MountHopsHeader, strconv.Itoa(hops))
	return req
}

// bearerProtocol is the prefix of the WebSocket protocol in which browsers send a bearer token.
const bearerProtocol = "base64url.bearer.authorization.k8s.io."

// removeCredentials removes all headers that authenticate the caller.
func removeCredentials(header http.Header) {
	for name := range header {
		switch strings.ReplaceAll(strings.ToLower(name), "_", "-") {
		case "authorization", "cookie", "proxy-authorization":
			delete(header, name)
		}
	}
	var protocols []string
	for _, values := range header.Values("Sec-WebSocket-Protocol") {
		for protocol := range strings.SplitSeq(values, ",") {
			if protocol = strings.TrimSpace(protocol); !strings.HasPrefix(protocol, bearerProtocol) {
				protocols = append(protocols, protocol)
			}
		}
	}
	header.Del("Sec-WebSocket-Protocol")
	if len(protocols) > 0 {
		header.Set("Sec-WebSocket-Protocol", strings.Join(protocols, ", "))
	}
}
