package fence

import (
	"context"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/internal/movestate"
	"github.com/atoll-dev/atoll/logicalcluster"
)

const (
	// Message is the text of refusals that clients repeat, and ExpiredMessage that of refusals after which they list again.
	Message        = "logical cluster is being migrated"
	ExpiredMessage = "logical cluster is being migrated to another shard; relist required"

	retryAfterSeconds = 1
	// epochTimeout bounds how long a request waits until the storage knows the epoch of its logical cluster.
	epochTimeout = 2 * time.Second
)

// Filter answers requests to logical clusters that move, of all users.
type Filter struct {
	RequestInfo   request.RequestInfoResolver
	IsLongRunning request.LongRunningRequestCheck
	// IsExempt reports whether a request is one of another shard for the content of the logical cluster.
	IsExempt func(*http.Request) bool
	// AwaitEpoch returns when the storage uses the epoch that the annotations express, and with that, shows the content: a logical
	// cluster that arrives has none, and one that has arrived does.
	AwaitEpoch func(ctx context.Context, cluster logicalcluster.Name, annotations map[string]string) error
	Serializer runtime.NegotiatedSerializer
	// Answers reports whether the shard knows that it has a logical cluster, see Fence.Answers.
	Answers func(cluster logicalcluster.Name) bool
}

// WithAnswers refuses requests of virtual workspaces to all logical clusters while a restored shard does not know which of them it still has.
// All other requests to all logical clusters are requests of servers.
func (f *Filter) WithAnswers(handler http.Handler, isView func(*http.Request) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if cluster, ok := logicalcluster.From(req.Context()); ok && cluster.IsWildcard() && !f.Answers(cluster) && isView(req) && !f.IsExempt(req) {
			f.refuse(w, req, messageUnconfirmed)
			return
		}
		handler.ServeHTTP(w, req)
	})
}

// Answer answers the request if the logical cluster with these annotations does not serve it, and reports whether it has.
func (f *Filter) Answer(w http.ResponseWriter, req *http.Request, annotations map[string]string) bool {
	state := movestate.Of(annotations)
	if IsMover(req.Context()) || f.IsExempt(req) {
		return false
	}
	if cluster, ok := logicalcluster.From(req.Context()); ok && !f.Answers(cluster) {
		f.refuse(w, req, messageUnconfirmed)
		return true
	}
	if !state.IsHidden() && !f.hasEpoch(req, annotations) {
		f.refuse(w, req, Message)
		return true
	}
	if state == movestate.Open {
		return false
	}
	info, err := f.RequestInfo.NewRequestInfo(req)
	answer := Unavailable
	if err == nil {
		answer = Decide(state, f.requestOf(req, info))
	}
	switch answer {
	case Serve:
		return false
	case Expired:
		responsewriters.ErrorNegotiated(apierrors.NewResourceExpired(ExpiredMessage), f.Serializer, schema.GroupVersion{}, w, req)
	default:
		f.refuse(w, req, Message)
	}
	return true
}

// hasEpoch reports whether the storage uses the epoch of the logical cluster. Otherwise the request would get resource versions of
// another one.
func (f *Filter) hasEpoch(req *http.Request, annotations map[string]string) bool {
	if _, moved := annotations[corev1alpha1.EpochAnnotationKey]; !moved {
		return true
	}
	cluster, ok := logicalcluster.From(req.Context())
	if !ok {
		return true
	}
	ctx, cancel := context.WithTimeout(req.Context(), epochTimeout)
	defer cancel()
	return f.AwaitEpoch(ctx, cluster, annotations) == nil
}

func (*Filter) refuse(w http.ResponseWriter, req *http.Request, message string) {
	if !isDirect(req.Context()) {
		w.Header().Set("Retry-After", strconv.Itoa(retryAfterSeconds))
	}
	w.Header().Set(logicalcluster.MovingHeader, "true") // front proxies repeat reads
	http.Error(w, message, http.StatusServiceUnavailable)
}

func (f *Filter) requestOf(req *http.Request, info *request.RequestInfo) Request {
	query := req.URL.Query()
	r := Request{
		Verb: info.Verb, LongRunning: f.IsLongRunning(req, info),
		ResourceVersion: query.Get("resourceVersion"), Continue: query.Get("continue"),
	}
	if info.IsResourceRequest {
		r.Group, r.Resource, r.Subresource = info.APIGroup, info.Resource, info.Subresource
	}
	return r
}

// newRefusal returns the refusal of a write below HTTP.
func newRefusal(ctx context.Context, message string) error {
	refusal := apierrors.NewServiceUnavailable(message)
	if !isDirect(ctx) {
		refusal.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: retryAfterSeconds}
	}
	return refusal
}
