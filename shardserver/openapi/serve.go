package openapi

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/munnerz/goautoneg"
)

// form is what a document is encoded in.
type form string

const (
	asJSON     form = "json"
	asProtobuf form = "protobuf"
	// asIndex is the index of the documents of a set, which is JSON.
	asIndex form = "index"
)

// encoded is a document ready to be sent.
type encoded struct {
	content    []byte
	tag        string
	modified   time.Time
	compressed bool
}

// varies names the headers of a request that an answer depends on. Its tag does not.
const varies = "Accept, Accept-Encoding"

// formats are the media types that upstream serves a version of OpenAPI in, the preferred one first.
type formats []struct {
	subtype, answered string
	form              form
}

func formatsOf(version string) formats {
	protobuf := "com.github.proto-openapi.spec." + version
	return formats{
		{"json", "application/json", asJSON},
		{protobuf + ".v1.0+protobuf", "application/" + protobuf + ".v1.0+protobuf", asProtobuf},
		{protobuf + "@v1.0+protobuf", "application/" + protobuf + ".v1.0+protobuf", asProtobuf}, // deprecated
	}
}

// negotiate returns the form that a request prefers and its media type; none if it accepts no form there is.
func (f formats) negotiate(req *http.Request) (form, string) {
	accept := req.Header.Get("Accept")
	if accept == "" {
		accept = "*/*"
	}
	for _, clause := range goautoneg.ParseAccept(accept) {
		for _, offered := range f {
			if (clause.Type == "application" || clause.Type == "*") && (clause.SubType == offered.subtype || clause.SubType == "*") {
				return offered.form, offered.answered
			}
		}
	}
	return "", ""
}

// send writes a document. Who has it already, by its tag, is told so instead.
func send(w http.ResponseWriter, req *http.Request, mediaType string, document *encoded) {
	w.Header().Set("Vary", varies)
	w.Header().Set("Content-Type", mediaType)
	if document.compressed {
		w.Header().Set("Content-Encoding", "gzip")
	}
	w.Header().Set("Etag", strconv.Quote(document.tag))
	http.ServeContent(w, req, "", document.modified, bytes.NewReader(document.content))
}

// refusal is the weight of what a client does not want.
var refusal = regexp.MustCompile(`^\s*q=0(\.0*)?\s*$`)

// acceptsGzip tells whether a client takes a compressed answer.
func acceptsGzip(req *http.Request) bool {
	for _, offered := range strings.Split(req.Header.Get("Accept-Encoding"), ",") {
		name, weight, _ := strings.Cut(strings.TrimSpace(offered), ";")
		if strings.TrimSpace(name) == "gzip" {
			return !refusal.MatchString(weight)
		}
	}
	return false
}

func compress(content []byte) ([]byte, error) {
	var compressed bytes.Buffer
	writer := gzip.NewWriter(&compressed)
	if _, err := writer.Write(content); err != nil {
		return nil, err
	}
	if err := writer.Close(); err != nil {
		return nil, err
	}
	return compressed.Bytes(), nil
}

// outdated answers a request that names the hash of another state of the document with the way to the current one,
// told relative to the request: the prefix of the logical cluster is known to the client alone.
func outdated(w http.ResponseWriter, req *http.Request, tag string) bool {
	hash := req.URL.Query().Get("hash")
	if hash == "" || hash == tag {
		return false
	}
	w.Header().Set("Location", "?hash="+tag)
	w.WriteHeader(http.StatusMovedPermanently)
	return true
}

// immutable lets caches keep the answer to a request that names the hash of the document.
func immutable(w http.ResponseWriter, req *http.Request) {
	if req.URL.Query().Get("hash") != "" {
		w.Header().Set("Cache-Control", "public, immutable")
		w.Header().Set("Expires", time.Now().AddDate(1, 0, 0).UTC().Format(http.TimeFormat))
	}
}
