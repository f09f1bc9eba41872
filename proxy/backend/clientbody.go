package backend

import (
	"errors"
	"io"
	"net/http"
	"sync/atomic"
)

// clientBody is the body of a client's request. It remembers why it could not be read: the transport reports that as it reports
// failures of the backend.
type clientBody struct {
	io.ReadCloser
	failure atomic.Pointer[error]
}

// Read implements io.Reader.
func (b *clientBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	// A closed body is not read any more.
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, http.ErrBodyReadAfterClose) {
		b.failure.CompareAndSwap(nil, &err)
	}
	return n, err
}

// err returns the first error of Read, or nil.
func (b *clientBody) err() error {
	if failure := b.failure.Load(); failure != nil {
		return *failure
	}
	return nil
}
