package proxy

import (
	"errors"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"

	"github.com/atoll-dev/atoll/internal/serviceaccounttokens"
	"github.com/atoll-dev/atoll/proxy/backend"
	"github.com/atoll-dev/atoll/proxy/inflight"
)

// responder writes the proxy's own responses, as a Kubernetes server would.
type responder struct{ codecs serializer.CodecFactory }

func newResponder() responder {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return responder{serializer.NewCodecFactory(scheme)}
}

// resolutionError writes the response for a request whose path does not resolve.
func (r responder) resolutionError(w http.ResponseWriter, req *http.Request, err error) {
	switch {
	case errors.Is(err, errUnavailable):
		http.Error(w, "Not available.", http.StatusServiceUnavailable)
	case errors.Is(err, errNotSynced):
		status := apierrors.NewServiceUnavailable("the shard that has this workspace is not known at the moment")
		status.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
		r.error(w, req, status)
	case errors.Is(err, errMountLoop):
		http.Error(w, errMountLoop.Error(), http.StatusLoopDetected)
	case apierrors.IsInternalError(err):
		r.error(w, req, err)
	default:
		r.forbidden(w, req)
	}
}

// forbidden is the one response for unknown, invalid and wildcard clusters, so that it reveals nothing. It names no
// user, because no user has been authenticated yet.
func (r responder) forbidden(w http.ResponseWriter, req *http.Request) {
	r.denied(w, req, &user.DefaultInfo{}, "workspace access not permitted")
}

func (r responder) denied(w http.ResponseWriter, req *http.Request, u user.Info, reason string) {
	attributes := authorizer.AttributesRecord{User: u, Verb: strings.ToLower(req.Method), Path: req.URL.Path}
	responsewriters.Forbidden(attributes, w, req, reason, r.codecs)
}

// authenticationError writes the response for a request that cannot be authenticated. Clients repeat the request if the
// shard of their service account does not answer.
func (r responder) authenticationError(w http.ResponseWriter, req *http.Request, err error) {
	if !errors.Is(err, serviceaccounttokens.ErrUnavailable) {
		r.error(w, req, apierrors.NewUnauthorized("Unauthorized"))
		return
	}
	status := apierrors.NewServiceUnavailable(serviceaccounttokens.ErrUnavailable.Error())
	status.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	r.error(w, req, status)
}

// tooManyRequests is the response beyond the limit of concurrent requests of a user.
func (r responder) tooManyRequests(w http.ResponseWriter, req *http.Request) {
	r.error(w, req, apierrors.NewTooManyRequests(inflight.Message, 1))
}

func (r responder) internal(w http.ResponseWriter, req *http.Request, message string) {
	r.error(w, req, internalError(message))
}

func internalError(message string) error { return apierrors.NewInternalError(errors.New(message)) }

// shardUnavailable is the response when a shard does not answer. It has Retry-After only for requests that did not
// reach the shard or change nothing: clients repeat these. Any other request may have been executed. A body that cannot be
// read is an error of the client.
func (r responder) shardUnavailable(w http.ResponseWriter, req *http.Request, failure backend.Failure) {
	if req.Context().Err() != nil {
		return // the client has disconnected
	}
	if failure.Body != nil {
		r.error(w, req, apierrors.NewBadRequest("reading the body of the request: "+failure.Body.Error()))
		return
	}
	status := apierrors.NewServiceUnavailable("the shard of this workspace does not answer")
	if failure.Unsent || req.Method == http.MethodGet || req.Method == http.MethodHead {
		status.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	}
	r.error(w, req, status)
}

func (r responder) error(w http.ResponseWriter, req *http.Request, err error) {
	responsewriters.ErrorNegotiated(err, r.codecs, schema.GroupVersion{Version: "v1"}, w, req)
}
