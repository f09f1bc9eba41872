// Package audit adds the logical cluster of a request to the events of the stock audit log, and sends events to several backends by a policy
// of each. Annotations of authorization come from package authorization; audit backends are upstream's, or in the folders below.
package audit

import (
	"net/http"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	stockaudit "k8s.io/apiserver/pkg/audit"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/authentication"
)

// Annotations of events. All three contain the logical cluster, for clients of different versions.
const (
	clusterAnnotation   = "kcp.io/cluster"
	pathAnnotation      = "kcp.io/path"
	workspaceAnnotation = "tenancy.kcp.io/workspace"
	// rejectedAnnotation contains a path that is not available below a logical cluster.
	rejectedAnnotation = "shardpaths.kcp.io/rejected"
	// ViewAnnotation contains the virtual workspace of a request to one, and its owner. Package virtual adds it.
	ViewAnnotation = "virtual.kcp.io/workspace"
	// sourceAnnotation contains the Source of a request. Webhooks and policies of tenants can add annotations, but not change one.
	sourceAnnotation = "audit.kcp.io/source"
)

// Source is how a request came to its logical cluster.
type Source string

// Sources of requests.
const (
	SourceWorkspace Source = "workspace" // by the URL of the logical cluster
	SourceView      Source = "view"      // by that of a virtual workspace
	SourceMount     Source = "mount"     // to a workspace that is mounted from another server
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

// WithSource adds the Source to the audit event of a request. It must run where WithCluster does.
func WithSource(handler http.Handler, sourceOf func(*http.Request) Source) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if _, ok := logicalcluster.From(req.Context()); ok {
			ctx := stockaudit.WithAuditContext(req.Context())
			stockaudit.AddAuditAnnotation(ctx, sourceAnnotation, string(sourceOf(req)))
			req = req.WithContext(ctx)
		}
		handler.ServeHTTP(w, req)
	})
}

// ClusterOf returns the logical cluster of an event of a request with WithCluster. It may be the wildcard.
func ClusterOf(event *auditinternal.Event) (logicalcluster.Name, bool) {
	name := event.Annotations[clusterAnnotation]
	if name == logicalcluster.Wildcard.String() {
		return logicalcluster.Wildcard, true
	}
	cluster, err := logicalcluster.ParseName(name)
	return cluster, err == nil
}

// SourceOf returns the Source of an event of a request with WithSource, otherwise an empty one.
func SourceOf(event *auditinternal.Event) Source { return Source(event.Annotations[sourceAnnotation]) }

// ClientAddress returns the address of the client of an event: the first one, if a front proxy has sent the request, which sets it. Otherwise all but
// the last come from headers of the client.
func ClientAddress(event *auditinternal.Event) string {
	addresses := event.SourceIPs
	switch {
	case len(addresses) == 0:
		return ""
	case event.Annotations[authentication.FrontProxyAnnotation] != "":
		return addresses[0]
	}
	return addresses[len(addresses)-1]
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
