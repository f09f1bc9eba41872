package fence

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/logicalcluster"
)

const (
	// replicasSegment and pausedSegment follow the prefix of the shard, where keys of objects have the API group. No API group
	// can have these names.
	replicasSegment = "~replicas"
	pausedSegment   = "~paused"

	// LeaseTTL is how long a replica that does not run any more counts as registered.
	LeaseTTL = 5 * time.Second
	// leaseMargin is how long before the end of its lease a replica stops writing, for the requests that are under way then.
	leaseMargin    = 2 * time.Second
	renewInterval  = time.Second
	requestTimeout = 2 * time.Second
	// startTimeout bounds the attempts to register when the process starts. Leases of earlier attempts expire.
	startTimeout = 30 * time.Second
	// PauseTimeout bounds the wait for the acknowledgements, while writes are refused. A replica that does not acknowledge until
	// then has ended or does not answer; the wait is shorter than a lease, so that writes are not refused until it expires.
	PauseTimeout = 2 * time.Second
	pollInterval = 10 * time.Millisecond
)

// replica is the registration of this process as a replica of the shard.
type replica struct {
	etcd     *clientv3.Client
	prefix   string
	id       string
	revision *revisions

	mu sync.Mutex
	// lease is that of the current registration, validUntil when the replica must have renewed it.
	lease      clientv3.LeaseID
	validUntil time.Time
}

func newReplica(etcd *clientv3.Client, prefix string, revision *revisions) *replica {
	return &replica{etcd: etcd, prefix: path.Join("/", prefix), id: strings.ReplaceAll(uuid.NewString(), "-", ""), revision: revision}
}

func (r *replica) replicasPrefix() string { return path.Join(r.prefix, replicasSegment) + "/" }

func (r *replica) pausedPrefix(cluster logicalcluster.Name) string {
	return path.Join(r.prefix, pausedSegment, cluster.String()) + "/"
}

// registerAtStart registers the replica of a process that starts, and tries again while etcd is slow: the process ends without it.
func (r *replica) registerAtStart(ctx context.Context) (err error) {
	_ = wait.PollUntilContextTimeout(ctx, renewInterval, startTimeout, true, func(ctx context.Context) (bool, error) {
		err = r.register(ctx)
		return err == nil, nil
	})
	return err
}

// register writes the key of the replica with a new lease. Writes may begin: those before the informer has reached the
// revision of the key read the stored object.
func (r *replica) register(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	granted, err := r.etcd.Grant(ctx, int64(LeaseTTL/time.Second))
	if err != nil {
		return fmt.Errorf("registering this replica of the shard in etcd: %w", err)
	}
	started := time.Now()
	if _, err := r.etcd.KeepAliveOnce(ctx, granted.ID); err != nil {
		return fmt.Errorf("registering this replica of the shard in etcd: %w", err)
	}
	written, err := r.etcd.Put(ctx, r.replicasPrefix()+r.id, "", clientv3.WithLease(granted.ID))
	if err != nil {
		return fmt.Errorf("registering this replica of the shard in etcd: %w", err)
	}
	r.revision.registered.Store(written.Header.Revision)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lease, r.validUntil = granted.ID, started.Add(LeaseTTL-leaseMargin)
	return nil
}

// keepRegistered renews the lease until the context ends, and registers again when it has expired. It calls changed then,
// because the acknowledgements have expired with the lease.
func (r *replica) keepRegistered(ctx context.Context, changed func()) {
	ticker := time.NewTicker(renewInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		err := r.renew(ctx)
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			klog.FromContext(ctx).Info("This replica of the shard has lost its lease in etcd and registers again")
			if err = r.register(ctx); err == nil {
				changed()
			}
		}
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Renewing the lease of this replica of the shard")
		}
	}
}

func (r *replica) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	started := time.Now() // the lease is at least valid from then
	if _, err := r.etcd.KeepAliveOnce(ctx, r.currentLease()); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.validUntil = started.Add(LeaseTTL - leaseMargin)
	return nil
}

// revoke ends the registration.
func (r *replica) revoke() {
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	_, _ = r.etcd.Revoke(ctx, r.currentLease()) // otherwise it expires
}

func (r *replica) currentLease() clientv3.LeaseID {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lease
}

// validLease returns the lease, and whether it is valid by both clocks: the monotonic one stands still while the machine is suspended,
// and the other one can be set back.
func (r *replica) validLease(now time.Time) (clientv3.LeaseID, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lease, now.Before(r.validUntil) && now.Round(0).Before(r.validUntil.Round(0))
}

// acknowledgements are the keys by which this replica acknowledges pauses. They have one entry for each pause.
type acknowledgements struct {
	replica *replica
	lease   clientv3.LeaseID
	written map[logicalcluster.Name]int64
}

func newAcknowledgements(r *replica) *acknowledgements {
	return &acknowledgements{replica: r, written: map[logicalcluster.Name]int64{}}
}

// missing returns the logical clusters of pauses that are not acknowledged.
func (a *acknowledgements) missing(paused map[logicalcluster.Name]int64) (clusters []logicalcluster.Name) {
	if lease := a.replica.currentLease(); lease != a.lease {
		a.lease = lease
		clear(a.written)
	}
	for cluster, revision := range paused {
		if a.written[cluster] < revision {
			clusters = append(clusters, cluster)
		}
	}
	return clusters
}

// add acknowledges the pauses of logical clusters.
func (a *acknowledgements) add(ctx context.Context, clusters []logicalcluster.Name, paused map[logicalcluster.Name]int64) {
	for _, cluster := range clusters {
		if err := a.write(ctx, cluster, paused[cluster]); err != nil {
			klog.FromContext(ctx).Error(err, "Acknowledging that writes are paused", "cluster", cluster)
			continue
		}
		a.written[cluster] = paused[cluster]
	}
}

// prune removes what acknowledges other pauses than these.
func (a *acknowledgements) prune(ctx context.Context, paused map[logicalcluster.Name]int64) {
	for cluster := range a.written {
		if _, stillPaused := paused[cluster]; stillPaused {
			continue
		}
		if err := a.remove(ctx, cluster); err != nil {
			klog.FromContext(ctx).Error(err, "Removing the acknowledgement of a pause", "cluster", cluster)
			continue
		}
		delete(a.written, cluster)
	}
}

func (a *acknowledgements) write(ctx context.Context, cluster logicalcluster.Name, revision int64) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err := a.replica.etcd.Put(ctx, a.replica.pausedPrefix(cluster)+a.replica.id, strconv.FormatInt(revision, 10), clientv3.WithLease(a.lease))
	return err
}

func (a *acknowledgements) remove(ctx context.Context, cluster logicalcluster.Name) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err := a.replica.etcd.Delete(ctx, a.replica.pausedPrefix(cluster)+a.replica.id)
	return err
}
