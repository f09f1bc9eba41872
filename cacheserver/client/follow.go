package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// Position is a point in the history of a cache, from which a watch goes on. The zero Position is "nothing seen yet".
type Position struct {
	ResourceVersion string
	// Incarnation names the store that the resource version is of.
	Incarnation string
}

// Follower is told what happens to the objects of one resource. Its methods are called one after the other, and must
// not wait for the cache.
type Follower interface {
	// Replaced brings everything that is in the cache. What a follower has seen besides is missing from the cache; that it
	// is gone follows only where its shard says that its part of the cache is complete.
	Replaced(objects []*Object, at Position)
	// Changed brings one change: watch.Added, watch.Modified, watch.Deleted with the object, or watch.Bookmark without one.
	Changed(change watch.EventType, object *Object, at Position)
	// Connected says that the stream is open, Disconnected why it is not; both repeat while things stay as they are.
	Connected()
	Disconnected(err error)
}

// Follow tells the follower about all objects of a resource, of all shards and logical clusters, until the context ends.
// It goes on from a position that was seen earlier (in another process, too), or begins with a list. Disconnects do not
// end it: it resumes, after a while that grows up to 30 s, where it was, and lists again only if the cache has forgotten
// the position.
func (c *Client) Follow(ctx context.Context, gvr schema.GroupVersionResource, from Position, follower Follower) {
	c.FollowOf(ctx, gvr, "*", logicalcluster.Wildcard, from, follower)
}

// FollowOf is Follow for the objects of one shard, in a logical cluster or in all (logicalcluster.Wildcard).
func (c *Client) FollowOf(ctx context.Context, gvr schema.GroupVersionResource, shard string, cluster logicalcluster.Name, from Position, follower Follower) {
	stream := stream{client: c, gvr: gvr, of: Key{Shard: shard, Cluster: cluster}, at: from, follower: follower}
	for ctx.Err() == nil {
		backoff := newBackoff()
		for ctx.Err() == nil {
			progressed, err := stream.once(ctx)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				follower.Disconnected(err)
			}
			if progressed {
				break
			}
			pause(ctx, backoff.Step())
		}
		pause(ctx, wait.Jitter(100*time.Millisecond, 1)) // a server that ends every watch at once must not be hammered
	}
}

func newBackoff() *wait.Backoff {
	return &wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 8, Cap: 30 * time.Second}
}

func pause(ctx context.Context, duration time.Duration) {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

var errNoAnswer = fmt.Errorf("no answer within %s", requestTimeout)

type stream struct {
	client *Client
	gvr    schema.GroupVersionResource
	// of says whose objects are followed.
	of       Key
	at       Position
	follower Follower
}

// once lists, if there is no position, and watches until the watch ends. It tells whether anything has arrived.
func (s *stream) once(ctx context.Context) (progressed bool, err error) {
	if s.at.ResourceVersion == "" {
		objects, at, err := s.client.list(ctx, s.gvr, s.of.Shard, s.of.Cluster)
		if err != nil {
			return false, err
		}
		s.at, progressed = at, true
		s.follower.Replaced(objects, at)
	}
	received, err := s.watch(ctx)
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
		s.at = Position{}
		return true, nil
	}
	return progressed || received, err
}

// watch returns nil when the server ended the watch in order.
func (s *stream) watch(ctx context.Context) (received bool, err error) {
	query := url.Values{"watch": {"true"}, "allowWatchBookmarks": {"true"}, "resourceVersion": {s.at.ResourceVersion}}
	address := s.client.url(s.gvr, s.of, query)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	unanswered := time.AfterFunc(requestTimeout, cancel) // a watch may last, but not be without an answer
	response, err := s.client.send(ctx, http.MethodGet, address, nil, http.Header{IncarnationHeader: {s.at.Incarnation}})
	if !unanswered.Stop() {
		if err == nil {
			response.Body.Close()
		}
		err = errNoAnswer
	}
	if err != nil {
		return false, fmt.Errorf("watching %s in the cache: %w", s.gvr.GroupResource(), err)
	}
	defer response.Body.Close()
	s.follower.Connected()
	decoder := json.NewDecoder(response.Body)
	for {
		var event struct {
			Type   watch.EventType `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if err := decoder.Decode(&event); err != nil {
			if errors.Is(err, io.EOF) {
				return received, nil
			}
			return received, fmt.Errorf("watching %s in the cache: %w", s.gvr.GroupResource(), err)
		}
		if err := s.handle(event.Type, event.Object); err != nil {
			return received, err
		}
		received = true
	}
}

func (s *stream) handle(change watch.EventType, raw json.RawMessage) error {
	switch change {
	case watch.Error:
		status := metav1.Status{}
		if err := json.Unmarshal(raw, &status); err != nil {
			return fmt.Errorf("decoding an error of a watch of %s: %w", s.gvr.GroupResource(), err)
		}
		return apierrors.FromObject(&status)
	case watch.Bookmark:
		var bookmark metav1.PartialObjectMetadata
		if err := json.Unmarshal(raw, &bookmark); err != nil {
			return fmt.Errorf("decoding a bookmark of a watch of %s: %w", s.gvr.GroupResource(), err)
		}
		s.at.ResourceVersion = bookmark.ResourceVersion
		s.follower.Changed(change, nil, s.at)
	default:
		object, err := parse(raw)
		if err != nil {
			return err
		}
		s.at.ResourceVersion = object.Meta.ResourceVersion
		s.follower.Changed(change, object, s.at)
	}
	return nil
}
