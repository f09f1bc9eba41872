package store

import (
	"context"
	"path"
	"sync"
	"time"

	"go.etcd.io/etcd/client/v3/concurrency"
	"k8s.io/klog/v2"
)

const (
	// electionSegment is the first segment of election keys. No object has such a key.
	electionSegment = "election"
	// leaseSeconds is the lease duration of a leader.
	leaseSeconds = 10
	electionWait = 2 * time.Second
)

// RunAsLeader runs work in one process of those that share the store, until the context ends. The context of work is
// cancelled when this process stops leading.
func (b *Backend) RunAsLeader(ctx context.Context, name string, work func(ctx context.Context)) {
	for ctx.Err() == nil {
		if err := b.campaignAndRun(ctx, name, work); err != nil && ctx.Err() == nil {
			klog.ErrorS(err, "Failed to elect a leader, will retry", "work", name)
		}
		select {
		case <-ctx.Done():
		case <-time.After(electionWait):
		}
	}
}

// campaignAndRun campaigns until this process is the leader, and runs work while it leads.
func (b *Backend) campaignAndRun(ctx context.Context, name string, work func(ctx context.Context)) error {
	session, err := concurrency.NewSession(b.client.Client, concurrency.WithTTL(leaseSeconds), concurrency.WithContext(ctx))
	if err != nil {
		return err
	}
	defer b.resign(session)
	election := concurrency.NewElection(session, path.Join(b.Prefix(), electionSegment, name))
	if err := election.Campaign(ctx, ""); err != nil {
		return err
	}
	klog.InfoS("Started leading", "work", name)
	leading, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-session.Done():
			stop()
		case <-leading.Done():
		}
	})
	work(leading)
	stop()
	watching.Wait()
	return nil
}

// resign revokes the lease, so that the next leader need not wait for its expiry.
func (b *Backend) resign(session *concurrency.Session) {
	session.Orphan()
	ctx, cancel := context.WithTimeout(context.Background(), electionWait)
	defer cancel()
	_, _ = b.client.Revoke(ctx, session.Lease())
}
