package nesting

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// BodyConfig configures WithBodyLimits.
type BodyConfig struct {
	// Levels is Limits.Request.
	Levels int
	// Protobuf contains the types of bodies in protobuf that handlers decode with their own decoders. DefaultKind, if set, is the kind of
	// a body that names none.
	Protobuf    []*Checker
	DefaultKind func(*http.Request) *schema.GroupVersionKind
	// MaxBytes bounds a body.
	MaxBytes int64
	// MaxBytesOf returns a smaller bound for a request, and what the body is, or 0.
	MaxBytesOf func(*http.Request) (maxBytes int64, what string)
	// WriteError writes the response of a request that is refused.
	WriteError func(err error, w http.ResponseWriter, req *http.Request)
}

// WithBodyLimits returns a handler that refuses requests with bodies that nest too deep, are too large or cannot be read, with status 400
// or 413. It is the only place that reads bodies which stock handlers decode with their own decoders: patches, options of deletions,
// custom resources. It reads the whole body at once, like these handlers. Protobuf has no levels without its type: the decoders of a
// Checker must check bodies that name no kind.
func WithBodyLimits(handler http.Handler, config BodyConfig) http.Handler {
	config.Protobuf = append(slices.Clone(config.Protobuf), NewChecker(scheme.Scheme)) // of options
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !mayHaveBody(req) {
			handler.ServeHTTP(w, req)
			return
		}
		body, err := config.readBody(req)
		if err == nil {
			err = config.checkBody(req, body)
		}
		if err != nil {
			config.WriteError(err, w, req)
			return
		}
		checked := *req
		checked.Body = &bufferedBody{bytes.NewReader(body), req.Body}
		handler.ServeHTTP(w, &checked)
	})
}

func mayHaveBody(req *http.Request) bool {
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false // no handler reads it
	}
	return req.Body != nil && req.Body != http.NoBody && req.ContentLength != 0
}

// bufferedBody is a body that has been read.
type bufferedBody struct {
	io.Reader
	io.Closer
}

// readBody returns the body of a request, or the error of the response.
func (c BodyConfig) readBody(req *http.Request) ([]byte, error) {
	limit, what := c.MaxBytes, ""
	if c.MaxBytesOf != nil {
		if smaller, of := c.MaxBytesOf(req); smaller > 0 && smaller < limit {
			limit, what = smaller, of
		}
	}
	body, err := io.ReadAll(io.LimitReader(req.Body, limit+1))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", tooLarge.Limit))
	case err != nil:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("reading the body of the request: %v", err))
	case int64(len(body)) > limit && what != "":
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the body of %s has a limit of %d bytes", what, limit))
	case int64(len(body)) > limit:
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", limit))
	}
	return body, nil
}

// checkBody checks the levels of a body, in the encoding of its media type. Handlers differ in how they parse invalid media types, and
// the first encoding is JSON, so all others are checked as JSON.
func (c BodyConfig) checkBody(req *http.Request, body []byte) error {
	media, _, _ := strings.Cut(strings.ToLower(req.Header.Get("Content-Type")), ";")
	var err error
	switch media = strings.TrimSpace(media); {
	case media == runtime.ContentTypeProtobuf:
		err = c.checkProtobuf(req, body)
	case media == string(types.JSONPatchType):
		err = CheckJSONPatch(body, c.Levels)
	case media == string(types.StrategicMergePatchType):
		err = checkStrategicMergePatch(body, c.Levels)
	case strings.HasSuffix(media, "yaml"):
		err = CheckYAML(body, c.Levels)
	case strings.HasSuffix(media, "cbor"):
		err = CheckCBOR(body, c.Levels)
	default:
		err = CheckJSON(body, c.Levels)
	}
	var tooMany *TooManyError
	switch {
	case errors.As(err, &tooMany):
		return apierrors.NewRequestEntityTooLargeError(tooMany.Error()) // the stock response to patches beyond its own limit
	case err != nil:
		return apierrors.NewBadRequest(fmt.Sprintf("the body of the request cannot be accepted: %v", err))
	}
	return nil
}

func (c BodyConfig) checkProtobuf(req *http.Request, body []byte) error {
	var kind *schema.GroupVersionKind
	if req.Method == http.MethodDelete {
		kind = &schema.GroupVersionKind{Group: metav1.GroupName, Version: "v1", Kind: "DeleteOptions"}
	} else if c.DefaultKind != nil {
		kind = c.DefaultKind(req)
	}
	for _, checker := range c.Protobuf {
		if err := checker.CheckProtobuf(body, c.Levels, kind, nil); err != nil {
			return err
		}
	}
	return nil
}
