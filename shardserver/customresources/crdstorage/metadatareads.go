package crdstorage

import (
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	clusterstorage "github.com/atoll-dev/atoll/shardserver/storage"
)

// MetadataHandler serves LIST and WATCH of the metadata of all objects of a resource, without a definition (contract 1.5).
type MetadataHandler struct {
	minTimeout time.Duration
	serializer *serializer
}

// NewMetadataHandler returns a server of metadata. Watches end after minRequestTimeout or up to twice as long, unless the client
// requests another timeout.
func NewMetadataHandler(minRequestTimeout time.Duration) *MetadataHandler {
	return &MetadataHandler{minTimeout: minRequestTimeout, serializer: newSerializer(nil, "", "metadata", false)}
}

// Serve serves a LIST or WATCH that accepts PartialObjectMetadataList (PartialObjectMetadata for a watch) from all given
// storages of a resource, in the logical cluster of the context, which may be the wildcard. For other requests it returns
// false and writes nothing. The version in the request is irrelevant: all versions have the same metadata.
func (m *MetadataHandler) Serve(w http.ResponseWriter, req *http.Request, resource schema.GroupResource, storages ...clusterstorage.Store) bool {
	info, ok := request.RequestInfoFrom(req.Context())
	if !ok || !info.IsResourceRequest || info.Subresource != "" || (info.Verb != "list" && info.Verb != "watch") || len(storages) == 0 {
		return false
	}
	scope := m.scope(resource, info.APIVersion)
	mediaType, _, err := negotiation.NegotiateOutputMediaType(req, scope.Serializer, scope)
	if err != nil || !isMetadata(mediaType.Convert, info.Verb) {
		return false
	}
	var list rest.Lister = mergedStores(storages)
	var watch rest.Watcher = mergedStores(storages)
	if len(storages) == 1 {
		list, watch = storages[0], storages[0]
	}
	withMetrics(info, false, handlers.ListResource(list, watch, scope, info.Verb == "watch", m.minTimeout))(w, req)
	return true
}

func (m *MetadataHandler) scope(resource schema.GroupResource, version string) *handlers.RequestScope {
	gvr := resource.WithVersion(version)
	scope := newRequestScope(gvr, gvr.GroupVersion().WithKind("PartialObjectMetadata"), true, nil)
	scope.Serializer = m.serializer
	return &scope
}
