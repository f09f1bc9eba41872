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

// withoutSchema refuses requests for the objects of an exported API in all logical clusters that do not say by which
// identity they are stored: a name alone may mean another API in every logical cluster. Metadata have the same shape in all
// of them.
func withoutSchema(req *http.Request, info *request.RequestInfo, resources *storage.Registry) error {
	gr := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
	compiledIn, err := resources.Get(gr)
	if err != nil || compiledIn.Identity() == "" || asksForMetadata(req) {
		return nil
	}
	refused := apierrors.NewGenericServerResponse(http.StatusNotFound, info.Verb, gr, "", "", 0, true)
	refused.ErrStatus.Message = fmt.Sprintf(`the "*" logical cluster has no %s without an identity: ask for %s:<identity>, or for metadata`, gr, info.Resource)
	return refused
}

// asksForMetadata tells whether what a client likes best are metadata alone.
func asksForMetadata(req *http.Request) bool {
	best, _, _ := strings.Cut(req.Header.Get("Accept"), ",")
	_, parameters, err := mime.ParseMediaType(best)
	return err == nil && parameters["g"] == metav1.GroupName && strings.HasPrefix(parameters["as"], "PartialObjectMetadata")
}
