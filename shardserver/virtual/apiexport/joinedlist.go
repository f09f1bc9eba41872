package apiexport

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/atoll-dev/atoll/shardserver/virtual"
)

// joinedList is the encoding of a list or table.
type joinedList struct {
	metav1.TypeMeta   `json:",inline"`
	Metadata          joinedListMeta    `json:"metadata"`
	ColumnDefinitions json.RawMessage   `json:"columnDefinitions,omitempty"`
	Rows              []json.RawMessage `json:"rows,omitempty"`
	Items             []json.RawMessage `json:"items,omitempty"`
}

type joinedListMeta struct {
	ResourceVersion string `json:"resourceVersion"`
}

// serveJoinedList serves a list of the objects of several identities, without pages. All parts are read at one resource version, so that a
// watch from there misses nothing.
func (w *workspace) serveJoinedList(rw http.ResponseWriter, req *http.Request, c *resourceRequest, content http.Handler) {
	query := req.URL.Query()
	if query.Get("continue") != "" {
		w.writeError(rw, req, apierrors.NewBadRequest("a list of objects of several exports has no pages"))
		return
	}
	version := query.Get("resourceVersion")
	if query.Get("resourceVersionMatch") != string(metav1.ResourceVersionMatchExact) {
		var err error
		if version, err = w.currentResourceVersion(req.Context()); err != nil {
			w.writeError(rw, req, err)
			return
		}
	}
	var joined *joinedList
	for _, identity := range c.resource.identities {
		part, err := w.partOf(req, c, identity, func(query url.Values) {
			query.Del("limit")
			query.Set("resourceVersion", version)
			query.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchExact))
		})
		if err != nil {
			w.writeError(rw, req, err)
			return
		}
		response := &bufferedResponse{header: http.Header{}, status: http.StatusOK}
		content.ServeHTTP(response, part)
		switch response.status {
		case http.StatusOK:
		case http.StatusNotFound:
			continue // not stored yet, hence without objects
		default:
			response.copyTo(rw)
			return
		}
		decoded := &joinedList{}
		if err := json.Unmarshal(response.body.Bytes(), decoded); err != nil {
			w.writeError(rw, req, fmt.Errorf("decoding the list of %s of one identity: %w", c.resource.GroupResource, err))
			return
		}
		if joined == nil {
			joined = decoded
			continue
		}
		joined.Items, joined.Rows = append(joined.Items, decoded.Items...), append(joined.Rows, decoded.Rows...)
	}
	if joined == nil {
		w.serveEmptyList(rw, req, c)
		return
	}
	joined.Metadata.ResourceVersion = version
	w.writeJoinedList(rw, req, joined)
}

func (w *workspace) writeJoinedList(rw http.ResponseWriter, req *http.Request, joined *joinedList) {
	var encoded []byte
	var err error
	if joined.Kind == "Table" {
		encoded, err = json.Marshal(joined)
	} else {
		if joined.Items == nil {
			joined.Items = []json.RawMessage{}
		}
		encoded, err = json.Marshal(struct {
			metav1.TypeMeta `json:",inline"`
			Metadata        joinedListMeta    `json:"metadata"`
			Items           []json.RawMessage `json:"items"`
		}{joined.TypeMeta, joined.Metadata, joined.Items})
	}
	if err != nil {
		w.writeError(rw, req, err)
		return
	}
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(http.StatusOK)
	_, _ = rw.Write(encoded) // the client may have disconnected
}

// partOf returns the request for the objects of one identity, answered in JSON.
func (w *workspace) partOf(req *http.Request, c *resourceRequest, identity string, change func(url.Values)) (*http.Request, error) {
	part, err := c.withIdentity(identity).forward(virtual.InCluster(req))
	if err != nil {
		return nil, err
	}
	part = part.Clone(part.Context())
	for _, header := range []string{"Accept-Encoding", "Connection", "Upgrade"} {
		part.Header.Del(header)
	}
	accept := "application/json"
	if kind := w.requestedTransform(req); kind.Kind != "" {
		accept += fmt.Sprintf(";as=%s;v=%s;g=%s", kind.Kind, kind.Version, kind.Group)
	}
	part.Header.Set("Accept", accept)
	query := part.URL.Query()
	change(query)
	part.URL.RawQuery = query.Encode()
	return part, nil
}

// bufferedResponse holds a response.
type bufferedResponse struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (b *bufferedResponse) Header() http.Header { return b.header }

// WriteHeader implements http.ResponseWriter.
func (b *bufferedResponse) WriteHeader(status int) { b.status = status }

// Write implements http.ResponseWriter.
func (b *bufferedResponse) Write(part []byte) (int, error) { return b.body.Write(part) }

func (b *bufferedResponse) copyTo(rw http.ResponseWriter) {
	rw.Header().Set("Content-Type", b.header.Get("Content-Type"))
	rw.WriteHeader(b.status)
	_, _ = rw.Write(b.body.Bytes()) // the client may have disconnected
}
