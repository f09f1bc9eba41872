package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/klog/v2"
)

const (
	// replacedFor is how long what was replaced counts, at least: etcd is compacted to where it was five minutes before,
	// every five minutes. It is counted in steps, of which the last one is not over.
	replacedFor   = replacedSteps * replacedStep
	replacedSteps = 10
	replacedStep  = time.Minute

	// countPage is how many objects are read at once when all are counted, countRetry when that is tried again.
	countPage  = 500
	countRetry = 5 * time.Second
	// quiet is how long nothing must have been refused before the next refusal is told again.
	quiet = 10 * time.Minute
)

// Amount is what a holder has in a cache.
type Amount struct {
	// Objects is how many, and Bytes what they take in etcd, keys included.
	Objects, Bytes int64
	// Replaced is how many bytes are taken by what was replaced or removed of late.
	Replaced int64
}

// Holder is who has something in a cache: a shard with what makes it a shard, or with the resources that its users cache.
// They are told apart so that users cannot take the place of the others.
type Holder struct {
	Shard string
	Users bool
}

// String returns who it is.
func (h Holder) String() string {
	if h.Users {
		return fmt.Sprintf("users of shard %q", h.Shard)
	}
	return fmt.Sprintf("shard %q", h.Shard)
}

// usage knows what each holder has, by following etcd. Between a write and its arrival here it is a little behind. There is
// one entry for every holder that has objects, had some of late, or was refused any.
type usage struct {
	now func() time.Time

	mu      sync.Mutex
	holders map[Holder]*account
}

// account is what is known of one holder.
type account struct {
	objects, bytes int64
	// replaced are bytes by step, of the steps up to last.
	replaced [replacedSteps + 1]int64
	last     int64
	// refused is when something was last refused.
	refused time.Time
}

func newUsage() *usage { return &usage{now: time.Now, holders: map[Holder]*account{}} }

// of returns what a holder has; nothing before everything was counted once.
func (u *usage) of(holder Holder) Amount {
	u.mu.Lock()
	defer u.mu.Unlock()
	a := u.holders[holder]
	if a == nil {
		return Amount{}
	}
	return a.amount(u.step())
}

// all returns what each holder has.
func (u *usage) all() map[Holder]Amount {
	u.mu.Lock()
	defer u.mu.Unlock()
	amounts := make(map[Holder]Amount, len(u.holders))
	now := u.step()
	for holder, a := range u.holders {
		if amounts[holder] = a.amount(now); amounts[holder] != (Amount{}) {
			continue
		}
		delete(amounts, holder)
		if u.now().Sub(a.refused) > quiet {
			delete(u.holders, holder)
		}
	}
	return amounts
}

// refuse notes a refusal, and tells whether it is the first for some time.
func (u *usage) refuse(holder Holder) (first bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	a, now := u.account(holder), u.now()
	first = now.Sub(a.refused) > quiet
	a.refused = now
	return first
}

// replace takes over what was counted. What was replaced stays known.
func (u *usage) replace(counted map[Holder]Amount) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, a := range u.holders {
		a.objects, a.bytes = 0, 0
	}
	for holder, amount := range counted {
		a := u.account(holder)
		a.objects, a.bytes = amount.Objects, amount.Bytes
	}
}

// errGap is the error about a change of which it is not known what it took the place of.
var errGap = errors.New("etcd does not know any more what was replaced")

// change takes over one change in etcd.
func (u *usage) change(root string, event *clientv3.Event) error {
	holder, ok := holderOf(root, string(event.Kv.Key))
	if !ok {
		return nil
	}
	if event.PrevKv == nil && !event.IsCreate() {
		return errGap
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	a := u.account(holder)
	if event.PrevKv != nil {
		size := sizeOf(event.PrevKv)
		a.objects--
		a.bytes -= size
		a.spend(u.step(), size)
	}
	if event.Type == mvccpb.PUT {
		a.objects++
		a.bytes += sizeOf(event.Kv)
	}
	return nil
}

// account returns that of a holder. The lock is held.
func (u *usage) account(holder Holder) *account {
	if u.holders[holder] == nil {
		u.holders[holder] = &account{}
	}
	return u.holders[holder]
}

func (u *usage) step() int64 { return u.now().Unix() / int64(replacedStep/time.Second) }

func (a *account) amount(now int64) Amount {
	a.spend(now, 0)
	amount := Amount{Objects: a.objects, Bytes: a.bytes}
	for _, bytes := range a.replaced {
		amount.Replaced += bytes
	}
	return amount
}

// spend adds bytes to a step, and forgets those before the steps that count.
func (a *account) spend(now, bytes int64) {
	for ; a.last < now; a.last++ {
		if now-a.last > int64(len(a.replaced)) {
			a.last = now - int64(len(a.replaced))
		}
		a.replaced[(a.last+1)%int64(len(a.replaced))] = 0
	}
	a.replaced[now%int64(len(a.replaced))] += bytes
}

func sizeOf(kv *mvccpb.KeyValue) int64 { return int64(len(kv.Key) + len(kv.Value)) }

// holderOf returns whose object a key is of: "<root><group>/<resource>/<identity>/<shard>/<cluster>/[<namespace>/]<name>".
func holderOf(root, key string) (Holder, bool) {
	segments := strings.SplitN(strings.TrimPrefix(key, root), "/", 6)
	if len(segments) < 6 {
		return Holder{}, false
	}
	return Holder{Shard: segments[3], Users: !Plain(segments[2])}, true
}

// Usage returns what each holder has in the cache.
func (b *Backend) Usage() map[Holder]Amount { return b.usage.all() }

// follow keeps the usage up to date until the context ends.
func (b *Backend) follow(ctx context.Context) {
	for ctx.Err() == nil {
		if err := b.followOnce(ctx); err != nil && ctx.Err() == nil {
			klog.V(2).InfoS("What shards have in the cache is counted anew", "reason", err)
		}
		timer := time.NewTimer(countRetry)
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C:
		}
	}
}

// followOnce counts everything and follows what changes, until it misses something.
func (b *Backend) followOnce(ctx context.Context) error {
	revision, err := b.count(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	root := b.Prefix() + "/"
	for response := range b.client.Watch(clientv3.WithRequireLeader(ctx), root, clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithRev(revision+1)) {
		if err := response.Err(); err != nil {
			return fmt.Errorf("following what shards have in the cache: %w", err)
		}
		for _, event := range response.Events {
			if err := b.usage.change(root, event); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// count counts what every shard has, all at the revision that it returns.
func (b *Backend) count(ctx context.Context) (int64, error) {
	root := b.Prefix() + "/"
	end := clientv3.GetPrefixRangeEnd(root)
	counted := map[Holder]Amount{}
	revision := int64(0)
	for from := root; ; {
		page, err := b.client.Client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(countPage), clientv3.WithRev(revision))
		if err != nil {
			return 0, fmt.Errorf("counting what shards have in the cache: %w", err)
		}
		if revision == 0 {
			revision = page.Header.Revision
		}
		for _, kv := range page.Kvs {
			from = string(kv.Key) + "\x00"
			holder, ok := holderOf(root, string(kv.Key))
			if !ok {
				continue
			}
			amount := counted[holder]
			amount.Objects++
			amount.Bytes += sizeOf(kv)
			counted[holder] = amount
		}
		if !page.More {
			break
		}
	}
	b.usage.replace(counted)
	return revision, nil
}
