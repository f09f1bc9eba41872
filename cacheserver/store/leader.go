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
	// electionSegment begins the keys of elections. No object has such a key.
	electionSegment = "election"
	// leaseSeconds is how long a leader that died is waited for.
	leaseSeconds = 10
	electionWait = 2 * time.Second
)

// RunAsLeader does the work in one process of those that use the store at a time, until the context ends. The context of the work
// ends when this process does not lead any more.
func (b *Backend) RunAsLeader(ctx context.Context, name string, work func(ctx context.Context)) {
	for ctx.Err() == nil {
		if err := b.campaignAndRun(ctx, name, work); err != nil && ctx.Err() == nil {
			klog.ErrorS(err, "Leading failed; another try follows", "work", name)
		}
		select {
		case <-ctx.Done():
		case <-time.After(electionWait):
		}
	}
}

// campaignAndRun waits for being the leader, and leads for as long as it goes.
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
	klog.InfoS("This process leads now", "work", name)
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

// resign gives the lease back, with which everything of the session goes, so that the next need not wait for its end.
func (b *Backend) resign(session *concurrency.Session) {
	session.Orphan()
	ctx, cancel := context.WithTimeout(context.Background(), electionWait)
	defer cancel()
	_, _ = b.client.Revoke(ctx, session.Lease())
}
