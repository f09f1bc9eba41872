package installation

import (
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
)

// Direct returns a configuration whose clients send requests to shards directly: each request for a logical cluster, by name or path,
// goes to the shard that has it, and every other to the root shard. Like the front proxy, it replaces a path that only another shard
// could resolve by the name. Credentials do not change.
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
		return &router{next: next, shards: shards, cache: map[string]location{}, lookup: i.newLookup(t)}
	})
	return direct
}

// location is the shard of a logical cluster, and its name or path there.
type location struct{ shard, cluster string }

// router sends requests to the shards of their logical clusters.
type router struct {
	next   http.RoundTripper
	shards map[string]*url.URL
	lookup func(path string) location

	mu    sync.Mutex
	cache map[string]location // by name; paths may resolve to another logical cluster later
}

func (r *router) RoundTrip(request *http.Request) (*http.Response, error) {
	below, ok := strings.CutPrefix(request.URL.Path, "/clusters/")
	path, rest, _ := strings.Cut(below, "/")
	found := r.locate(path)
	if shard := r.shards[found.shard]; ok && shard != nil && found.shard != Root {
		request = request.Clone(request.Context())
		request.URL.Host, request.Host = shard.Host, shard.Host
		request.URL.Path = "/clusters/" + found.cluster + "/" + rest
	}
	return r.next.RoundTrip(request)
}

// locate returns the location of a logical cluster, unless every shard can serve it.
func (r *router) locate(path string) location {
	if path == "" || path == Root || strings.ContainsAny(path, "*%") || strings.HasPrefix(path, "system:") {
		return location{}
	}
	r.mu.Lock()
	found, ok := r.cache[path]
	r.mu.Unlock()
	if ok {
		return found
	}
	if found = r.lookup(path); found.cluster == path {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.cache[path] = found
	}
	if last := strings.LastIndex(path, ":"); found.shard == "" && last >= 0 { // the shard of the parent resolves the rest
		if found = r.locate(path[:last]); found.shard != "" {
			found.cluster += path[last:]
		}
	}
	return found
}
