// Package audit adds to the events of the stock audit log what a shard knows beside: the logical cluster of a request.
// What an event says of authorization comes from package authorization; where events go is upstream's.
package audit

import (
	"net/http"

	stockaudit "k8s.io/apiserver/pkg/audit"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// Annotations of events. All three name the logical cluster, which clients of different age look for.
const (
	clusterAnnotation   = "kcp.io/cluster"
	pathAnnotation      = "kcp.io/path"
	workspaceAnnotation = "tenancy.kcp.io/workspace"
	// rejectedAnnotation holds the path that was refused below a logical cluster.
	rejectedAnnotation = "shardpaths.kcp.io/rejected"
)

// WithCluster names the logical cluster in the event of a request. It belongs behind the resolution of the path and in
// front of the stock chain, so that requests which nobody authenticates are named too.
func WithCluster(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if cluster, ok := logicalcluster.From(req.Context()); ok {
			ctx := stockaudit.WithAuditContext(req.Context()) // the stock chain goes on with it
			stockaudit.AddAuditAnnotations(ctx,
				clusterAnnotation, cluster.String(), pathAnnotation, cluster.String(), workspaceAnnotation, cluster.String())
			req = req.WithContext(ctx)
		}
		handler.ServeHTTP(w, req)
	})
}

// Refused returns a handler that answers requests for endpoints of the whole shard below a logical cluster: all alike,
// and so before anybody is authenticated, but not without an event.
func Refused(generic *genericapiserver.Config) http.Handler {
	handler := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		stockaudit.AddAuditAnnotation(req.Context(), rejectedAnnotation, req.URL.Path)
		http.Error(w, "shard-level endpoint not available at workspace scope", http.StatusNotImplemented)
	}))
	handler = genericapifilters.WithAudit(handler, generic.AuditBackend, generic.AuditPolicyRuleEvaluator, generic.LongRunningFunc)
	handler = genericapifilters.WithRequestInfo(handler, generic.RequestInfoResolver)
	handler = genericapifilters.WithRequestReceivedTimestamp(handler)
	handler = genericapifilters.WithAuditInit(handler)
	return WithCluster(handler)
}
