package filters

import (
	"fmt"
	"mime"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/atoll-dev/atoll/shardserver/storage"
)

// requireIdentity refuses wildcard requests for objects of an exported API without its identity: the same name may be a
// different API in every logical cluster. Metadata requests are permitted, because metadata have the same schema in
// all.
func requireIdentity(req *http.Request, info *request.RequestInfo, resources *storage.Registry) error {
	gr := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
	builtin, err := resources.Get(gr)
	if err != nil || builtin.Identity() == "" || isMetadataRequest(req) {
		return nil
	}
	notFound := apierrors.NewGenericServerResponse(http.StatusNotFound, info.Verb, gr, "", "", 0, true)
	notFound.ErrStatus.Message = fmt.Sprintf(`the "*" logical cluster has no %s without an identity: ask for %s:<identity>, or for metadata`, gr, info.Resource)
	return notFound
}

// isMetadataRequest reports whether the preferred media type of the request is metadata only.
func isMetadataRequest(req *http.Request) bool {
	preferred, _, _ := strings.Cut(req.Header.Get("Accept"), ",")
	_, parameters, err := mime.ParseMediaType(preferred)
	return err == nil && parameters["g"] == metav1.GroupName && strings.HasPrefix(parameters["as"], "PartialObjectMetadata")
}
