package proxy

import (
	"context"
	"errors"
	"net/http"
	"runtime/debug"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/proxy/identity"
	"github.com/atoll-dev/atoll/proxy/index"
)

// handler puts the filters around the routes, outermost last: CORS, recovery, latency, in-cluster rewrite, routes.
func (s *Server) handler(routes http.Handler) http.Handler {
	h := inCluster(routes)
	h = s.drainable(h)
	h = s.local(h)
	h = s.metrics.Measured(h)
	h = s.recovered(h)
	return genericfilters.WithCORS(h, s.config.CORSAllowedOrigins, nil, nil, nil, "true")
}

// local answers the paths that are the proxy's own. They are the whole of what needs no identity (wall W7).
func (s *Server) local(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch req.URL.Path {
		case "/livez":
			ok(w)
		case "/readyz":
			s.readyz(w)
		case "/metrics":
			s.serveMetrics(w, req)
		default:
			next.ServeHTTP(w, req)
		}
	})
}

func ok(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("ok"))
}

func (s *Server) readyz(w http.ResponseWriter) {
	if s.draining.Err() != nil {
		http.Error(w, "shutting down", http.StatusServiceUnavailable)
		return
	}
	if s.shards != nil {
		if err := s.shards.Ready(); err != nil {
			// What is missing may name shards; that is for the log, not for who asks without an identity.
			klog.V(2).InfoS("Not ready", "reason", err.Error())
			http.Error(w, "shards are not synced", http.StatusServiceUnavailable)
			return
		}
	}
	ok(w)
}

// serveMetrics lets those in who may "get" the non-resource URL /metrics in root.
func (s *Server) serveMetrics(w http.ResponseWriter, req *http.Request) {
	u, err := s.auth.Authenticate(req, nil)
	if err != nil || u == nil {
		s.respond.unauthorized(w, req)
		return
	}
	if s.config.MetricsAuthorizer == nil {
		s.respond.denied(w, req, u, "no --root-kubeconfig to ask for access")
		return
	}
	decision, reason, err := s.config.MetricsAuthorizer.Authorize(req.Context(), authorizer.AttributesRecord{User: u, Verb: "get", Path: "/metrics"})
	switch {
	case err != nil:
		klog.ErrorS(err, "Cannot check access to /metrics")
		s.respond.internal(w, req, "access could not be checked")
	case decision != authorizer.DecisionAllow:
		s.respond.denied(w, req, u, reason)
	default:
		s.page.ServeHTTP(w, req)
	}
}

// inCluster lets stock clients in pods use the bare host: their token says which logical cluster they are in. The
// claim only chooses the way; whether the token is good is checked later.
func inCluster(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if path := req.URL.Path; !hasAnyPrefix(path, clustersPrefix, "/services/") && req.Header.Get(inClusterHeader) == "" {
			if cluster, claimed := identity.ClusterClaim(bearer(req)); claimed {
				prefix := cluster.Path().URLPath()
				rewritten := *req.URL
				rewritten.Path = prefix + req.URL.Path
				if req.URL.RawPath != "" {
					rewritten.RawPath = prefix + req.URL.RawPath
				}
				req = req.Clone(req.Context())
				req.URL = &rewritten
			}
		}
		next.ServeHTTP(w, req)
	})
}

func hasAnyPrefix(s string, prefixes ...string) bool {
	for _, prefix := range prefixes {
		if len(s) >= len(prefix) && s[:len(prefix)] == prefix {
			return true
		}
	}
	return false
}

// drainable ends watches and upgrades when the server begins to stop. They would otherwise hold the whole time of a
// graceful shutdown; their clients come back and land on another replica.
func (s *Server) drainable(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !longRunning(req) {
			next.ServeHTTP(w, req)
			return
		}
		if s.draining.Err() != nil {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "shutting down", http.StatusServiceUnavailable)
			return
		}
		ctx, cancel := context.WithCancel(req.Context())
		defer cancel()
		defer context.AfterFunc(s.draining, cancel)()
		next.ServeHTTP(w, req.WithContext(ctx))
	})
}

func longRunning(req *http.Request) bool {
	if req.Header.Get("Upgrade") != "" {
		return true
	}
	switch req.URL.Query().Get("watch") {
	case "", "0", "false":
	default:
		return true
	}
	return req.URL.Query().Get("follow") == "true"
}

// recovered turns a panic into a 500. An aborted answer stays aborted: that is how a backend's broken stream is told.
func (s *Server) recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		defer func() {
			switch p := recover(); {
			case p == nil:
			case errors.Is(asError(p), http.ErrAbortHandler):
				panic(p)
			default:
				klog.ErrorS(nil, "Panic while serving a request", "panic", p, "method", req.Method, "stack", string(debug.Stack()))
				s.respond.internal(w, req, "this request caused the proxy to fail")
			}
		}()
		next.ServeHTTP(w, req)
	})
}

func asError(p any) error {
	err, _ := p.(error)
	return err
}

// newIndexCollector returns the sizes of the index by shard.
func newIndexCollector(idx *index.Index) metrics.StableCollector {
	return &indexCollector{
		index: idx,
		desc:  metrics.NewDesc("kcp_indexed_logicalclusters", "Workspaces in the index, by shard.", []string{"shard"}, nil, metrics.ALPHA, ""),
		contested: metrics.NewDesc("atoll_front_proxy_contested_logicalclusters",
			"Logical clusters that a shard says it has, and another shard said so before it, which is believed; by the former.", []string{"shard"}, nil, metrics.ALPHA, ""),
	}
}

// newSourcesCollector returns whether the index follows what happens, by where it comes from.
func newSourcesCollector(from follower) metrics.StableCollector {
	return &sourcesCollector{from: from, desc: metrics.NewDesc("atoll_front_proxy_index_current",
		"1 while what is known of a source of the index follows what happens there, 0 while it is what was known last.", []string{"source"}, nil, metrics.ALPHA, "")}
}

type sourcesCollector struct {
	metrics.BaseStableCollector
	from follower
	desc *metrics.Desc
}

// DescribeWithStability implements metrics.StableCollector.
func (c *sourcesCollector) DescribeWithStability(ch chan<- *metrics.Desc) { ch <- c.desc }

// CollectWithStability implements metrics.StableCollector.
func (c *sourcesCollector) CollectWithStability(ch chan<- metrics.Metric) {
	for source, current := range c.from.Sources() {
		value := 0.0
		if current {
			value = 1
		}
		ch <- metrics.NewLazyConstMetric(c.desc, metrics.GaugeValue, value, source)
	}
}

// indexCollector counts when it is asked, so that updates of the index count nothing.
type indexCollector struct {
	metrics.BaseStableCollector
	index           *index.Index
	desc, contested *metrics.Desc
}

func (c *indexCollector) DescribeWithStability(ch chan<- *metrics.Desc) {
	ch <- c.desc
	ch <- c.contested
}

func (c *indexCollector) CollectWithStability(ch chan<- metrics.Metric) {
	snapshot := c.index.Load()
	for shard, n := range snapshot.Counts() {
		ch <- metrics.NewLazyConstMetric(c.desc, metrics.GaugeValue, float64(n), shard)
	}
	for shard, n := range snapshot.Contested() {
		ch <- metrics.NewLazyConstMetric(c.contested, metrics.GaugeValue, float64(n), shard)
	}
}
