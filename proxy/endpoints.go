package proxy

import (
	"net/http"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/klog/v2"
)

func writeOK(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("ok"))
}

func (s *Server) serveReadyz(w http.ResponseWriter) {
	if s.shuttingDown.Err() != nil {
		http.Error(w, "shutting down", http.StatusServiceUnavailable)
		return
	}
	if s.shards != nil {
		if err := s.shards.Ready(); err != nil {
			// The error may name shards, which anonymous clients must not see.
			klog.V(2).InfoS("Not ready", "err", err)
			http.Error(w, "shards are not synced", http.StatusServiceUnavailable)
			return
		}
	}
	writeOK(w)
}

// serveMetrics serves users who may "get" the non-resource URL /metrics in root.
func (s *Server) serveMetrics(w http.ResponseWriter, req *http.Request) {
	u, err := s.authenticator.Authenticate(req, nil)
	if err != nil || u == nil {
		s.respond.authenticationError(w, req, err)
		return
	}
	if s.config.MetricsAuthorizer == nil {
		s.respond.denied(w, req, u, "access cannot be checked without --root-kubeconfig")
		return
	}
	decision, reason, err := s.config.MetricsAuthorizer.Authorize(req.Context(), authorizer.AttributesRecord{User: u, Verb: "get", Path: "/metrics"})
	switch {
	case err != nil:
		klog.ErrorS(err, "Failed to check access to /metrics")
		s.respond.internal(w, req, "access could not be checked")
	case decision != authorizer.DecisionAllow:
		s.respond.denied(w, req, u, reason)
	default:
		s.metricsHandler.ServeHTTP(w, req)
	}
}
