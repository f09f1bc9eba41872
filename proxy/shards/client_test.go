package shards

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/proxy/index"
)

// pagingServer serves pages of logical clusters, the last one empty, and watches without events.
type pagingServer struct {
	pages   int
	fails   atomic.Int64 // number of requests for a second page that fail
	lists   atomic.Int64
	accepts sync.Map // Accept headers
	watches atomic.Int64
}

func (p *pagingServer) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	p.accepts.Store(req.Header.Get("Accept"), true)
	query := req.URL.Query()
	w.Header().Set("Content-Type", "application/json")
	if query.Get("watch") != "" {
		if query.Get("resourceVersion") != "7" || query.Get("allowWatchBookmarks") != "true" || query.Get("timeoutSeconds") == "" {
			http.Error(w, "unexpected watch: "+req.URL.RawQuery, http.StatusBadRequest)
			return
		}
		p.watches.Add(1)
		_ = http.NewResponseController(w).Flush()
		<-req.Context().Done()
		return
	}
	page := 0
	_, _ = fmt.Sscan(query.Get("continue"), &page)
	if page == 0 {
		p.lists.Add(1)
	}
	if page == 1 && p.fails.Add(-1) >= 0 {
		http.Error(w, "no", http.StatusInternalServerError)
		return
	}
	metadata, items := map[string]any{"resourceVersion": "7"}, []any{}
	if page < p.pages {
		metadata["continue"] = fmt.Sprint(page + 1)
		items = append(items, map[string]any{"metadata": map[string]any{"name": "cluster", "annotations": map[string]string{logicalcluster.AnnotationKey: fmt.Sprintf("c%d", page)}}})
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": metadata, "items": items})
}

// TestPagedList: all pages are used, also if the last one is empty, and none of a list that failed.
func TestPagedList(t *testing.T) {
	p := &pagingServer{pages: 3}
	p.fails.Store(1)
	server := httptest.NewServer(p)
	defer server.Close()
	resource, err := newResourceClient(&rest.Config{Host: server.URL}, "*", coreVersion, "logicalclusters")
	if err != nil {
		t.Fatal(err)
	}
	resource.metadataOnly = true
	idx, status := index.New(), &resourceStatus{shard: "alpha", resource: "logicalclusters"}
	idx.SetShard(index.Shard{Name: "alpha"})
	r := newReflector(resource, newClusterHandler(status, idx))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx)
	}()
	for deadline := time.Now().Add(10 * time.Second); p.watches.Load() == 0 && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
	}
	cancel()
	<-done
	if synced, failure := status.get(); !synced || failure != nil {
		t.Errorf("synced %v, failure %v", synced, failure)
	}
	if p.lists.Load() != 2 || p.watches.Load() != 1 {
		t.Errorf("%d lists and %d watches, want 2 and 1", p.lists.Load(), p.watches.Load())
	}
	for _, accept := range []string{acceptMetadata, acceptMetadataList} {
		if _, ok := p.accepts.Load(accept); !ok {
			t.Errorf("no request accepts %s", accept)
		}
	}
	idx.SetShard(index.Shard{Name: "alpha", BaseURL: mustURL(t, "https://alpha")})
	for n := range 3 {
		name := fmt.Sprintf("c%d", n)
		if _, resolution := idx.Load().Resolve(logicalcluster.MustParsePath(name)); resolution != index.Found {
			t.Errorf("%s: resolution %d", name, resolution)
		}
	}
}

func mustURL(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}
