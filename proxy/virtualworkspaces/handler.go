package virtualworkspaces

import (
	"context"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/internal/writetimeout"
	"github.com/atoll-dev/atoll/proxy/backend"
	"github.com/atoll-dev/atoll/proxy/inflight"
)

const (
	// servicesPrefix is the path prefix of all virtual workspaces.
	servicesPrefix = "/services/"
	// metricsPath is the path of this server's own metrics.
	metricsPath = "/metrics"
)

// Messages of status 403, as on a shard.
const (
	messageUnresolved    = "Path not resolved to a valid virtual workspace"
	messageImpersonation = "impersonation is not available in virtual workspaces"
)

// Handler returns the path of a request through the server: the filters, listed in the order in which a request
// passes them, and then this server's metrics or the shard.
func (s *Server) Handler() http.Handler {
	filters := []func(http.Handler) http.Handler{
		s.options.WriteTimeouts.WithTimeouts,
		withHealthEndpoints(s.newHealthMux()), // everything below needs the outcome of authentication
		s.metrics.WithRequestDuration,
		genericapifilters.WithAuditInit,
		genericapifilters.WithRequestReceivedTimestamp,
		s.withRequestInfo,
		s.withAuthentication,
		s.withAudit,
		s.withMetricsEndpoint,
	}
	handler := http.Handler(http.HandlerFunc(s.forward))
	for _, filter := range slices.Backward(filters) {
		handler = filter(handler)
	}
	return handler
}

func (s *Server) withRequestInfo(next http.Handler) http.Handler {
	return genericapifilters.WithRequestInfo(next, s.audit.RequestInfoResolver)
}

// withAuthentication authenticates requests with a client certificate. Others have no user here: the shard verifies
// tokens.
func (s *Server) withAuthentication(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		u, err := s.authenticator.Authenticate(req, nil)
		if err != nil {
			klog.V(4).InfoS("Failed to authenticate the request", "err", err)
			s.error(w, req, apierrors.NewUnauthorized("Unauthorized"))
			return
		}
		if u != nil {
			req = req.WithContext(request.WithUser(req.Context(), u))
		}
		next.ServeHTTP(w, req)
	})
}

func (s *Server) withAudit(next http.Handler) http.Handler {
	isLongRunning := genericfilters.BasicLongRunningRequestCheck(sets.NewString("watch"), sets.NewString())
	return genericapifilters.WithAudit(next, s.audit.AuditBackend, s.audit.AuditPolicyRuleEvaluator, isLongRunning)
}

func (s *Server) withMetricsEndpoint(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == metricsPath {
			s.serveMetrics(w, req)
			return
		}
		next.ServeHTTP(w, req)
	})
}

// forward sends a request for a virtual workspace to the shard: on behalf of the authenticated user, or with the
// token of the client for the shard to verify.
func (s *Server) forward(w http.ResponseWriter, req *http.Request) {
	u, authenticated := request.UserFrom(req.Context())
	if !strings.HasPrefix(req.URL.Path, servicesPrefix) || !strings.HasPrefix(path.Clean(req.URL.Path)+"/", servicesPrefix) {
		s.forbidden(w, req, messageUnresolved)
		return
	}
	if authenticated && hasImpersonation(req.Header) {
		s.forbidden(w, req, messageImpersonation)
		return
	}
	release, ok := s.inFlight.Acquire(inflight.UserOf(req, u), backend.IsLongRunning(req))
	if !ok {
		s.error(w, req, apierrors.NewTooManyRequests(inflight.Message, 1))
		return
	}
	defer release()
	ctx, cancel := context.WithCancel(req.Context())
	defer cancel()
	if info, ok := request.RequestInfoFrom(ctx); writetimeout.IsWatch(req) || ok && info.Verb == "watch" {
		defer context.AfterFunc(s.shuttingDown, cancel)()
	}
	target := &url.URL{Scheme: s.shard.Scheme, Host: s.shard.Host, Path: req.URL.Path, RawPath: req.URL.RawPath}
	if !authenticated {
		s.anonymous.Forward(w, req.WithContext(ctx), s.shard.Host, target, nil)
		return
	}
	forwarded := req.Clone(ctx)
	forwarded.Header.Del("Authorization") // the certificate has authenticated the client
	s.impersonating.Forward(w, forwarded, s.shard.Host, target, u)
}

// hasImpersonation reports whether there is an impersonation header, in any spelling.
func hasImpersonation(header http.Header) bool {
	for name := range header {
		if strings.HasPrefix(strings.ReplaceAll(strings.ToLower(name), "_", "-"), "impersonate-") {
			return true
		}
	}
	return false
}

func newCodecs() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return serializer.NewCodecFactory(scheme)
}

func (s *Server) forbidden(w http.ResponseWriter, req *http.Request, message string) {
	u, ok := request.UserFrom(req.Context())
	if !ok {
		u = &user.DefaultInfo{Name: user.Anonymous}
	}
	attributes := authorizer.AttributesRecord{User: u, Verb: strings.ToLower(req.Method), Path: req.URL.Path}
	responsewriters.Forbidden(attributes, w, req, message, s.codecs)
}

func (s *Server) error(w http.ResponseWriter, req *http.Request, err error) {
	responsewriters.ErrorNegotiated(err, s.codecs, schema.GroupVersion{Version: "v1"}, w, req)
}
