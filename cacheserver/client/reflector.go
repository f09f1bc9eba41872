package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/atoll-dev/atoll/internal/reflector"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// Position is a point in the history of a cache at which a watch resumes. The zero Position starts with a list.
type Position struct {
	ResourceVersion string
	// Incarnation identifies the store that the resource version belongs to.
	Incarnation string
}

// String describes a position for logs.
func (p Position) String() string { return fmt.Sprintf("%s of %q", p.ResourceVersion, p.Incarnation) }

// EventHandler processes changes of the objects of one resource. Its methods are called one after the other. They must
// not wait for the cache.
type EventHandler interface {
	// OnReplace is called with all objects in the cache. Other objects are missing there; they are deleted only if
	// their shard reports that its part of the cache is complete.
	OnReplace(objects []*Object, at Position)
	// OnEvent is called for watch.Added, watch.Modified and watch.Deleted with the object, and for watch.Bookmark with
	// nil.
	OnEvent(change watch.EventType, object *Object, at Position)
	// OnConnect is called whenever the watch is open, OnDisconnect whenever a list or watch fails.
	OnConnect()
	OnDisconnect(err error)
}

// NewReflector returns a reflector of the objects of a resource of all shards and logical clusters. It resumes at a
// position, which may be that of another process, or starts with a list. It lists again only if the cache has compacted
// the position or is another store.
func (c *Client) NewReflector(gvr schema.GroupVersionResource, from Position, handler EventHandler) *reflector.Reflector {
	return c.NewScopedReflector(gvr, "*", logicalcluster.Wildcard, from, handler)
}

// NewScopedReflector is NewReflector for the objects of one shard, in a logical cluster or in all
// (logicalcluster.Wildcard).
func (c *Client) NewScopedReflector(gvr schema.GroupVersionResource, shard string, cluster logicalcluster.Name, from Position, handler EventHandler) *reflector.Reflector {
	lw := &listWatch{client: c, gvr: gvr, scope: Key{Shard: shard, Cluster: cluster}, incarnation: from.Incarnation, handler: handler}
	return reflector.New(reflector.Config{
		ListerWatcher: lw, Handler: lw, ResourceVersion: from.ResourceVersion,
		Backoff: wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 8, Cap: 30 * time.Second},
	})
}

// listWatch lists and watches one resource, and passes what its reflector receives to an EventHandler. It implements
// cache.ListerWatcherWithContext and reflector.Handler.
type listWatch struct {
	client *Client
	gvr    schema.GroupVersionResource
	scope  Key
	// incarnation is that of the store which the last list came from.
	incarnation string
	handler     EventHandler
	// page are the objects of a list that is not done. Caches send all objects in one page.
	page []*Object
}

// ListWithContext implements cache.ListerWithContext.
func (l *listWatch) ListWithContext(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
	objects, at, err := l.client.list(ctx, l.gvr, l.scope.Shard, l.scope.Cluster)
	if err != nil {
		return nil, err
	}
	l.incarnation = at.Incarnation
	return &objectList{ListMeta: metav1.ListMeta{ResourceVersion: at.ResourceVersion}, Items: objects}, nil
}

var errResponseTimeout = fmt.Errorf("no response within %s", requestTimeout)

// WatchWithContext implements cache.WatcherWithContext.
func (l *listWatch) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	query := url.Values{"watch": {"true"}, "allowWatchBookmarks": {"true"}, "resourceVersion": {options.ResourceVersion}}
	address := l.client.url(l.gvr, l.scope, query)
	ctx, cancel := context.WithCancel(ctx)
	responseTimer := time.AfterFunc(requestTimeout, cancel) // bounds the wait for the response, not the watch
	response, err := l.client.send(ctx, http.MethodGet, address, nil, http.Header{IncarnationHeader: {l.incarnation}})
	if !responseTimer.Stop() {
		if err == nil {
			response.Body.Close()
		}
		err = errResponseTimeout
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("watching %s in the cache: %w", l.gvr.GroupResource(), err)
	}
	return watch.NewStreamWatcher(&watchDecoder{gvr: l.gvr, body: response.Body, decoder: json.NewDecoder(response.Body), cancel: cancel}, nil), nil
}

// OnListStart implements reflector.Handler.
func (l *listWatch) OnListStart() { l.page = nil }

// OnListPage implements reflector.Handler.
func (l *listWatch) OnListPage(objects []runtime.Object) {
	l.page = slices.Grow(l.page, len(objects))
	for _, object := range objects {
		l.page = append(l.page, object.(*Object))
	}
}

// OnListDone implements reflector.Handler.
func (l *listWatch) OnListDone(resourceVersion string) {
	objects := l.page
	l.page = nil
	l.handler.OnReplace(objects, l.position(resourceVersion))
}

// OnEvent implements reflector.Handler.
func (l *listWatch) OnEvent(event watch.Event, resourceVersion string) {
	object, _ := event.Object.(*Object) // nil for bookmarks
	l.handler.OnEvent(event.Type, object, l.position(resourceVersion))
}

// OnConnect implements reflector.Handler.
func (l *listWatch) OnConnect() { l.handler.OnConnect() }

// OnDisconnect implements reflector.Handler.
func (l *listWatch) OnDisconnect(err error) { l.handler.OnDisconnect(err) }

func (l *listWatch) position(resourceVersion string) Position {
	return Position{ResourceVersion: resourceVersion, Incarnation: l.incarnation}
}

// watchDecoder decodes the events of a watch. It implements watch.Decoder.
type watchDecoder struct {
	gvr     schema.GroupVersionResource
	body    io.Closer
	decoder *json.Decoder
	cancel  context.CancelFunc
	// failed is set after an event could not be decoded, which ends the watch.
	failed bool
}

// Decode implements watch.Decoder. It returns failures as error events: watch.StreamWatcher hides that a connection
// broke.
func (d *watchDecoder) Decode() (watch.EventType, runtime.Object, error) {
	if d.failed {
		return "", nil, io.EOF
	}
	change, object, err := d.decode()
	if err != nil && !errors.Is(err, io.EOF) {
		d.failed = true
		err = fmt.Errorf("watching %s in the cache: %w", d.gvr.GroupResource(), err)
		return watch.Error, &apierrors.NewInternalError(err).ErrStatus, nil
	}
	return change, object, err
}

func (d *watchDecoder) decode() (watch.EventType, runtime.Object, error) {
	var event struct {
		Type   watch.EventType `json:"type"`
		Object json.RawMessage `json:"object"`
	}
	if err := d.decoder.Decode(&event); err != nil {
		return "", nil, err
	}
	switch event.Type {
	case watch.Error:
		status := &metav1.Status{}
		return event.Type, status, json.Unmarshal(event.Object, status)
	case watch.Bookmark:
		bookmark := &metav1.PartialObjectMetadata{}
		return event.Type, bookmark, json.Unmarshal(event.Object, bookmark)
	default:
		object, err := parseObject(event.Object)
		return event.Type, object, err
	}
}

// Close implements watch.Decoder.
func (d *watchDecoder) Close() {
	d.cancel()
	d.body.Close()
}
