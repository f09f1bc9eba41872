package fence

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/internal/movestate"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

var logicalClusters = corev1alpha1.Resource("logicalclusters")

// Config configures a Fence.
type Config struct {
	Registry *storage.Registry
	// Etcd is a client that the fence closes, Prefix the prefix of all keys of the shard.
	Etcd   *clientv3.Client
	Prefix string
	// Restored is whether the keys were restored from a backup. The fence refuses writes then until Confirm.
	Restored bool
	// Leave is called when this replica serves nothing of logical clusters that have moved away, before it acknowledges that, perhaps repeatedly. It
	// returns within less than PauseTimeout, because the destinations wait. It may be nil.
	Leave func(context.Context, []logicalcluster.Name)
}

// Fence refuses writes to logical clusters that move, in this replica of the shard, and pauses them in all.
type Fence struct {
	cfg      Config
	reader   *storage.Reader[*corev1alpha1.LogicalCluster]
	states   *states
	replica  *replica
	revision *revisions
	changed  chan struct{} // has an element when acknowledgements may have to change
	shown    *changes
	// unconfirmed is whether other shards may have logical clusters that this one has from a backup of before they moved.
	unconfirmed atomic.Bool

	stop    context.CancelFunc
	running sync.WaitGroup
}

// Start registers this process as a replica of the shard, and keeps it registered until Close. Nothing may write before.
func Start(ctx context.Context, cfg Config) (*Fence, error) {
	f := &Fence{
		cfg: cfg, reader: storage.NewReader[*corev1alpha1.LogicalCluster](cfg.Registry, logicalClusters),
		changed: make(chan struct{}, 1), revision: &revisions{}, shown: newChanges(),
	}
	f.unconfirmed.Store(cfg.Restored)
	f.states = newStates(f.wake, f.shown.add)
	f.replica = newReplica(cfg.Etcd, cfg.Prefix, f.revision)
	if err := f.replica.registerAtStart(ctx); err != nil {
		return nil, err
	}
	ctx, f.stop = context.WithCancel(context.WithoutCancel(ctx))
	f.running.Go(func() { f.replica.keepRegistered(ctx, f.wake) })
	return f, nil
}

// Close ends the registration and closes the client. No write may follow.
func (f *Fence) Close() error {
	f.stop()
	f.running.Wait()
	f.replica.revoke()
	return f.cfg.Etcd.Close()
}

// wake makes Run check the acknowledgements.
func (f *Fence) wake() {
	select {
	case f.changed <- struct{}{}:
	default: // it will
	}
}

// Run follows the LogicalClusters of the shard, and acknowledges pauses, until the context ends.
func (f *Fence) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { f.acknowledge(ctx) })
	running.Go(func() { f.shown.run(ctx, f.cfg.Etcd, f.cfg.Prefix) })
	f.newInformer().Run(WithMover(ctx))
}

// WaitForSync returns nil when the states of all logical clusters are known, or the context's error.
func (f *Fence) WaitForSync(ctx context.Context) error {
	select {
	case <-f.states.known:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// acknowledge acknowledges pauses until the context ends.
func (f *Fence) acknowledge(ctx context.Context) {
	ticker := time.NewTicker(sweepInterval) // also repeats what has failed
	defer ticker.Stop()
	acks := newAcknowledgements(f.replica)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			f.states.sweep(time.Now())
		case <-f.changed:
		}
		f.sync(ctx, acks)
	}
}

// sync acknowledges all pauses: those of logical clusters that have moved away last, because Leave takes time.
func (f *Fence) sync(ctx context.Context, acks *acknowledgements) {
	paused := f.states.paused()
	var stay, leave []logicalcluster.Name
	for _, cluster := range acks.missing(paused) {
		if f.states.stateOf(cluster) == movestate.MovedAway {
			leave = append(leave, cluster)
		} else {
			stay = append(stay, cluster)
		}
	}
	acks.add(ctx, stay, paused)
	if len(leave) > 0 && f.cfg.Leave != nil {
		f.cfg.Leave(ctx, leave)
	}
	acks.add(ctx, leave, paused)
	acks.prune(ctx, paused)
}
