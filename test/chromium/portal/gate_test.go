package portal

import (
	"context"
	"net/http"
	"strings"
	"sync"
)

// gate is a proxy in front of the web server: it cuts connections, refuses a token as if it had expired, ends watches as if their
// resource versions had been compacted, and answers like servers that are no shards.
type gate struct {
	next    http.Handler
	mu      sync.Mutex
	down    bool
	closed  chan struct{}
	refused string
	within  string          // the beginning of the paths for which the token is refused
	expired map[string]bool // paths of watches that are to be ended; nil for none
	ends    int
	answers map[string]answer // by path
}

// answer is one of another server than a shard.
type answer struct {
	code int
	text string
}

// answerLike makes the gate answer requests for a path, or end that if the code is 0.
func (g *gate) answerLike(path string, code int, text string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.answers = map[string]answer{}
	if code != 0 {
		g.answers[path] = answer{code, text}
	}
}

// set starts or ends an outage: existing connections and new requests are cut.
func (g *gate) set(down bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if down == g.down {
		return
	}
	g.down = down
	if down {
		close(g.closed)
		return
	}
	g.closed = make(chan struct{})
}

// refuse makes the gate refuse a token.
func (g *gate) refuse(token string) { g.refuseIn(token, "") }

// refuseIn makes the gate refuse a token for paths that begin like this, as workspaces do that do not know its issuer.
func (g *gate) refuseIn(token, within string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refused, g.within = token, within
}

// expire makes the gate respond to the next watch of each path with status 410, and returns the number of such responses so far.
func (g *gate) expire(on bool) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expired = nil
	if on {
		g.expired = map[string]bool{}
	}
	return g.ends
}

// isExpired reports whether a watch must end; that is the case once for a path, after an outage.
func (g *gate) isExpired(r *http.Request) bool {
	if g.expired == nil || g.down || r.URL.Query().Get("watch") == "" || g.expired[r.URL.Path] {
		return false
	}
	g.expired[r.URL.Path] = true
	g.ends++
	return true
}

// ServeHTTP implements http.Handler.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	down, closed, expired := g.down, g.closed, g.isExpired(r)
	other, isOther := g.answers[r.URL.Path]
	refused := g.refused != "" && strings.HasPrefix(r.URL.Path, g.within) && strings.HasSuffix(r.Header.Get("Authorization"), " "+g.refused)
	g.mu.Unlock()
	switch {
	case down:
		panic(http.ErrAbortHandler)
	case isOther:
		w.WriteHeader(other.code)
		_, _ = w.Write([]byte(other.text)) // the page has read enough
		return
	case refused:
		r.Header.Set("Authorization", "Bearer expired")
	case expired:
		_, _ = w.Write([]byte(`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","message":"too old resource version","code":410}}` + "\n"))
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	served := make(chan struct{})
	defer close(served)
	go func() {
		select {
		case <-closed:
			cancel()
		case <-served:
		}
	}()
	g.next.ServeHTTP(w, r.WithContext(ctx))
}
