package audit

import (
	"context"
	"net/http"
	"net/url"
	"path"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"

	"github.com/atoll-dev/atoll/internal/responserecorder"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// NewDeletionRecorder returns a function that adds the deletion of an object in the context's logical cluster to the audit
// log, for controllers that delete objects without a request. The event is that of the request that the server would have
// sent to itself, as far as the audit policy logs it. The function is nil if there is no audit log.
func NewDeletionRecorder(generic *genericapiserver.Config) func(ctx context.Context, resource schema.GroupVersionResource, namespace, name string) {
	if generic.AuditBackend == nil || generic.AuditPolicyRuleEvaluator == nil {
		return nil
	}
	handler := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	handler = genericapifilters.WithAudit(handler, generic.AuditBackend, generic.AuditPolicyRuleEvaluator, nil)
	handler = genericapifilters.WithRequestInfo(handler, generic.RequestInfoResolver)
	handler = genericapifilters.WithRequestReceivedTimestamp(handler)
	handler = genericapifilters.WithAuditInit(WithCluster(handler))
	agent := rest.DefaultKubernetesUserAgent()
	return func(ctx context.Context, resource schema.GroupVersionResource, namespace, name string) {
		cluster, ok := logicalcluster.From(ctx)
		if !ok {
			return
		}
		ctx = logicalcluster.With(context.WithoutCancel(ctx), cluster)
		ctx = request.WithUser(ctx, &user.DefaultInfo{Name: user.APIServerUser, Groups: []string{user.SystemPrivilegedGroup}})
		req, err := http.NewRequestWithContext(ctx, http.MethodDelete, "/", http.NoBody)
		if err != nil {
			return // unreachable: method and URL are constant
		}
		req.URL = &url.URL{Path: pathOf(resource, namespace, name)} // names of RBAC may have any character but / and %
		req.RequestURI = req.URL.RequestURI()
		req.Header.Set("User-Agent", agent)
		req.RemoteAddr = "127.0.0.1:0"
		handler.ServeHTTP(responserecorder.New(), req)
	}
}

// pathOf returns the path of an object.
func pathOf(resource schema.GroupVersionResource, namespace, name string) string {
	prefix := path.Join("/apis", resource.Group, resource.Version)
	if resource.Group == "" {
		prefix = path.Join("/api", resource.Version)
	}
	if namespace != "" {
		prefix = path.Join(prefix, "namespaces", namespace)
	}
	return path.Join(prefix, resource.Resource, name)
}
