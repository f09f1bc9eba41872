package proxy

import (
	"fmt"
	"net/http"

	"github.com/atoll-dev/atoll/proxy/backend"
	"github.com/atoll-dev/atoll/proxy/mapping"
)

// newMux registers the entries of the mapping file, each with its forwarder. Patterns have the precedence of
// http.ServeMux: the most specific one wins, and without a match the response is 404.
func (r *router) newMux(entries []mapping.Entry, forwarders []*backend.Forwarder) (*http.ServeMux, error) {
	mux := http.NewServeMux()
	for i, entry := range entries {
		handler := &proxyHandler{router: r, forwarder: forwarders[i], resolve: r.resolveCluster}
		patterns := []string{mapping.ShardsPath}
		if !entry.IsShards() {
			base, err := entry.BackendURL()
			if err != nil {
				return nil, fmt.Errorf("mapping path %q: %w", entry.Path, err)
			}
			handler.resolve = func(req *http.Request) (destination, error) { return r.resolveBackend(req, entry.Path, base) }
			patterns = []string{entry.Pattern() + "/"}
			if entry.Pattern() != "" {
				patterns = append(patterns, entry.Pattern())
			}
		}
		for _, pattern := range patterns {
			if err := register(mux, pattern, handler); err != nil {
				return nil, err
			}
		}
	}
	return mux, nil
}

// register returns an error where http.ServeMux panics: for a malformed or conflicting pattern.
func register(mux *http.ServeMux, pattern string, handler http.Handler) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("mapping path %q: %v", pattern, p)
		}
	}()
	mux.Handle(pattern, handler)
	return nil
}
