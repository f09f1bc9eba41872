package syncer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/atoll-dev/atoll/internal/responserecorder"
	"github.com/atoll-dev/atoll/shardserver/virtual"
)

const (
	// replayedRevisions is how much earlier than a watch that of its namespaces starts. The streams are not ordered: a client may
	// have seen an object of a later revision than the change of a namespace that it has not seen. Repeated events are harmless.
	replayedRevisions = 1000
	// pageSize bounds the objects in memory while those of a namespace enter or leave a watch.
	pageSize = 500

	acceptMetadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
)

// errExpired means that the changes of namespaces since the start of a watch are not known any more.
var errExpired = errors.New("the resource version is too old")

// serveWatch serves a watch. With a filter for namespaces, a second watch follows the namespaces, and objects enter and
// leave with theirs. Deletions are passed on whatever the namespace is: it may have left the filter in between. So is a change
// of an object that is not shown, as its deletion: it may have lost the agent's finalizer. Neither shows more than the name.
//
// When the description of the resource changes, the watch expires: clients have to list again, since a wider filter also selects
// objects that do not change.
func (w *workspace) serveWatch(rw http.ResponseWriter, req *http.Request, c *publishedRequest) {
	if c.Namespaces == nil {
		serveStream(rw, req, c.exports, func(out io.Writer, in io.Reader) error {
			flush(out)
			client := &frameWriter{translation: c.translation, out: out}
			return c.expireIfChanged(req.Context(), client, readFrames(in, client.write))
		})
		return
	}
	since, err := c.namespacesVersion(req)
	if err != nil {
		w.writeError(rw, req, err)
		return
	}
	ctx, cancel := context.WithCancel(req.Context())
	defer cancel()
	serveStream(rw, req.WithContext(ctx), c.exports, func(out io.Writer, in io.Reader) error {
		flush(out)
		client := &frameWriter{translation: c.translation, out: out}
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		all.Go(func() {
			defer cancel()
			_ = recoverPanic(func() error { return c.followNamespaces(req.WithContext(ctx), since, client) }) // the watch ends
		})
		err := readFrames(in, func(next frame) error { return c.writeShown(ctx, next, client) })
		return c.expireIfChanged(req.Context(), client, err)
	})
}

// writeShown writes an event as the filter for namespaces lets the client see it.
func (p *publishedRequest) writeShown(ctx context.Context, next frame, client *frameWriter) error {
	if next.Type == watch.Added || next.Type == watch.Modified || next.Type == watch.Deleted {
		if shown, err := p.isShown(ctx, next.Object); err != nil || !shown && next.Type == watch.Added {
			return err
		} else if !shown {
			return client.writeDeleted(next.Object)
		}
	}
	return client.write(next)
}

// expireIfChanged has the client list again after a watch that has ended because the description of the resource changed.
func (p *publishedRequest) expireIfChanged(ctx context.Context, client *frameWriter, err error) error {
	if err != nil {
		return err
	}
	current, _, err := p.view.publisher.find(ctx, p.target, p.Source.GroupResource())
	if err != nil {
		return err
	}
	if current != nil {
		before, err := entryOf(p.Resource)
		if err != nil {
			return err
		}
		if after, err := entryOf(current.Resource); err != nil || after == before {
			return err
		}
	}
	return client.writeExpired("the description of the resource has changed: list its objects again")
}

// writeExpired writes that the watch cannot go on.
func (w *frameWriter) writeExpired(message string) error {
	status := apierrors.NewResourceExpired(message).Status()
	status.SetGroupVersionKind(metav1.Unversioned.WithKind("Status")) // clients do not decode it otherwise
	encoded, err := json.Marshal(status)
	if err != nil {
		return err
	}
	return w.write(frame{watch.Error, encoded})
}

// writeDeleted writes the deletion of an object with nothing but its reference.
func (w *frameWriter) writeDeleted(object json.RawMessage) error {
	reference, _, err := readReference(object)
	if err != nil {
		return err
	}
	encoded, err := json.Marshal(reference)
	if err != nil {
		return err
	}
	return w.write(frame{watch.Deleted, encoded})
}

// namespacesVersion returns the resource version from which a watch has to follow the namespaces.
func (p *publishedRequest) namespacesVersion(req *http.Request) (uint64, error) {
	query := req.URL.Query()
	if since, err := strconv.ParseUint(query.Get("resourceVersion"), 10, 64); err == nil && since > 0 {
		return since, nil
	}
	response := responserecorder.New()
	p.exports.ServeHTTP(response, p.namespacesRequest(req, "list", url.Values{"limit": {"1"}}))
	var list metav1.PartialObjectMetadataList
	if response.Status != http.StatusOK || json.Unmarshal(response.Body.Bytes(), &list) != nil {
		return 0, fmt.Errorf("listing namespaces: %d: %.500s", response.Status, response.Body.String())
	}
	return strconv.ParseUint(list.ResourceVersion, 10, 64)
}

