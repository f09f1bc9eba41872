package apiexport

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/atoll-dev/atoll/shardserver/virtual"
)

// forward converts a request into one for the handlers of the shard: it adds the identity to the resource name and the
// visibility label to the selector.
func (r *resourceRequest) forward(req *http.Request) (*http.Request, error) {
	forwarded := req
	var err error
	if r.resource.identity != "" {
		if forwarded, err = withResource(req, r.info, r.resource.Resource+":"+r.resource.identity); err != nil {
			return nil, err
		}
	}
	key, values := r.set.visibilityLabel(r.resource)
	if key == "" || !slices.Contains([]string{"list", "watch", "deletecollection"}, r.info.Verb) {
		return forwarded, nil
	}
	return withLabel(forwarded, key, values)
}

// withResource returns a request with another resource name in its path.
func withResource(req *http.Request, info *request.RequestInfo, name string) (*http.Request, error) {
	path := strings.TrimSuffix(req.URL.Path, "/")
	prefix, ok := strings.CutSuffix(path, "/"+strings.Join(info.Parts, "/"))
	if !ok || len(info.Parts) == 0 {
		return nil, fmt.Errorf("the path %q does not end in %q", path, info.Parts)
	}
	renamed := *info
	renamed.Resource = name
	renamed.Parts = append([]string{name}, info.Parts[1:]...)
	renamed.Path = prefix + "/" + strings.Join(renamed.Parts, "/")
	out := req.Clone(request.WithRequestInfo(req.Context(), &renamed))
	out.URL.Path, out.URL.RawPath = renamed.Path, ""
	return out, nil
}

// withLabel returns a request restricted to objects whose label has one of the values.
func withLabel(req *http.Request, key string, values []string) (*http.Request, error) {
	requirement, err := labels.NewRequirement(key, selection.In, values)
	if err != nil {
		return nil, fmt.Errorf("building the selector of visible objects: %w", err)
	}
	return virtual.WithLabelRequirements(req, *requirement)
}
