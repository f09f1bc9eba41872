// Package audit adds the logical cluster of a request to the events of the stock audit log. Annotations of
// authorization come from package authorization; audit backends are upstream's.
package audit

import (
	"net/http"

	stockaudit "k8s.io/apiserver/pkg/audit"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// Annotations of events. All three contain the logical cluster, for clients of different versions.
const (
	clusterAnnotation   = "kcp.io/cluster"
	pathAnnotation      = "kcp.io/path"
	workspaceAnnotation = "tenancy.kcp.io/workspace"
	// rejectedAnnotation contains a path that is not available below a logical cluster.
	rejectedAnnotation = "shardpaths.kcp.io/rejected"
)

// WithCluster adds the logical cluster to the audit event of a request. It must run after the resolution of the path
// and before the stock chain, so that events of unauthenticated requests have it, too.
func WithCluster(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if cluster, ok := logicalcluster.From(req.Context()); ok {
			ctx := stockaudit.WithAuditContext(req.Context()) // the stock chain uses the same audit context
			stockaudit.AddAuditAnnotations(ctx,
				clusterAnnotation, cluster.String(), pathAnnotation, cluster.String(), workspaceAnnotation, cluster.String())
			req = req.WithContext(ctx)
		}
		handler.ServeHTTP(w, req)
	})
}

// NewRejectHandler returns a handler for requests to shard-level endpoints below a logical cluster. The response does not depend
// on the user, so it precedes authentication, but the request is audited.
func NewRejectHandler(generic *genericapiserver.Config) http.Handler {
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
