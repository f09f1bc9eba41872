package proxy

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/proxy/index"
)

const (
	// mountHopsHeader counts the mounts that a request went through. A mount may lead to a proxy again, this one too.
	mountHopsHeader = "X-Atoll-Mount-Hops"
	// maxMountHops is how many are plenty.
	maxMountHops = 4
	// mountLabel stands for all mounts in metrics.
	mountLabel = "mount"
)

// mountURL reads where a mount leads. It was written by a tenant: it must be https and nothing but a place.
func mountURL(text string) (*url.URL, error) {
	base, err := url.Parse(text)
	if err != nil || base.Scheme != "https" || base.Host == "" || base.User != nil || base.RawQuery != "" || base.Fragment != "" {
		return nil, fmt.Errorf("the URL of a mount must start with https:// and hold neither user nor query nor fragment")
	}
	return base, nil
}

// serveMount sends a request to the server that a workspace stands for. That server learns who asks, as a shard would,
// if it has a certificate of the CA of shards; otherwise there is no connection. It never gets credentials with which
// it could ask others in the caller's name.
func (r *shardRoute) serveMount(w http.ResponseWriter, req *http.Request, route index.Route, rest string) {
	base, err := mountURL(route.Mount)
	if err != nil {
		r.respond.internal(w, req, "the URL of the mount is invalid")
		return
	}
	hops, err := strconv.Atoi(req.Header.Get(mountHopsHeader))
	if hops < 0 || err != nil && req.Header.Get(mountHopsHeader) != "" {
		hops = maxMountHops // whoever wrote that does not count
	}
	if hops >= maxMountHops {
		http.Error(w, "too many mounts lead to each other", http.StatusLoopDetected)
		return
	}
	u, err := r.auth.Authenticate(req, nil)
	if err != nil {
		klog.V(2).InfoS("Unable to authenticate the request", "err", err)
		r.respond.unauthorized(w, req)
		return
	}
	to, err := appendPath(base, rest)
	if err != nil {
		r.respond.forbidden(w, req)
		return
	}
	req = req.Clone(req.Context())
	withoutCredentials(req.Header)
	req.Header.Set(mountHopsHeader, strconv.Itoa(hops+1))
	r.forward.Forward(w, req, mountLabel, to, u)
}

// bearerProtocol starts the WebSocket protocols in which browsers hide a token.
const bearerProtocol = "base64url.bearer.authorization.k8s.io."

// withoutCredentials removes everything from headers that proves who the caller is.
func withoutCredentials(header http.Header) {
	for name := range header {
		switch strings.ReplaceAll(strings.ToLower(name), "_", "-") {
		case "authorization", "cookie", "proxy-authorization":
			delete(header, name)
		}
	}
	var protocols []string
	for _, values := range header.Values("Sec-WebSocket-Protocol") {
		for _, protocol := range strings.Split(values, ",") {
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
