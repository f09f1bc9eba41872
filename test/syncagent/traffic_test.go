package syncagent

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"

	"k8s.io/client-go/rest"
)

// traffic counts the requests of an agent: open watches by resource, and writes.
type traffic struct {
	mu      sync.Mutex
	watches map[string]int
	writes  []string
	reads   map[string]int
}

func newTraffic() *traffic { return &traffic{watches: map[string]int{}, reads: map[string]int{}} }

// observe counts the requests of configurations.
func (t *traffic) observe(kcp, service *rest.Config) {
	for _, config := range []*rest.Config{kcp, service} {
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &observer{t, next} })
	}
}

// openWatches returns the open watches of a resource.
func (t *traffic) openWatches(resource string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.watches[resource]
}

// allWatches returns the open watches by resource.
func (t *traffic) allWatches() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.watches)
}

// readsOf returns the number of reads of single objects of a resource.
func (t *traffic) readsOf(resource string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reads[resource]
}

// takeWrites returns the writes since the last call, without those of leases.
func (t *traffic) takeWrites() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	writes := t.writes
	t.writes = nil
	return writes
}

type observer struct {
	*traffic
	next http.RoundTripper
}

func (o *observer) RoundTrip(request *http.Request) (*http.Response, error) {
	resource, single := resourceOf(request.URL.Path)
	watch := request.URL.Query().Get("watch") != ""
	o.mu.Lock()
	switch {
	case watch:
		o.watches[resource]++
	case request.Method == http.MethodGet && single:
		o.reads[resource]++
	case request.Method != http.MethodGet && resource != "leases":
		o.writes = append(o.writes, fmt.Sprintf("%s %s", request.Method, request.URL.Path))
	}
	o.mu.Unlock()
	response, err := o.next.RoundTrip(request)
	if !watch {
		return response, err
	}
	ended := sync.OnceFunc(func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.watches[resource]--; o.watches[resource] == 0 {
			delete(o.watches, resource)
		}
	})
	if err != nil {
		ended()
		return nil, err
	}
	response.Body = &watchBody{response.Body, ended}
	return response, nil
}

// WrappedRoundTripper lets client-go find the wrapped transport.
func (o *observer) WrappedRoundTripper() http.RoundTripper { return o.next }

type watchBody struct {
	io.ReadCloser
	ended func()
}

func (b *watchBody) Close() error {
	b.ended()
	return b.ReadCloser.Close()
}

// resourceOf returns the resource of a URL path, and whether it is that of one object.
func resourceOf(path string) (resource string, single bool) {
	_, path, _ = strings.Cut(strings.ReplaceAll(path, "/apis/", "/api/x/"), "/api/")
	segments := strings.Split(path, "/")
	if segments[0] == "x" { // a group and a version, else the version of the core group
		segments = segments[2:]
	}
	segments = segments[1:]
	if len(segments) > 2 && segments[0] == "namespaces" {
		segments = segments[2:]
	}
	if len(segments) == 0 {
		return "", false
	}
	return segments[0], len(segments) > 1
}
