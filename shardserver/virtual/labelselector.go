package virtual

import (
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
)

// WithLabelRequirements returns a request for those alone of the objects that it asks for whose labels fulfill more requirements. It
// replaces what other selectors the client may have put into the query besides the first, which is the one that counts.
func WithLabelRequirements(req *http.Request, more ...labels.Requirement) (*http.Request, error) {
	query := req.URL.Query()
	asked, err := labels.Parse(query.Get("labelSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("labelSelector: %v", err))
	}
	query.Set("labelSelector", asked.Add(more...).String())
	out := req.Clone(req.Context())
	out.URL.RawQuery = query.Encode()
	return out, nil
}
