package installation

import (
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
)

// Direct has a client ask shards directly: each request for a logical cluster by its name goes to the shard that has it, and
// every other to the root shard. Credentials stay what they are.
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
		return &router{next: next, shards: shards, known: map[string]string{}, find: func(cluster string) string { return i.ShardOf(t, cluster) }}
	})
	return direct
}

// router sends requests to the shards that they are for.
type router struct {
	next   http.RoundTripper
	shards map[string]*url.URL
	find   func(cluster string) string

	mu    sync.Mutex
	known map[string]string
}

func (r *router) RoundTrip(request *http.Request) (*http.Response, error) {
	cluster, ok := strings.CutPrefix(request.URL.Path, "/clusters/")
	cluster, _, _ = strings.Cut(cluster, "/")
	if shard := r.shards[r.shard(cluster)]; ok && shard != nil {
		request = request.Clone(request.Context())
		request.URL.Host, request.Host = shard.Host, shard.Host
	}
	return r.next.RoundTrip(request)
}

// shard returns the name of the shard of a logical cluster, as far as it can have one.
func (r *router) shard(cluster string) string {
	if cluster == "" || strings.ContainsAny(cluster, "*:/") || cluster == Root {
		return Root
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known[cluster] == "" {
		r.known[cluster] = r.find(cluster)
	}
	return r.known[cluster]
}
