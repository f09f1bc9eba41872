// Package usage counts what the clients of each logical cluster use of its shard: requests by class of their verb, the duration of
// watches, and the bytes of bodies. Each replica adds up what it has served since the last flush, and adds that to the record of the
// logical cluster and month in etcd, in which all replicas share. The administrators of a workspace read the records of it.
//
// In memory there is an entry for each logical cluster with requests since the last flush, of which there are at most maxClusters, and
// for each watch that runs; an idle logical cluster has none.
package usage

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// maxClusters bounds the logical clusters with counts that are not flushed.
const maxClusters = 20000

// Counts is what one logical cluster has used.
type Counts struct {
	Gets    int64 `json:"gets,omitempty"`
	Lists   int64 `json:"lists,omitempty"`
	Watches int64 `json:"watches,omitempty"`
	Writes  int64 `json:"writes,omitempty"`
	// Others are requests for discovery, OpenAPI and other paths that are no resource, and connections to subresources.
	Others int64 `json:"others,omitempty"`
	// WatchMilliseconds is the sum of the durations of watches.
	WatchMilliseconds int64 `json:"watchMilliseconds,omitempty"`
	// ReceivedBytes and SentBytes are the sizes of the bodies of requests and responses, compressed as they were sent.
	ReceivedBytes int64 `json:"receivedBytes,omitempty"`
	SentBytes     int64 `json:"sentBytes,omitempty"`
}

// Requests is the number of all requests.
func (c *Counts) Requests() int64 { return c.Gets + c.Lists + c.Watches + c.Writes + c.Others }

// Bytes is the number of bytes in both directions.
func (c *Counts) Bytes() int64 { return c.ReceivedBytes + c.SentBytes }

func (c *Counts) add(more *Counts) {
	c.Gets += more.Gets
	c.Lists += more.Lists
	c.Watches += more.Watches
	c.Writes += more.Writes
	c.Others += more.Others
	c.WatchMilliseconds += more.WatchMilliseconds
	c.ReceivedBytes += more.ReceivedBytes
	c.SentBytes += more.SentBytes
}

// countVerb counts a request with a verb of RequestInfo.
func (c *Counts) countVerb(info *request.RequestInfo) {
	if !info.IsResourceRequest {
		c.Others++
		return
	}
	switch info.Verb {
	case "get":
		c.Gets++
	case "list":
		c.Lists++
	case "watch":
		c.Watches++
	case "create", "update", "patch", "delete", "deletecollection":
		c.Writes++
	default:
		c.Others++
	}
}

// Counter counts requests.
type Counter struct {
	shard string
	// exists reports whether the context's logical cluster exists on this shard.
	exists func(context.Context) bool
	// uncounted counts the requests for which there was no place.
	uncounted atomic.Int64
	// full receives a value when there is no place for another logical cluster.
	full chan struct{}

	mu       sync.Mutex
	clusters map[logicalcluster.Name]*Counts
	// watches are those that run.
	watches map[*exchange]struct{}
}

// NewCounter returns a Counter of a shard without counts.
func NewCounter(shard string, exists func(context.Context) bool) *Counter {
	return &Counter{shard: shard, exists: exists, full: make(chan struct{}, 1), clusters: map[logicalcluster.Name]*Counts{}, watches: map[*exchange]struct{}{}}
}

// WithCounting counts the requests to single logical clusters, except those for which skip returns true. It must run after
// authorization: requests of users who are not authorized do not count for a logical cluster.
func (c *Counter) WithCounting(next http.Handler, skip func(*http.Request) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		ctx := req.Context()
		cluster, ok := logicalcluster.From(ctx)
		info, hasInfo := request.RequestInfoFrom(ctx)
		if !ok || !hasInfo || cluster.IsWildcard() || skip(req) || !c.begin(ctx, cluster) {
			next.ServeHTTP(w, req)
			return
		}
		e := &exchange{ResponseWriter: w, cluster: cluster}
		if req.Body != nil && req.Body != http.NoBody {
			e.body = body{req.Body, &e.received}
			req.Body = &e.body
		}
		if info.IsResourceRequest && info.Verb == "watch" {
			e.counted = time.Now()
			c.startWatch(e)
		}
		defer c.end(e, info)
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(e), req)
	})
}

