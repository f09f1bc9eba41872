// Package workspacelog keeps the latest audit events of each logical cluster in memory, for its administrators, who read them at Path. The events
// have nothing of other logical clusters (event.go).
//
// Changes that succeeded, and what else is kept (refused requests, changes that failed, reads of Secrets), have a ring each, so that who may
// change nothing removes no change from the log. A ring has a bound in bytes for all logical clusters. When it is full, the one with most
// bytes loses its oldest event: others keep theirs, and one that was active once does not occupy what active ones need.
package workspacelog

import (
	"context"
	"time"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	stockaudit "k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/audit/policy"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/filters/audit"
)

const (
	// changesShare is the part of all bytes for changes, in quarters.
	changesShare = 3
	// clusterShare is the part of a ring that one logical cluster may have, and maxClusterBytes the limit of that, which bounds a response.
	clusterShare    = 16
	maxClusterBytes = 4 << 20
	// sweepInterval is how often the events of logical clusters that are gone are removed. They cannot be read any more.
	sweepInterval = time.Minute
)

// Config configures a Log.
type Config struct {
	// Bytes bounds the memory of all events.
	Bytes int64
	// Exists reports whether the context's logical cluster exists on this shard, from memory.
	Exists func(context.Context) bool
}

// Log has the latest events of each logical cluster.
type Log struct {
	exists          func(context.Context) bool
	changes, others *ring
}

// New returns an empty Log.
func New(cfg Config) *Log {
	changes := cfg.Bytes * changesShare / 4
	return &Log{exists: cfg.Exists, changes: newRing(changes), others: newRing(cfg.Bytes - changes)}
}

// Route returns the route of events to the log.
func (l *Log) Route() audit.Route {
	rules := policy.NewPolicyRuleEvaluator(&auditinternal.Policy{
		OmitStages: []auditinternal.Stage{auditinternal.StageRequestReceived, auditinternal.StageResponseStarted},
		Rules: []auditinternal.PolicyRule{
			{Level: auditinternal.LevelNone, Users: []string{loopbackUser}},
			{Level: auditinternal.LevelNone, Resources: unrecorded},
			{Level: auditinternal.LevelNone, NonResourceURLs: []string{"/healthz*", "/livez*", "/readyz*"}},
			{Level: auditinternal.LevelMetadata},
		},
	})
	return audit.Route{Policy: rules, Backend: backend{l}, MayFail: true, Selects: func(event *auditinternal.Event) bool { return classify(event) != ignored }}
}

// unrecorded are resources that controllers write often, and that say nothing about who has changed what: events, leases and reviews.
var unrecorded = []auditinternal.GroupResources{
	{Group: "", Resources: []string{"events"}},
	{Group: "events.k8s.io"},
	{Group: "coordination.k8s.io"},
	{Group: "authentication.k8s.io"},
	{Group: "authorization.k8s.io"},
}

// ProcessEvents implements audit.Sink.
func (l *Log) ProcessEvents(events ...*auditinternal.Event) bool {
	for _, event := range events {
		l.add(event)
	}
	return true
}

func (l *Log) add(event *auditinternal.Event) {
	into := l.others
	switch classify(event) {
	case ignored:
		return
	case change:
		into = l.changes
	}
	cluster, ok := audit.ClusterOf(event)
	if !ok || cluster.IsWildcard() || !l.exists(logicalcluster.With(context.Background(), cluster)) {
		return
	}
	encoded, err := encode(event, cluster)
	if err != nil {
		stockaudit.HandlePluginError(l.String(), err) // without the event, which the operator's log may not have
		return
	}
	into.add(cluster, record{event.StageTimestamp.UnixMicro(), encoded})
}

// read returns the newest events of a logical cluster, oldest first: at most limit, of those since a time in microseconds.
func (l *Log) read(cluster logicalcluster.Name, since int64, limit int) []record {
	return newest(append(l.changes.read(cluster), l.others.read(cluster)...), since, limit)
}

// Run removes the events of logical clusters that are gone, until the context ends.
func (l *Log) Run(ctx context.Context) {
	ticker := time.NewTicker(sweepInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			l.sweep(ctx)
		}
	}
}

func (l *Log) sweep(ctx context.Context) {
	for _, r := range []*ring{l.changes, l.others} {
		for _, cluster := range r.list() {
			if !l.exists(logicalcluster.With(ctx, cluster)) {
				r.remove(cluster)
			}
		}
	}
}

// backend is the Log as an audit backend. Nothing is pending when the server ends.
type backend struct{ *Log }

var _ stockaudit.Backend = backend{}

// Run implements audit.Backend.
func (backend) Run(<-chan struct{}) error { return nil }

// Shutdown implements audit.Backend.
func (backend) Shutdown() {}

// String is the name of the log in messages and metrics.
func (l *Log) String() string { return "workspacelog" }
