package virtualworkspaces

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

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
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/klog/v2"
)

// prefix is where all virtual workspaces live.
const prefix = "/services/"

// metricsPath is the page of this server's own metrics.
const metricsPath = "/metrics"

// The answers of a shard to who asks for more than a virtual workspace is.
const (
	reasonUnresolved    = "Path not resolved to a valid virtual workspace"
	reasonImpersonation = "impersonation is not available in virtual workspaces"
)

// Checks of readiness beside those of views. The view of cached resources is there where a feature gate of the shard is on.
const (
	shardCheck       = "shard"
	replicationCheck = "replication"
)

// views are the checks of readiness that a shard has for its virtual workspaces.
var views = []string{
	"apiexport", "apiresourceschema",
	"initializingworkspaces-wildcard-logicalclusters", "initializingworkspaces-logicalclusters", "initializingworkspaces-workspace-content",
	"terminatingworkspaces-wildcard-logicalclusters", "terminatingworkspaces-logicalclusters", "terminatingworkspaces-workspace-content",
}

func codecs() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return serializer.NewCodecFactory(scheme)
}

// Handler returns the whole chain. What needs no identity is the health of the process (wall W7); every other path goes
// to the shard, or nowhere.
func (s *Server) Handler() http.Handler {
	long := genericfilters.BasicLongRunningRequestCheck(sets.NewString("watch"), sets.NewString())
	handler := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == metricsPath {
			s.serveMetrics(w, req)
			return
		}
		s.serve(w, req)
	}))
	handler = genericapifilters.WithAudit(handler, s.audit.AuditBackend, s.audit.AuditPolicyRuleEvaluator, long)
	handler = s.identified(handler)
	handler = genericapifilters.WithRequestInfo(handler, s.audit.RequestInfoResolver)
	handler = genericapifilters.WithRequestReceivedTimestamp(handler)
	handler = genericapifilters.WithAuditInit(handler)
	handler = s.metrics.Measured(handler)

	mux := http.NewServeMux()
	healthz.InstallHandler(mux, healthz.PingHealthz)
	healthz.InstallLivezHandler(mux, healthz.PingHealthz)
	checks := []healthz.HealthChecker{healthz.NamedCheck(shardCheck, func(req *http.Request) error { return s.ready(req.Context(), "") })}
	for _, name := range append([]string{replicationCheck}, views...) {
		checks = append(checks, healthz.NamedCheck(name, func(req *http.Request) error { return s.ready(req.Context(), name) }))
	}
	healthz.InstallReadyzHandler(mux, checks...)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch first, _, _ := strings.Cut(strings.TrimPrefix(req.URL.Path, "/"), "/"); first {
		case "healthz", "livez", "readyz":
			mux.ServeHTTP(w, req)
		default:
			handler.ServeHTTP(w, req)
		}
	})
}

// ready asks the shard whether one of its virtual workspaces is ready or, without a name, the shard as a whole.
func (s *Server) ready(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	target := url.URL{Scheme: s.shard.Scheme, Host: s.shard.Host, Path: path.Join("/readyz", name)}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return err
	}
	answer, err := s.client.Do(req)
	if err != nil {
		return fmt.Errorf("asking the shard: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	_, _ = io.Copy(io.Discard, answer.Body) // so that the connection is used again
	if name == replicationCheck && answer.StatusCode == http.StatusNotFound {
		return nil // the shard has no such view
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the shard says %s", answer.Status)
	}
	return nil
}

// identified finds out who is asking. Who brings no certificate goes on without a name: the shard checks tokens.
func (s *Server) identified(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		u, err := s.auth.Authenticate(req, nil)
		if err != nil {
			klog.V(4).InfoS("A client is not known", "err", err)
			s.fail(w, req, apierrors.NewUnauthorized("Unauthorized"))
			return
		}
		if u != nil {
			req = req.WithContext(request.WithUser(req.Context(), u))
		}
		next.ServeHTTP(w, req)
	})
}

// serve passes a request on.
func (s *Server) serve(w http.ResponseWriter, req *http.Request) {
	u, known := request.UserFrom(req.Context())
	switch {
	case !strings.HasPrefix(req.URL.Path, prefix), !strings.HasPrefix(path.Clean(req.URL.Path)+"/", prefix):
		s.forbidden(w, req, reasonUnresolved)
		return
	case known && impersonates(req.Header):
		s.forbidden(w, req, reasonImpersonation)
		return
	}
	target := &url.URL{Scheme: s.shard.Scheme, Host: s.shard.Host, Path: req.URL.Path, RawPath: req.URL.RawPath}
	ctx, cancel := context.WithCancel(req.Context())
	defer cancel()
	if info, ok := request.RequestInfoFrom(ctx); isWatch(req) || ok && info.Verb == "watch" {
		defer context.AfterFunc(s.draining, cancel)()
	}
	if !known {
		s.plain.Forward(w, req.WithContext(ctx), s.shard.Host, target, nil)
		return
	}
	forwarded := req.Clone(ctx)
	forwarded.Header.Del("Authorization") // the certificate is what counts
	s.acting.Forward(w, forwarded, s.shard.Host, target, u)
}

func isWatch(req *http.Request) bool {
	value := req.URL.Query().Get("watch")
	return value != "" && value != "false" && value != "0"
}

// impersonates tells whether a client asks to be somebody else, in whatever spelling.
func impersonates(header http.Header) bool {
	for name := range header {
		if strings.HasPrefix(strings.ReplaceAll(strings.ToLower(name), "_", "-"), "impersonate-") {
			return true
		}
	}
	return false
}

func (s *Server) forbidden(w http.ResponseWriter, req *http.Request, reason string) {
	u, ok := request.UserFrom(req.Context())
	if !ok {
		u = &user.DefaultInfo{Name: user.Anonymous}
	}
	attributes := authorizer.AttributesRecord{User: u, Verb: strings.ToLower(req.Method), Path: req.URL.Path}
	responsewriters.Forbidden(attributes, w, req, reason, codecs())
}

func (s *Server) fail(w http.ResponseWriter, req *http.Request, err error) {
	responsewriters.ErrorNegotiated(err, codecs(), schema.GroupVersion{Version: "v1"}, w, req)
}