// namespacesRequest returns a request for the namespaces that the filter selects.
func (p *publishedRequest) namespacesRequest(req *http.Request, verb string, query url.Values) *http.Request {
	accept := acceptMetadata
	if verb == "list" {
		accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	}
	query.Set("labelSelector", p.Namespaces.String())
	info := &request.RequestInfo{IsResourceRequest: true, Verb: verb, Parts: []string{namespaces.Resource}}
	return newRead(req, info, namespaces.WithVersion("v1"), query, accept)
}

// newRead returns another read on behalf of the same caller.
func newRead(req *http.Request, info *request.RequestInfo, gvr schema.GroupVersionResource, query url.Values, accept string) *http.Request {
	out := withResource(req, info, gvr)
	out.URL.RawQuery, out.Body = query.Encode(), http.NoBody
	out.Header.Set("Accept", accept)
	return out
}

// followNamespaces writes events for the objects of namespaces that start or stop matching the filter, until the context is
// done or the watch of namespaces ends.
func (p *publishedRequest) followNamespaces(req *http.Request, since uint64, client *frameWriter) error {
	err := errExpired
	if since > replayedRevisions {
		err = p.watchNamespaces(req, since-replayedRevisions, client)
	}
	if errors.Is(err, errExpired) {
		err = p.watchNamespaces(req, since, client)
	}
	if !errors.Is(err, errExpired) {
		return err
	}
	return client.writeExpired("the namespaces of the objects have changed: list them again")
}

func (p *publishedRequest) watchNamespaces(req *http.Request, since uint64, client *frameWriter) error {
	query := url.Values{"watch": {"true"}, "resourceVersion": {strconv.FormatUint(since, 10)}}
	if seconds := req.URL.Query().Get("timeoutSeconds"); seconds != "" {
		query.Set("timeoutSeconds", seconds)
	}
	var result error
	status := serveStream(discard{http.Header{}}, p.namespacesRequest(req, "watch", query), p.exports, func(_ io.Writer, in io.Reader) error {
		result = readFrames(in, func(next frame) error {
			switch next.Type {
			case watch.Error:
				return errExpired // whatever the error is, the client has to list again
			case watch.Added, watch.Deleted:
				return p.writeObjects(req, next, client)
			}
			return nil
		})
		return nil
	})
	if status == http.StatusGone {
		return errExpired
	}
	return result
}

// writeObjects writes the event of a namespace for each of its objects, unless the namespace has changed again: then another
// event follows.
func (p *publishedRequest) writeObjects(req *http.Request, event frame, client *frameWriter) error {
	object, cluster, err := readReference(event.Object)
	namespace := object.Metadata.Name
	if err != nil || p.info.Namespace != "" && p.info.Namespace != namespace {
		return err
	}
	if selected, err := p.view.isSelectedNamespace(req.Context(), p.published, cluster, namespace, false); err != nil || selected != (event.Type == watch.Added) {
		return err
	}
	original := req.URL.Query()
	query := url.Values{"limit": {strconv.Itoa(pageSize)}}
	for _, key := range []string{"labelSelector", "fieldSelector"} {
		if original.Has(key) {
			query.Set(key, original.Get(key))
		}
	}
	accept := req.Header.Get("Accept")
	if accept == acceptMetadata {
		accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	}
	// The label of the claim means that the logical cluster binds the export.
	req = req.WithContext(virtual.WithCluster(req.Context(), cluster))
	info := &request.RequestInfo{IsResourceRequest: true, Verb: "list", Namespace: namespace, Parts: []string{p.resource.Resource}}
	for {
		response := responserecorder.New()
		p.exports.ServeHTTP(response, newRead(req, info, p.resource, query, accept))
		var list struct {
			Metadata metav1.ListMeta   `json:"metadata"`
			Items    []json.RawMessage `json:"items"`
		}
		if response.Status != http.StatusOK {
			return fmt.Errorf("listing the objects of a namespace: %d: %.500s", response.Status, response.Body.String())
		}
		if err := json.Unmarshal(response.Body.Bytes(), &list); err != nil {
			return err
		}
		for _, item := range list.Items {
			if err := p.writeObject(event.Type, item, client); err != nil {
				return err
			}
		}
		if list.Metadata.Continue == "" {
			return nil
		}
		query.Set("continue", list.Metadata.Continue)
	}
}

// writeObject writes the event of its namespace for an object. One with the agent's finalizer does not leave.
func (p *publishedRequest) writeObject(eventType watch.EventType, item json.RawMessage, client *frameWriter) error {
	if eventType == watch.Added {
		return client.write(frame{eventType, item})
	}
	if object, _, err := readReference(item); err != nil || hasFinalizer(object.Metadata.Finalizers) {
		return err
	}
	return client.writeDeleted(item)
}

// discard is an http.ResponseWriter without a client.
type discard struct{ header http.Header }

func (d discard) Header() http.Header          { return d.header }
func (discard) WriteHeader(int)                {}
func (discard) Write(part []byte) (int, error) { return len(part), nil }
func (discard) Flush()                         {}
func (discard) CloseNotify() <-chan bool       { return nil }
