package flowcontrol

import (
	"context"
	"slices"
	"strings"
	"sync"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/util/flowcontrol"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// flow identifies the owner of requests: a logical cluster, or a user for requests outside of logical clusters.
type flow struct {
	name     string
	wildcard bool // wildcard requests
	// inCluster is set if name is the logical cluster in the request, which every client can choose.
	inCluster bool
}

// flowOf returns the flow of a request, or that it is exempt: requests of the shard itself, and probes of the process,
// must not wait for tenants.
func flowOf(ctx context.Context, digest flowcontrol.RequestDigest) (owner flow, exempt bool) {
	masters := slices.Contains(digest.User.GetGroups(), user.SystemPrivilegedGroup)
	cluster, ok := logicalcluster.From(ctx)
	switch {
	case digest.User.GetName() == user.APIServerUser && masters:
		return flow{}, true // the loopback: bootstrap, controllers
	case !digest.RequestInfo.IsResourceRequest && isProbe(digest.RequestInfo.Path):
		return flow{}, true
	case ok && cluster.IsWildcard():
		return flow{name: digest.User.GetName(), wildcard: true}, false
	case masters:
		return flow{}, true // other components of the installation
	case ok:
		return flow{name: cluster.String(), inCluster: true}, false
	}
	return flow{name: "user " + digest.User.GetName()}, false // names of logical clusters contain no space
}

func isProbe(path string) bool {
	for _, probe := range []string{"/healthz", "/livez", "/readyz", "/metrics"} {
		if path == probe || strings.HasPrefix(path, probe+"/") {
			return true
		}
	}
	return false
}

// counter counts requests by flow. A flow without requests is not in the map.
type counter struct {
	mu     sync.Mutex
	counts map[flow]int
	total  int
}

// get returns the number of requests of the flow.
func (c *counter) get(owner flow) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts[owner]
}

// add counts a request and returns the number of requests of its flow.
func (c *counter) add(owner flow) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[owner]++
	c.total++
	return c.counts[owner]
}

// addWithin counts a request unless the total of all flows has reached the limit.
func (c *counter) addWithin(owner flow, limit int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.total >= limit {
		return false
	}
	c.counts[owner]++
	c.total++
	return true
}

func (c *counter) remove(owner flow) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total--
	if c.counts[owner]--; c.counts[owner] == 0 {
		delete(c.counts, owner)
	}
}
