package transfer

import (
	"bytes"
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// Activate stores what is staged under the real keys, which must not exist or have the same content: it can be called again after it has
// ended anywhere. It leaves out keys that have expired, and those that replace skips. replace may return another value; nil replaces
// nothing. It must return the same for the same input.
//
// Each transaction requires the fence, conditions that end when the logical cluster opens for its users: a late call must not restore
// what they delete. Activate must not be called after that; DropStaged follows it. It fails with ErrFenced if the fence does not
// hold, with ErrConflict if a key has another content.
func (t *Transfer) Activate(ctx context.Context, cluster logicalcluster.Name, uid types.UID,
	replace func(key Key, plaintext []byte) (replaced []byte, skip bool, err error), fence []clientv3.Cmp) error {
	a := &activation{t: t, cluster: cluster, fence: fence, leases: &leases{client: t.cfg.Client, now: t.now, byEnd: map[time.Time]*sharedLease{}}}
	writes, writeCtx := errgroup.WithContext(ctx)
	writes.SetLimit(parallelWrites)
	err := t.eachStaged(writeCtx, cluster, uid, func(r record, plaintext []byte) error {
		if !r.Expires.IsZero() && !r.Expires.After(t.now()) {
			return nil
		}
		if replace != nil {
			replaced, skip, err := replace(r.Key, plaintext)
			if err != nil {
				return fmt.Errorf("replacing a value of %s: %w", r.Resource, err)
			}
			if skip {
				return nil
			}
			plaintext = replaced
		}
		writes.Go(func() error { return a.store(writeCtx, r, plaintext) })
		return nil
	})
	// The error of a write ends the context of the reads, whose error then says less.
	if writeErr := writes.Wait(); writeErr != nil {
		err = writeErr
	}
	if err != nil {
		return fmt.Errorf("activating logical cluster %q: %w", cluster, err)
	}
	return nil
}

// activation is one call of Activate.
type activation struct {
	t       *Transfer
	cluster logicalcluster.Name
	fence   []clientv3.Cmp
	leases  *leases
}

// store creates a key, unless it exists with the same content.
func (a *activation) store(ctx context.Context, r record, plaintext []byte) error {
	key := a.t.clusterKey(a.cluster, r.Key)
	encrypted, err := a.t.encrypt(ctx, r.Resource, key, plaintext)
	if err != nil {
		return err
	}
	var options []clientv3.OpOption
	if !r.Expires.IsZero() {
		lease, err := a.leases.at(ctx, r.Expires)
		if err != nil {
			return err
		}
		options = append(options, clientv3.WithLease(lease))
	}
	conditions := append([]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", 0)}, a.fence...)
	response, err := a.t.cfg.Client.Txn(ctx).If(conditions...).Then(clientv3.OpPut(key, string(encrypted), options...)).Commit()
	if err != nil {
		return fmt.Errorf("creating a key of %s: %w", r.Resource, err)
	}
	if response.Succeeded {
		return nil
	}
	return a.compare(ctx, r, key, plaintext)
}

// compare returns an error unless the fence holds and the key has the content.
func (a *activation) compare(ctx context.Context, r record, key string, plaintext []byte) error {
	response, err := a.t.cfg.Client.Txn(ctx).If(a.fence...).Then(clientv3.OpGet(key)).Commit()
	if err != nil {
		return fmt.Errorf("reading a key of %s: %w", r.Resource, err)
	}
	if !response.Succeeded {
		return ErrFenced
	}
	found := response.Responses[0].GetResponseRange().Kvs
	if len(found) == 0 {
		return fmt.Errorf("a key of %s was deleted meanwhile", r.Resource)
	}
	existing, err := a.t.decrypt(ctx, r.Resource, found[0])
	if err != nil {
		return err
	}
	if !bytes.Equal(existing, plaintext) || (found[0].Lease != 0) != !r.Expires.IsZero() {
		return fmt.Errorf("%w: %s", ErrConflict, r.Resource)
	}
	return nil
}
