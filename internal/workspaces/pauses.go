package workspaces

import (
	"maps"
	"sync"
	"time"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// pauses are the workspaces whose events are dropped for a while. Their number is bounded by how many slow workspaces the writers can
// find in that time; each is removed when its time has expired and another is added, or when it is looked up.
type pauses struct {
	mu    sync.Mutex
	until map[logicalcluster.Name]time.Time
}

func (p *pauses) add(cluster logicalcluster.Name) {
	if cluster.Empty() {
		return // the object does not name its workspace
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.until == nil {
		p.until = map[logicalcluster.Name]time.Time{}
	}
	now := time.Now()
	maps.DeleteFunc(p.until, func(_ logicalcluster.Name, until time.Time) bool { return !now.Before(until) })
	p.until[cluster] = now.Add(pauseTime)
}

func (p *pauses) has(cluster logicalcluster.Name) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	until, ok := p.until[cluster]
	if ok && !time.Now().Before(until) {
		delete(p.until, cluster)
		return false
	}
	return ok
}
