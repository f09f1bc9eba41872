package virtualworkspaces

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/server/healthz"
)

// The readiness checks: shardCheck is the readiness of the shard as a whole, the others are checks of the shard with
// the same name. A shard has replicationCheck with a feature gate only.
const (
	shardCheck       = "shard"
	replicationCheck = "replication"
)

// virtualWorkspaceChecks are the readiness checks of a shard for its virtual workspaces.
var virtualWorkspaceChecks = []string{
	"apiexport", "apiresourceschema",
	"initializingworkspaces-wildcard-logicalclusters", "initializingworkspaces-logicalclusters", "initializingworkspaces-workspace-content",
	"terminatingworkspaces-wildcard-logicalclusters", "terminatingworkspaces-logicalclusters", "terminatingworkspaces-workspace-content",
}

// readinessTimeout bounds a readiness check of the shard.
const readinessTimeout = 5 * time.Second

func (s *Server) newHealthMux() *http.ServeMux {
	mux := http.NewServeMux()
	healthz.InstallHandler(mux, healthz.PingHealthz)
	healthz.InstallLivezHandler(mux, healthz.PingHealthz)
	checks := []healthz.HealthChecker{healthz.NamedCheck(shardCheck, func(req *http.Request) error { return s.checkShard(req.Context(), "") })}
	for _, name := range append([]string{replicationCheck}, virtualWorkspaceChecks...) {
		checks = append(checks, healthz.NamedCheck(name, func(req *http.Request) error { return s.checkShard(req.Context(), name) }))
	}
	healthz.InstallReadyzHandler(mux, checks...)
	return mux
}

// withHealthEndpoints serves the health of this server, which needs no authentication (wall W7).
func withHealthEndpoints(health http.Handler) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			switch first, _, _ := strings.Cut(strings.TrimPrefix(req.URL.Path, "/"), "/"); first {
			case "healthz", "livez", "readyz":
				health.ServeHTTP(w, req)
			default:
				next.ServeHTTP(w, req)
			}
		})
	}
}

// checkShard runs a readiness check of the shard or, without a name, all of them.
func (s *Server) checkShard(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, readinessTimeout)
	defer cancel()
	target := url.URL{Scheme: s.shard.Scheme, Host: s.shard.Host, Path: path.Join("/readyz", name)}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return err
	}
	res, err := s.client.Do(req)
	if err != nil {
		return fmt.Errorf("checking the shard: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	_, _ = io.Copy(io.Discard, res.Body) // so that the connection is reused
	if name == replicationCheck && res.StatusCode == http.StatusNotFound {
		return nil // the feature gate of the shard is off
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("the shard responds with %s", res.Status)
	}
	return nil
}
