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
)

// responder writes the answers that the proxy gives itself, as a Kubernetes server would.
type responder struct{ codecs serializer.CodecFactory }

func newResponder() responder {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return responder{serializer.NewCodecFactory(scheme)}
}

// forbidden is the one answer for everything that is not there or not to be seen: unknown, invalid, the wildcard.
// It names no user, because nobody has been authenticated yet.
func (r responder) forbidden(w http.ResponseWriter, req *http.Request) {
	r.denied(w, req, &user.DefaultInfo{}, "workspace access not permitted")
}

func (r responder) denied(w http.ResponseWriter, req *http.Request, u user.Info, reason string) {
	attributes := authorizer.AttributesRecord{User: u, Verb: strings.ToLower(req.Method), Path: req.URL.Path}
	responsewriters.Forbidden(attributes, w, req, reason, r.codecs)
}

func (r responder) unauthorized(w http.ResponseWriter, req *http.Request) {
	r.error(w, req, apierrors.NewUnauthorized("Unauthorized"))
}

func (r responder) internal(w http.ResponseWriter, req *http.Request, message string) {
	r.error(w, req, apierrors.NewInternalError(errors.New(message)))
}

// absent says that a shard does not answer. Clients try again what the shard has not seen, or what may be done twice.
// Whether anything else was done is not known: who asked has to look.
func (r responder) absent(w http.ResponseWriter, req *http.Request, unsent bool) {
	if req.Context().Err() != nil {
		return // there is nobody left to tell
	}
	status := apierrors.NewServiceUnavailable("the shard of this workspace does not answer")
	if unsent || req.Method == http.MethodGet || req.Method == http.MethodHead {
		status.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	}
	r.error(w, req, status)
}

// undecided says that a shard that was not read yet may have what was asked for.
func (r responder) undecided(w http.ResponseWriter, req *http.Request) {
	status := apierrors.NewServiceUnavailable("a shard that may have this workspace does not answer")
	status.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	r.error(w, req, status)
}

func (r responder) error(w http.ResponseWriter, req *http.Request, err error) {
	responsewriters.ErrorNegotiated(err, r.codecs, schema.GroupVersion{Version: "v1"}, w, req)
}

// unavailable says that a workspace on the way is in phase Unavailable.
func unavailable(w http.ResponseWriter) {
	http.Error(w, "Not available.", http.StatusServiceUnavailable)
}