// begin makes sure that the logical cluster has an entry, and reports whether it has.
func (c *Counter) begin(ctx context.Context, cluster logicalcluster.Name) bool {
	c.mu.Lock()
	known := c.clusters[cluster] != nil
	c.mu.Unlock()
	if known {
		return true
	}
	if !c.exists(ctx) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entry(cluster) == nil {
		c.miss(1)
		select {
		case c.full <- struct{}{}:
		default:
		}
		return false
	}
	return true
}

// entry returns the entry of a logical cluster, or nil if there is no place for it. Callers must hold mu.
func (c *Counter) entry(cluster logicalcluster.Name) *Counts {
	counts := c.clusters[cluster]
	if counts == nil {
		if len(c.clusters) >= maxClusters {
			return nil
		}
		counts = &Counts{}
		c.clusters[cluster] = counts
	}
	return counts
}

func (c *Counter) startWatch(e *exchange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watches[e] = struct{}{}
}

// end counts a request that was answered.
func (c *Counter) end(e *exchange, info *request.RequestInfo) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.watches, e)
	if e.ended {
		return
	}
	counts := c.entry(e.cluster) // a flush may have removed it since
	if counts == nil {
		c.miss(1)
		return
	}
	counts.countVerb(info)
	e.moveTo(counts, time.Now())
}

// take returns all counts and resets them. Watches that run are counted until now.
func (c *Counter) take(now time.Time) map[logicalcluster.Name]*Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := range c.watches {
		if counts := c.entry(e.cluster); counts != nil { // otherwise the next flush counts it
			e.moveTo(counts, now)
		}
	}
	taken := c.clusters
	c.clusters = make(map[logicalcluster.Name]*Counts)
	return taken
}

// takeOne returns the counts of a logical cluster that this shard has handed over, and resets them. Its watches count as ended: they end
// because of it, and nobody reads what is counted here later.
func (c *Counter) takeOne(cluster logicalcluster.Name, now time.Time) Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := range c.watches {
		if e.cluster != cluster {
			continue
		}
		counts := c.entry(cluster)
		if counts == nil {
			c.miss(1)
			break
		}
		counts.Watches++
		e.moveTo(counts, now)
		e.ended = true
		delete(c.watches, e)
	}
	counts := c.clusters[cluster]
	delete(c.clusters, cluster)
	if counts == nil {
		return Counts{}
	}
	return *counts
}

// putBack adds counts again that could not be flushed.
func (c *Counter) putBack(cluster logicalcluster.Name, counts *Counts) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if entry := c.entry(cluster); entry != nil {
		entry.add(counts)
		return
	}
	c.miss(counts.Requests())
}

// miss notes requests that are not counted.
func (c *Counter) miss(requests int64) {
	c.uncounted.Add(requests)
	uncountedRequests.WithLabelValues(c.shard).Add(float64(requests))
}

// exchange is one request and its response.
type exchange struct {
	http.ResponseWriter
	cluster        logicalcluster.Name
	body           body
	received, sent atomic.Int64
	// counted is the time until which the duration of a watch is counted; zero for other requests.
	counted time.Time
	// ended is whether takeOne has counted the watch.
	ended bool
}

// moveTo adds what is not counted yet of the duration and the bytes. Callers must hold the mutex of the Counter.
func (e *exchange) moveTo(counts *Counts, now time.Time) {
	counts.ReceivedBytes += e.received.Swap(0)
	counts.SentBytes += e.sent.Swap(0)
	if e.counted.IsZero() {
		return
	}
	// What is less than a millisecond is counted the next time.
	milliseconds := max(now.Sub(e.counted).Milliseconds(), 0)
	counts.WatchMilliseconds += milliseconds
	e.counted = e.counted.Add(time.Duration(milliseconds) * time.Millisecond)
}

// Write implements http.ResponseWriter.
func (e *exchange) Write(data []byte) (int, error) {
	n, err := e.ResponseWriter.Write(data)
	e.sent.Add(int64(n))
	return n, err
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (e *exchange) Unwrap() http.ResponseWriter { return e.ResponseWriter }

// body counts what is read of the body of a request.
type body struct {
	readCloser
	received *atomic.Int64
}

type readCloser interface {
	Read([]byte) (int, error)
	Close() error
}

// Read implements io.Reader.
func (b *body) Read(to []byte) (int, error) {
	n, err := b.readCloser.Read(to)
	b.received.Add(int64(n))
	return n, err
}
