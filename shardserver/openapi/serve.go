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

// encoding is the encoding of a document.
type encoding string

const (
	encodingJSON     encoding = "json"
	encodingProtobuf encoding = "protobuf"
	// encodingIndex is the JSON index of the documents of an API set.
	encodingIndex encoding = "index"
)

// encodedDocument is a document ready to be sent.
type encodedDocument struct {
	content    []byte
	tag        string
	modified   time.Time
	compressed bool
}

// varyHeader are the request headers that a response depends on. Its tag does not depend on them.
const varyHeader = "Accept, Accept-Encoding"

// formats are the media types of upstream for a version of OpenAPI, the preferred one first.
type formats []struct {
	subtype, answered string
	encoding          encoding
}

func formatsOf(version string) formats {
	protobuf := "com.github.proto-openapi.spec." + version
	return formats{
		{"json", "application/json", encodingJSON},
		{protobuf + ".v1.0+protobuf", "application/" + protobuf + ".v1.0+protobuf", encodingProtobuf},
		{protobuf + "@v1.0+protobuf", "application/" + protobuf + ".v1.0+protobuf", encodingProtobuf}, // deprecated
	}
}

// negotiate returns the encoding that a request prefers and its media type, or "" if it accepts none.
func (f formats) negotiate(req *http.Request) (encoding, string) {
	accept := req.Header.Get("Accept")
	if accept == "" {
		accept = "*/*"
	}
	for _, clause := range goautoneg.ParseAccept(accept) {
		for _, format := range f {
			if (clause.Type == "application" || clause.Type == "*") && (clause.SubType == format.subtype || clause.SubType == "*") {
				return format.encoding, format.answered
			}
		}
	}
	return "", ""
}

// serveDocument writes a document, or status 304 if the client has it.
func serveDocument(w http.ResponseWriter, req *http.Request, mediaType string, document *encodedDocument) {
	w.Header().Set("Vary", varyHeader)
	w.Header().Set("Content-Type", mediaType)
	if document.compressed {
		w.Header().Set("Content-Encoding", "gzip")
	}
	w.Header().Set("Etag", strconv.Quote(document.tag))
	http.ServeContent(w, req, "", document.modified, bytes.NewReader(document.content))
}

// zeroWeight matches the weight of an encoding that a client does not accept.
var zeroWeight = regexp.MustCompile(`^\s*q=0(\.0*)?\s*$`)

// acceptsGzip returns whether a client accepts gzip.
func acceptsGzip(req *http.Request) bool {
	for _, coding := range strings.Split(req.Header.Get("Accept-Encoding"), ",") {
		name, weight, _ := strings.Cut(strings.TrimSpace(coding), ";")
		if strings.TrimSpace(name) == "gzip" {
			return !zeroWeight.MatchString(weight)
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

// redirectOutdated redirects a request with the hash of another document to the current one. The location is relative, as the
// path of the client has the prefix of the logical cluster.
func redirectOutdated(w http.ResponseWriter, req *http.Request, tag string) bool {
	hash := req.URL.Query().Get("hash")
	if hash == "" || hash == tag {
		return false
	}
	w.Header().Set("Location", "?hash="+tag)
	w.WriteHeader(http.StatusMovedPermanently)
	return true
}

// setImmutable allows caches to keep the response to a request with the hash of the document.
func setImmutable(w http.ResponseWriter, req *http.Request) {
	if req.URL.Query().Get("hash") != "" {
		w.Header().Set("Cache-Control", "public, immutable")
		w.Header().Set("Expires", time.Now().AddDate(1, 0, 0).UTC().Format(http.TimeFormat))
	}
}
