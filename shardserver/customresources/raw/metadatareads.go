package raw

import (
	"net/http"
	"time"
)

// Metadata serves LIST and WATCH of the metadata of all objects of a resource, without any definition (contract 1.5).
type Metadata struct {
	minRequestTimeout time.Duration
}

// NewMetadata returns a server of metadata.
func NewMetadata(minRequestTimeout time.Duration) *Metadata {
	return &Metadata{minRequestTimeout: minRequestTimeout}
}

// Serve answers a LIST or WATCH whose Accept header asks for PartialObjectMetadata(List).
// It returns false, with nothing written, for everything else. There may be several storages of one resource: that of
// plain definitions and that of each identity.
func (m *Metadata) Serve(w http.ResponseWriter, req *http.Request, storages ...*Storage) bool {
	return false
}
