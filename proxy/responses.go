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

func (r responder) error(w http.ResponseWriter, req *http.Request, err error) {
	responsewriters.ErrorNegotiated(err, r.codecs, schema.GroupVersion{Version: "v1"}, w, req)
}

// unavailable says that a workspace on the way is in phase Unavailable.
func unavailable(w http.ResponseWriter) {
	http.Error(w, "Not available.", http.StatusServiceUnavailable)
}
