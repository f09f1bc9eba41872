package apiexport

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2"
)

// serveJoinedWatch serves a watch of the objects of several identities. It ends as a whole. It has no bookmarks: one of a part says nothing
// about the others.
func (w *workspace) serveJoinedWatch(rw http.ResponseWriter, req *http.Request, c *resourceRequest, content http.Handler) {
	if req.URL.Query().Get("sendInitialEvents") == "true" { // clients list instead
		w.writeError(rw, req, apierrors.NewInvalid(schema.GroupKind{Group: "meta.k8s.io", Kind: "ListOptions"}, "", field.ErrorList{
			field.Forbidden(field.NewPath("sendInitialEvents"), "is not supported for objects of several exports"),
		}))
		return
	}
	ctx, cancel := context.WithCancel(req.Context())
	defer cancel()
	joined := &joinedWatch{to: rw, ctx: ctx, pending: len(c.resource.identities), started: make(chan struct{})}
	var parts []*http.Request
	for _, identity := range c.resource.identities {
		part, err := w.partOf(req, c, identity, func(query url.Values) {
			for _, option := range []string{"allowWatchBookmarks", "sendInitialEvents", "limit"} {
				query.Del(option)
			}
		})
		if err != nil {
			w.writeError(rw, req, err)
			return
		}
		parts = append(parts, part.WithContext(joinContext{part.Context(), ctx}))
	}
	var all sync.WaitGroup
	for _, part := range parts {
		all.Go(func() {
			defer cancel()
			defer func() {
				if reason := recover(); reason != nil { // as the server would, which does not see this goroutine
					klog.FromContext(ctx).Error(fmt.Errorf("%v", reason), "Watching the objects of one identity panicked", "resource", c.resource.GroupResource)
				}
			}()
			content.ServeHTTP(&watchPart{joined: joined, header: http.Header{}}, part)
		})
	}
	all.Wait()
	if failed := joined.failure(); failed != nil {
		failed.copyTo(rw)
	}
}

// joinContext has the values of one context and the end of another, which is derived from its parent.
type joinContext struct {
	context.Context
	end context.Context
}

func (j joinContext) Done() <-chan struct{} { return j.end.Done() }
func (j joinContext) Err() error            { return j.end.Err() }

// joinedWatch writes the events of several watches. Its response starts when all have started.
type joinedWatch struct {
	ctx     context.Context
	started chan struct{}

	mu      sync.Mutex
	to      http.ResponseWriter
	pending int
	// failed is the response of a part that has not started.
	failed *bufferedResponse
}

// start records the status of a part.
func (j *joinedWatch) start(part *watchPart, status int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if status != http.StatusOK {
		if j.failed == nil && j.pending > 0 {
			j.failed = &bufferedResponse{header: part.header, status: status}
			part.failed = j.failed
		}
		return
	}
	if j.pending--; j.pending > 0 || j.failed != nil {
		return
	}
	j.to.Header().Set("Content-Type", "application/json")
	j.to.WriteHeader(http.StatusOK)
	j.flush()
	close(j.started)
}

func (j *joinedWatch) flush() {
	if flusher, ok := j.to.(http.Flusher); ok {
		flusher.Flush()
	}
}

func (j *joinedWatch) failure() *bufferedResponse {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.failed
}

// write writes complete events, when all parts have started.
func (j *joinedWatch) write(events []byte) error {
	select {
	case <-j.started:
	case <-j.ctx.Done():
		return j.ctx.Err()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ctx.Err() != nil {
		return j.ctx.Err()
	}
	if _, err := j.to.Write(events); err != nil {
		return err
	}
	j.flush()
	return nil
}

// watchPart is the response of one watch. Only its own goroutine uses it.
type watchPart struct {
	joined *joinedWatch
	header http.Header
	status int
	// failed gets the body if the watch has not started.
	failed *bufferedResponse
	// rest is the beginning of an event.
	rest []byte
}

// Header implements http.ResponseWriter.
func (p *watchPart) Header() http.Header { return p.header }

// WriteHeader implements http.ResponseWriter.
func (p *watchPart) WriteHeader(status int) {
	if p.status == 0 {
		p.status = status
		p.joined.start(p, status)
	}
}

// Write implements http.ResponseWriter. Each event ends with the end of a line.
func (p *watchPart) Write(data []byte) (int, error) {
	p.WriteHeader(http.StatusOK)
	if p.status != http.StatusOK {
		if p.failed != nil {
			return p.failed.Write(data)
		}
		return len(data), nil
	}
	p.rest = append(p.rest, data...)
	end := bytes.LastIndexByte(p.rest, '\n') + 1
	if end == 0 {
		return len(data), nil
	}
	if err := p.joined.write(p.rest[:end]); err != nil {
		return 0, err
	}
	p.rest = append(p.rest[:0], p.rest[end:]...)
	return len(data), nil
}

// Flush implements http.Flusher. Events are flushed when they are complete.
func (p *watchPart) Flush() { p.WriteHeader(http.StatusOK) }

// CloseNotify implements http.CloseNotifier, without which middleware hides Flush. The context of the request ends instead.
func (p *watchPart) CloseNotify() <-chan bool { return make(chan bool) }
