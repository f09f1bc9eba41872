package virtual

import (
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
)

// WithLabelRequirements returns the request with requirements added to its label selector. Only the first labelSelector
// of the query counts, so that further ones are dropped.
func WithLabelRequirements(req *http.Request, requirements ...labels.Requirement) (*http.Request, error) {
	query := req.URL.Query()
	selector, err := labels.Parse(query.Get("labelSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("labelSelector: %v", err))
	}
	query.Set("labelSelector", selector.Add(requirements...).String())
	out := req.Clone(req.Context())
	out.URL.RawQuery = query.Encode()
	return out, nil
}
