package backend

import (
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/atoll-dev/atoll/proxy/identity"
)

// MountHopsHeader counts the mounts that a request has passed.
const MountHopsHeader = "X-Atoll-Mount-Hops"

// forwardedHeaders are the headers of a client that are sent to a backend, in canonical form. All others are dropped,
// in whatever spelling: cookies, trailers, credentials of other proxies, and above all identity headers. Host,
// Content-Length and X-Forwarded-* are not copied but written for the outbound request.
var forwardedHeaders = sets.New(
	// the body and its representation
	"Accept", "Accept-Encoding", "Content-Type", "Content-Encoding",
	// caches and conditional requests: discovery and OpenAPI documents
	"If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since", "If-Range", "Range", "Cache-Control",
	// credentials that shards verify; authenticators remove the ones that they have used
	"Authorization",
	// impersonation, which shards authorize; see also impersonateExtraPrefix
	"Impersonate-User", "Impersonate-Uid", "Impersonate-Group",
	// upgrades to SPDY and WebSocket
	"Connection", "Upgrade", "X-Stream-Protocol-Version",
	"Sec-Websocket-Key", "Sec-Websocket-Version", "Sec-Websocket-Protocol", "Sec-Websocket-Extensions",
	// CORS, where shards are configured for it
	"Origin", "Access-Control-Request-Method", "Access-Control-Request-Headers",
	// the client in audit logs and traces
	"User-Agent", "Kubectl-Command", "Kubectl-Session", "Audit-Id", "X-Request-Id", "Traceparent", "Tracestate", "Baggage",
	// kcp: loop detection, and a review that shards accept from system:masters only
	"X-Kubernetes-Sharded-Request", "X-Kcp-Virtual-Resource-Hops", MountHopsHeader, "X-Kcp-Internal-Deep-Subjectaccessreview",
)

// impersonateExtraPrefix starts the headers with the extra of an impersonated user, whose keys are free.
const impersonateExtraPrefix = "Impersonate-Extra-"

// outboundHeaders returns the headers of a client that are sent to a backend which reads the user from the identity
// headers. These are never among them.
func outboundHeaders(in http.Header, names identity.HeaderNames) http.Header {
	out := make(http.Header, len(in)+4)
	for name, values := range in {
		if (forwardedHeaders.Has(name) || strings.HasPrefix(name, impersonateExtraPrefix)) && !names.IsReserved(name) {
			out[name] = values
		}
	}
	return out
}
