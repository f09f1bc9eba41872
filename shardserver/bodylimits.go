package shardserver

import (
	"net/http"
	"slices"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes/scheme"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/internal/nesting"
	"github.com/atoll-dev/atoll/shardserver/apis/apiextensions"
)

// definitionResources define other resources. Their objects are compiled, for which they may be smaller than other objects.
var definitionResources = []schema.GroupResource{apiextensions.Definitions, apisv1alpha2.Resource("apiresourceschemas")}

const (
	// maxDefinitionBytes bounds the body of a request for a definition.
	maxDefinitionBytes = 1 << 20
	// maxStoredDefinitionBytes bounds a definition as it is stored, after defaults and patches, with its status and its managed
	// fields, for which it leaves room. etcd stores 1.5 MiB.
	maxStoredDefinitionBytes = maxDefinitionBytes + maxDefinitionBytes/4
)

// bodyLimits returns what the shard accepts as the body of a request.
func (d *dependencies) bodyLimits(generic *genericapiserver.Config) nesting.BodyConfig {
	return nesting.BodyConfig{
		Levels:   d.limits.Request,
		MaxBytes: generic.MaxRequestBodyBytes,
		// Kinds that the stock handler of custom resources decodes itself are in this scheme.
		Protobuf: []*nesting.Checker{nesting.NewChecker(scheme.Scheme)},
		DefaultKind: func(req *http.Request) *schema.GroupVersionKind {
			if info, ok := request.RequestInfoFrom(req.Context()); ok && info.Subresource == "scale" {
				kind := autoscalingv1.SchemeGroupVersion.WithKind("Scale")
				return &kind
			}
			return nil
		},
		MaxBytesOf: func(req *http.Request) (int64, string) {
			info, ok := request.RequestInfoFrom(req.Context())
			if !ok || !info.IsResourceRequest {
				return 0, ""
			}
			resource := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
			if !slices.Contains(definitionResources, resource) {
				return 0, ""
			}
			return maxDefinitionBytes, resource.String()
		},
		WriteError: func(err error, w http.ResponseWriter, req *http.Request) {
			var version schema.GroupVersion
			if info, ok := request.RequestInfoFrom(req.Context()); ok {
				version = schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
			}
			responsewriters.ErrorNegotiated(err, generic.Serializer, version, w, req)
		},
	}
}
