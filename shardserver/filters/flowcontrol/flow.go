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

// flow is whose turn it is: a logical cluster, or who asks for none.
type flow struct {
	name       string
	everywhere bool // requests to all logical clusters
	// inside says that the flow is a logical cluster, whose name anybody can say.
	inside bool
}

// flowOf names the flow of a request, or says that it is nobody's: the shard's own, and those that tell whether the
// process is alive, must not wait for tenants.
func flowOf(ctx context.Context, digest flowcontrol.RequestDigest) (of flow, exempt bool) {
	masters := slices.Contains(digest.User.GetGroups(), user.SystemPrivilegedGroup)
	cluster, ok := logicalcluster.From(ctx)
	switch {
	case digest.User.GetName() == user.APIServerUser && masters:
		return flow{}, true // the loopback: bootstrap, controllers
	case !digest.RequestInfo.IsResourceRequest && tellsOfProcess(digest.RequestInfo.Path):
		return flow{}, true
	case ok && cluster.IsWildcard():
		return flow{name: digest.User.GetName(), everywhere: true}, false
	case masters:
		return flow{}, true // other components of the installation
	case ok:
		return flow{name: cluster.String(), inside: true}, false
	}
	return flow{name: "user " + digest.User.GetName()}, false // a space is in no name of a logical cluster
}

func tellsOfProcess(path string) bool {
	for _, probe := range []string{"/healthz", "/livez", "/readyz", "/metrics"} {
		if path == probe || strings.HasPrefix(path, probe+"/") {
			return true
		}
	}
	return false
}

// counter counts requests of each flow. A flow without any is not in the map.
type counter struct {
	mu  sync.Mutex
	of  map[flow]int
	all int
}

// has returns how many requests of the flow there are.
func (c *counter) has(of flow) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[of]
}

// enter returns the count of the flow with this request.
func (c *counter) enter(of flow) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of[of]++
	c.all++
	return c.of[of]
}

// enterWithin counts a request unless there are as many of all flows already.
func (c *counter) enterWithin(of flow, limit int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all >= limit {
		return false
	}
	c.of[of]++
	c.all++
	return true
}

func (c *counter) leave(of flow) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	if c.of[of]--; c.of[of] == 0 {
		delete(c.of, of)
	}
}
