package installation

import (
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
)

// Direct returns a configuration whose clients send requests to shards directly: each request for a logical cluster, by
// name or path, goes to the shard that has it, and every other to the root shard. A path that only another shard could
// resolve is replaced by the name, as the front proxy does it. Credentials stay the same.
func (i *Installation) Direct(t testing.TB, config *rest.Config) *rest.Config {
	t.Helper()
	shards := map[string]*url.URL{}
	for _, name := range i.Shards() {
		parsed, err := url.Parse(i.ServerURL(name))
		if err != nil {
			t.Fatal(err)
		}
		shards[name] = parsed
	}
	direct := rest.CopyConfig(config)
	direct.Host = i.Shard + strings.TrimPrefix(config.Host, i.URL)
	direct.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &router{next: next, shards: shards, known: map[string]place{}, find: i.finder(t)}
	})
	return direct
}

// place is the shard of a logical cluster, and its name or path there.
type place struct{ shard, cluster string }

// router sends requests to the shards of their logical clusters.
type router struct {
	next   http.RoundTripper
	shards map[string]*url.URL
	find   func(path string) place

	mu    sync.Mutex
	known map[string]place // by name; paths may resolve to another place later
}

func (r *router) RoundTrip(request *http.Request) (*http.Response, error) {
	below, ok := strings.CutPrefix(request.URL.Path, "/clusters/")
	path, rest, _ := strings.Cut(below, "/")
	at := r.place(path)
	if shard := r.shards[at.shard]; ok && shard != nil && at.shard != Root {
		request = request.Clone(request.Context())
		request.URL.Host, request.Host = shard.Host, shard.Host
		request.URL.Path = "/clusters/" + at.cluster + "/" + rest
	}
	return r.next.RoundTrip(request)
}

// place returns the place of a logical cluster, unless every shard can serve it.
func (r *router) place(path string) place {
	if path == "" || path == Root || strings.ContainsAny(path, "*%") || strings.HasPrefix(path, "system:") {
		return place{}
	}
	r.mu.Lock()
	at, ok := r.known[path]
	r.mu.Unlock()
	if ok {
		return at
	}
	if at = r.find(path); at.cluster == path {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.known[path] = at
	}
	if last := strings.LastIndex(path, ":"); at.shard == "" && last >= 0 { // the shard of the parent resolves the rest
		if at = r.place(path[:last]); at.shard != "" {
			at.cluster += path[last:]
		}
	}
	return at
}
