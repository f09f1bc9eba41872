package backendtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// errCut is the error of requests on a connection that is cut.
var errCut = errors.New("the connection is cut")

// server identifies the server that a request is sent to.
type server int

const (
	toWorkspace server = iota // the provider's workspace
	toView                    // the instances of tenants
	toRuntime                 // servers of the backend
)

// write is a request that changes something.
type write struct {
	server       server
	method, path string
	body         string // only for writes to the view
}

// faults intercepts the requests between one process of a provider and its servers.
type faults struct {
	mu     sync.Mutex
	writes []write
	cut    bool // the view is unreachable
	dead   bool // all servers are unreachable
	// left is the number of writes to the view and to the runtime until the process crashes; negative means never.
	left   int
	bodies map[*body]server // open response bodies
	// versions are the resource versions of applied objects, by path.
	versions map[string]string
}

func newFaults() *faults {
	return &faults{left: -1, bodies: map[*body]server{}, versions: map[string]string{}}
}

// wrapKcp wraps the transport of clients of kcp.
func (f *faults) wrapKcp(next http.RoundTripper) http.RoundTripper {
	return &transport{f, next, toWorkspace}
}

// wrapRuntime wraps the transport of clients of the backend's own servers.
func (f *faults) wrapRuntime(next http.RoundTripper) http.RoundTripper {
	return &transport{f, next, toRuntime}
}

// transport is the transport of clients of one server.
type transport struct {
	faults *faults
	next   http.RoundTripper
	server server
}

// WrappedRoundTripper lets client-go find the wrapped transport, to close its idle connections.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	to := t.server
	if to == toWorkspace && strings.HasPrefix(request.URL.Path, "/services/") {
		to = toView
	}
	if err := t.faults.admit(to, request); err != nil {
		return nil, err
	}
	response, err := t.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if isApply(request) {
		if err := t.faults.recordApply(to, request, response); err != nil {
			return nil, err
		}
	}
	if err := t.faults.wrapBody(to, response); err != nil {
		return nil, err
	}
	return response, nil
}

// recordApply records a server-side apply, unless it has changed nothing.
func (f *faults) recordApply(to server, request *http.Request, response *http.Response) error {
	content, err := io.ReadAll(response.Body)
	response.Body.Close()
	if err != nil {
		return err
	}
	response.Body = io.NopCloser(bytes.NewReader(content))
	var object metav1.PartialObjectMetadata
	if json.Unmarshal(content, &object) != nil || object.ResourceVersion == "" {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	path := request.URL.Path
	if f.versions[path] != object.ResourceVersion {
		f.versions[path] = object.ResourceVersion
		f.writes = append(f.writes, write{server: to, method: request.Method, path: path})
	}
	return nil
}

// admit records a request, or refuses it.
func (f *faults) admit(to server, request *http.Request) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead || f.cut && to == toView {
		return errCut
	}
	if !isWrite(request) {
		return nil
	}
	w := write{server: to, method: request.Method, path: request.URL.Path}
	if to == toView && request.GetBody != nil {
		content, err := readCopy(request)
		if err != nil {
			return err
		}
		w.body = content
	}
	if to != toWorkspace && f.left == 0 {
		f.die()
		return errCut
	}
	if to != toWorkspace && f.left > 0 {
		f.left--
	}
	if !isApply(request) { // recordApply records these, depending on the response
		f.writes = append(f.writes, w)
	}
	return nil
}

func isApply(request *http.Request) bool {
	return request.Header.Get("Content-Type") == string(types.ApplyPatchType)
}

func readCopy(request *http.Request) (string, error) {
	body, err := request.GetBody()
	if err != nil {
		return "", err
	}
	defer body.Close()
	content, err := io.ReadAll(body)
	return string(content), err
}

func isWrite(request *http.Request) bool {
	switch request.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	}
	// Dry runs and access reviews change nothing.
	return request.URL.Query().Get("dryRun") == "" && !strings.Contains(request.URL.Path, "/apis/authorization.k8s.io/")
}

// wrapBody wraps the body of a response, so that cutting the connection closes it.
func (f *faults) wrapBody(to server, response *http.Response) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead || f.cut && to == toView {
		response.Body.Close()
		return errCut
	}
	b := &body{ReadCloser: response.Body, faults: f}
	f.bodies[b] = to
	response.Body = b
	return nil
}

// body is the body of a response.
type body struct {
	io.ReadCloser
	faults *faults
}

// Close implements io.Closer.
func (b *body) Close() error {
	b.faults.mu.Lock()
	delete(b.faults.bodies, b)
	b.faults.mu.Unlock()
	return b.ReadCloser.Close()
}

// setReachable cuts the connections to the view, or makes it reachable again.
func (f *faults) setReachable(reachable bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cut = !reachable; f.cut {
		f.closeBodies(func(to server) bool { return to == toView })
	}
}

// closeBodies closes open response bodies. Callers must hold mu.
func (f *faults) closeBodies(of func(server) bool) {
	for b, to := range f.bodies {
		if of(to) {
			b.ReadCloser.Close()
			delete(f.bodies, b)
		}
	}
}

// kill makes all requests fail from now on.
func (f *faults) kill() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.die()
}

// die makes all requests fail. Callers must hold mu.
func (f *faults) die() {
	if f.dead {
		return
	}
	f.dead = true
	f.closeBodies(func(server) bool { return true })
}

// killAfter crashes the process at the write after the next n writes.
func (f *faults) killAfter(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left = n
}

// written returns the writes to a server so far.
func (f *faults) written(to server) []write {
	f.mu.Lock()
	defer f.mu.Unlock()
	var found []write
	for _, w := range f.writes {
		if w.server == to {
			found = append(found, w)
		}
	}
	return found
}

func (f *faults) isDead() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dead
}
