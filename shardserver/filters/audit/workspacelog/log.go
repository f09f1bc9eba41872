// Package workspacelog keeps the latest audit events of each logical cluster in memory, for its administrators, who read them at Path. The events
// have nothing of other logical clusters (event.go).
//
// Changes that succeeded, what else authorization has allowed (changes that failed, reads of Secrets), and what it has not have a ring each, so that
// who may do nothing removes only refusals from the log. A ring has a bound in bytes for all logical clusters. When it is full, the one with most
// bytes loses its oldest event: others keep theirs, and one that was active once does not occupy what active ones need.
package workspacelog

import (
	"cmp"
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	stockaudit "k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/authorization"
	"github.com/atoll-dev/atoll/shardserver/filters/audit"
)

const (
	// changesShare is the part of all bytes for changes, in eighths. The other two rings have one each.
	changesShare = 6
	// clusterShare is the part of a ring that one logical cluster may have, and maxClusterBytes the limit of that, which bounds a response.
	clusterShare    = 16
	maxClusterBytes = 4 << 20
	// sweepInterval is how often the events of logical clusters that are gone are removed. They cannot be read any more.
	sweepInterval = time.Minute
	// lookupTimeout bounds how long a request waits to be recorded while the watch cache is not ready, and sweepTimeout a sweep.
	lookupTimeout = time.Second
	sweepTimeout  = 30 * time.Second
)

// Config configures a Log.
type Config struct {
	// Bytes bounds the memory of all events.
	Bytes int64
	// Find returns nil if the context's logical cluster exists on this shard, and NotFound if it does not, from memory.
	Find func(context.Context) error
	// IsGone reports whether a logical cluster has been deleted. It may ask etcd.
	IsGone func(context.Context, logicalcluster.Name) (bool, error)
}

// Log has the latest events of each logical cluster.
type Log struct {
	cfg                      Config
	changes, others, refused *ring
}

// New returns an empty Log.
func New(cfg Config) *Log {
	eighth := cfg.Bytes / 8
	return &Log{cfg: cfg, changes: newRing(changesShare * eighth), others: newRing(eighth), refused: newRing(eighth)}
}

func (l *Log) rings() []*ring { return []*ring{l.changes, l.others, l.refused} }

// Route returns the route of events to the log.
func (l *Log) Route() audit.Route {
	rules := policy.NewPolicyRuleEvaluator(&auditinternal.Policy{
		// Failed authentication has the stage ResponseStarted only.
		OmitStages: []auditinternal.Stage{auditinternal.StageRequestReceived},
		Rules: []auditinternal.PolicyRule{
			{Level: auditinternal.LevelNone, Users: []string{loopbackUser}},
			{Level: auditinternal.LevelNone, UserGroups: []string{authorization.GroupShard}},
			{Level: auditinternal.LevelNone, Resources: unrecorded},
			{Level: auditinternal.LevelNone, NonResourceURLs: []string{"/healthz*", "/livez*", "/readyz*"}},
			{Level: auditinternal.LevelMetadata},
		},
	})
	return audit.Route{Policy: rules, Backend: backend{l}, MayFail: true}
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
	var into *ring
	switch classify(event) {
	case ignored:
		return
	case change:
		into = l.changes
	case other:
		into = l.others
	case refused:
		into = l.refused
	}
	cluster, ok := audit.ClusterOf(event)
	if !ok || cluster.IsWildcard() {
		return
	}
	ctx, cancel := context.WithTimeout(logicalcluster.With(context.Background(), cluster), lookupTimeout)
	defer cancel()
	if apierrors.IsNotFound(l.cfg.Find(ctx)) {
		return // of another error, the sweep decides
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
	var records []record
	for _, r := range l.rings() {
		records = append(records, r.read(cluster)...)
	}
	return newest(records, since, limit)
}

// Forget removes the events of a logical cluster that was deleted: one that is created under its name begins with none.
func (l *Log) Forget(cluster logicalcluster.Name) {
	for _, r := range l.rings() {
		r.remove(cluster)
	}
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

// sweep leaves what it cannot decide about to the next sweep.
func (l *Log) sweep(ctx context.Context) {
	sweeping, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	clusters := sets.New[logicalcluster.Name]()
	for _, r := range l.rings() {
		clusters.Insert(r.list()...)
	}
	var first error
	for cluster := range clusters {
		gone, err := l.cfg.IsGone(sweeping, cluster)
		if first = cmp.Or(first, err); err == nil && gone {
			l.Forget(cluster)
		}
	}
	if first != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(first, "Failed to decide whether logical clusters with audit events are gone, the next sweep does")
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
