package usage

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/klog/v2"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// Path is where a logical cluster serves its usage.
const Path = "/metrics"

// contentType is that of the text format of Prometheus.
const contentType = "text/plain; version=0.0.4; charset=utf-8"

// WithUsage serves the usage of single logical clusters at Path. No request to Path in a logical cluster gets to next, which
// serves the metrics of the whole process there. It must run after authorization.
func (r *Recorder) WithUsage(next http.Handler, serializer runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		cluster, ok := logicalcluster.From(req.Context())
		if !ok || req.URL.Path != Path {
			next.ServeHTTP(w, req)
			return
		}
		text, err := r.serve(req, cluster)
		if err != nil {
			responsewriters.ErrorNegotiated(err, serializer, schema.GroupVersion{}, w, req)
			return
		}
		w.Header().Set("Content-Type", contentType)
		_, _ = w.Write([]byte(text)) // the client has gone
	})
}

func (r *Recorder) serve(req *http.Request, cluster logicalcluster.Name) (string, error) {
	ctx := req.Context()
	if req.Method != http.MethodGet {
		return "", apierrors.NewMethodNotSupported(schema.GroupResource{Resource: "metrics"}, req.Method)
	}
	if cluster.IsWildcard() || !r.cfg.Exists(ctx) {
		return "", apierrors.NewNotFound(corev1alpha1.Resource("logicalclusters"), cluster.String())
	}
	months, err := r.records.of(ctx, cluster)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to read the usage of a logical cluster", "cluster", cluster)
		return "", apierrors.NewServiceUnavailable("the usage cannot be read now")
	}
	if current := time.Now().UTC().Format(monthFormat); months[current] == nil {
		months[current] = &Record{} // readers see zero instead of a server that does not count
	}
	return format(months, r.sizes.of(ctx, cluster)), nil
}

// format returns records in the text format of Prometheus.
func format(months map[string]*Record, stored stored) string {
	var text strings.Builder
	names := slices.Sorted(maps.Keys(months))
	family := func(name, help, kind string, each func(month string, c *Counts)) {
		fmt.Fprintf(&text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
		for _, month := range names {
			each(month, &months[month].Counts)
		}
	}
	const requests, watches, received, sent = "atoll_usage_requests_total", "atoll_usage_watch_seconds_total", "atoll_usage_received_bytes_total", "atoll_usage_sent_bytes_total"
	family(requests, "Requests by class of their verb.", "counter", func(month string, c *Counts) {
		for _, class := range []struct {
			name  string
			count int64
		}{{"get", c.Gets}, {"list", c.Lists}, {"other", c.Others}, {"watch", c.Watches}, {"write", c.Writes}} {
			fmt.Fprintf(&text, "%s{class=%q,month=%q} %d\n", requests, class.name, month, class.count)
		}
	})
	family(watches, "Sum of the durations of watches.", "counter", func(month string, c *Counts) {
		fmt.Fprintf(&text, "%s{month=%q} %d.%03d\n", watches, month, c.WatchMilliseconds/1000, c.WatchMilliseconds%1000)
	})
	family(received, "Bytes of the bodies of requests.", "counter", func(month string, c *Counts) {
		fmt.Fprintf(&text, "%s{month=%q} %d\n", received, month, c.ReceivedBytes)
	})
	family(sent, "Bytes of the bodies of responses, as they were sent.", "counter", func(month string, c *Counts) {
		fmt.Fprintf(&text, "%s{month=%q} %d\n", sent, month, c.SentBytes)
	})
	if stored.known {
		fmt.Fprintf(&text, "# HELP atoll_usage_stored_objects Objects that are stored now.\n# TYPE atoll_usage_stored_objects gauge\natoll_usage_stored_objects %d\n", stored.objects)
		fmt.Fprintf(&text, "# HELP atoll_usage_stored_bytes Bytes of the objects that are stored now.\n# TYPE atoll_usage_stored_bytes gauge\natoll_usage_stored_bytes %d\n", stored.bytes)
	}
	return text.String()
}

// KeyCounter counts keys and bytes in etcd.
type KeyCounter interface {
	Count(ctx context.Context, cluster logicalcluster.Name) (int64, error)
	CountBytes(ctx context.Context, cluster logicalcluster.Name) (int64, error)
}

// A count reads all that a logical cluster stores. So one is counted at a time, and each at most for one pauseFactor-th of the time.
const (
	sizeWait    = 5 * time.Second
	minPause    = 10 * time.Second
	pauseFactor = 10
	maxSizes    = 1000
)

// stored is what a logical cluster stores.
type stored struct {
	objects, bytes int64
	// known is false if it could not be counted.
	known bool
	until time.Time
}

// sizes counts what logical clusters store, on request, and remembers the results for a while.
type sizes struct {
	keys KeyCounter
	slot chan struct{}

	mu     *sync.Mutex
	recent map[logicalcluster.Name]stored
}

func newSizes(keys KeyCounter) sizes {
	return sizes{keys: keys, slot: make(chan struct{}, 1), mu: &sync.Mutex{}, recent: map[logicalcluster.Name]stored{}}
}

// of returns what a logical cluster stores, unless other requests occupy the time.
func (s *sizes) of(ctx context.Context, cluster logicalcluster.Name) stored {
	if size, ok := s.get(cluster); ok {
		return size
	}
	waiting, cancel := context.WithTimeout(ctx, sizeWait)
	defer cancel()
	select {
	case s.slot <- struct{}{}:
		defer func() { <-s.slot }()
	case <-waiting.Done():
		return stored{}
	}
	if size, ok := s.get(cluster); ok { // another request has counted it
		return size
	}
	started := time.Now()
	size := stored{}
	objects, err := s.keys.Count(ctx, cluster)
	if err == nil {
		size.objects = objects
		size.bytes, err = s.keys.CountBytes(ctx, cluster)
	}
	if size.known = err == nil; !size.known {
		size.objects = 0
		if ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Failed to count what a logical cluster stores", "cluster", cluster)
		}
	}
	s.put(cluster, size, started) // also what failed: a client that ends its requests early occupies the time no more than others
	return size
}

func (s *sizes) get(cluster logicalcluster.Name) (stored, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	size, ok := s.recent[cluster]
	return size, ok && time.Now().Before(size.until)
}

func (s *sizes) put(cluster logicalcluster.Name, size stored, started time.Time) {
	now := time.Now()
	size.until = now.Add(max(pauseFactor*now.Sub(started), minPause))
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.recent) >= maxSizes {
		maps.DeleteFunc(s.recent, func(_ logicalcluster.Name, old stored) bool { return now.After(old.until) })
	}
	if len(s.recent) < maxSizes {
		s.recent[cluster] = size
	}
}
