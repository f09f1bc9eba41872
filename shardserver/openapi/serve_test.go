package openapi

import (
	"net/http"
	"testing"
)

func TestAcceptsGzip(t *testing.T) {
	for header, want := range map[string]bool{
		"": false, "gzip": true, "deflate, gzip": true, "gzip;q=0.5, br": true, "gzip;q=0": false, "gzip; q=0.00": false, "identity": false, "x-gzip": false,
	} {
		if got := acceptsGzip(&http.Request{Header: http.Header{"Accept-Encoding": {header}}}); got != want {
			t.Errorf("%q: got %t, want %t", header, got, want)
		}
	}
}

func TestNegotiation(t *testing.T) {
	for accept, want := range map[string]struct {
		encoding  encoding
		mediaType string
	}{
		"":                 {encodingJSON, "application/json"},
		"*/*":              {encodingJSON, "application/json"},
		"application/json": {encodingJSON, "application/json"},
		"application/com.github.proto-openapi.spec.v3@v1.0+protobuf":                        {encodingProtobuf, "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"},
		"application/json;q=0.5,application/com.github.proto-openapi.spec.v3.v1.0+protobuf": {encodingProtobuf, "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"},
		"text/html": {"", ""},
		"application/com.github.proto-openapi.spec.v2.v1.0+protobuf": {"", ""},
	} {
		encoding, mediaType := formatsOf("v3").negotiate(&http.Request{Header: http.Header{"Accept": {accept}}})
		if encoding != want.encoding || mediaType != want.mediaType {
			t.Errorf("%q: got %q as %q, want %q as %q", accept, encoding, mediaType, want.encoding, want.mediaType)
		}
	}
}
