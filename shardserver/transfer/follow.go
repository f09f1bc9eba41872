package transfer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/feature"

	"github.com/atoll-dev/atoll/logicalcluster"
)

const (
	// MaxFollowedKeys bounds the keys that all Followers of a Transfer remember, and with that their memory: of each the name and a few
	// words.
	MaxFollowedKeys = 1_000_000
	// progressInterval is the time after which etcd is asked again how far a watch is. It does not answer while a watch is behind.
	progressInterval = 50 * time.Millisecond
)

var (
	// errTooManyKeys is returned for a logical cluster that exceeds MaxFollowedKeys.
	errTooManyKeys = fmt.Errorf("the logical clusters that move have more than %d keys together", MaxFollowedKeys)
	// errNoProgress is returned with an etcd that reports progress of a watch before it has sent all events up to it.
	errNoProgress = errors.New("etcd does not report reliably how far a watch is, or has not said its version yet: 3.5.13 is the oldest one that does")
)

// Follower knows the digest of a logical cluster while it changes. It reads every value once, and remembers a sum of it, not the value;
// a watch of each storage that has keys reports what changes afterwards. So the digest at any later time costs what has changed since, not what there
// is. All sums are those of values that etcd has returned. It must be closed.
type Follower struct {
	t       *Transfer
	cluster logicalcluster.Name
	except  Key
	watcher clientv3.Watcher
	running sync.WaitGroup
	stop    context.CancelFunc
	ctx     context.Context // of the watches, which later calls add

	mu       sync.Mutex
	storages map[string]*followed // by storage prefix
	// returned is the last revision that a call has returned.
	returned int64
	err      error
	// advanced is closed when a revision advances, or at an error.
	advanced chan struct{}
}

// Listed is a key of a Follower.
type Listed struct {
	Version
	Sum Sum `json:"sum"`
}

// Changes are the changes of a logical cluster since a revision.
type Changes struct {
	// Revision is that up to which the changes are complete. Later ones may be contained, and are returned again by the next call.
	Revision int64 `json:"revision"`
	// Changed are the keys that were stored, Gone those that were deleted. They are not in order.
	Changed []Listed `json:"changed,omitempty"`
	Gone    []Key    `json:"gone,omitempty"`
	// Keys is the number of all keys.
	Keys int64 `json:"keys"`
	// Expiring is whether all keys in Gone had leases, so that every copy of them goes by itself.
	Expiring bool `json:"-"`
	// Digest is that of all keys.
	Digest Digest `json:"-"`
}

// Follow returns a Follower of a logical cluster without one key, after it has read all values. It ends with the context.
func (t *Transfer) Follow(ctx context.Context, cluster logicalcluster.Name, except Key, also ...string) (*Follower, error) {
	if !feature.DefaultFeatureSupportChecker.Supports(apistorage.RequestWatchProgress) { // the stock storage of the shard has asked etcd
		return nil, errNoProgress
	}
	f := &Follower{
		t: t, cluster: cluster, except: except, watcher: clientv3.NewWatcher(t.cfg.Client),
		storages: map[string]*followed{}, advanced: make(chan struct{}),
	}
	f.ctx, f.stop = context.WithCancel(clientv3.WithRequireLeader(ctx))
	if _, err := f.advance(ctx, also); err != nil {
		f.Close()
		return nil, fmt.Errorf("reading logical cluster %q: %w", cluster, err)
	}
	return f, nil
}

// Close ends the watches, and frees what is remembered.
func (f *Follower) Close() {
	f.stop()
	_ = f.watcher.Close() // the error is that of a stream that has failed before
	f.running.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, storage := range f.storages {
		f.t.followedKeys.Add(-storage.size())
	}
	f.storages = nil
	f.fail(errors.New("it is not followed any more"))
}

// Changes returns what has changed since a revision, which an earlier call has returned, and the digest of all keys, as of a time after the
// call; 0 returns all keys. It discards the deletions up to the revision, so that only one caller is possible. There may be keys in storages of
// Config, and in others that the caller knows.
func (f *Follower) Changes(ctx context.Context, since int64, also ...string) (*Changes, error) {
	changes, err := f.changes(ctx, since, also)
	if err != nil {
		return nil, fmt.Errorf("following logical cluster %q: %w", f.cluster, err)
	}
	return changes, nil
}

// AllChanges is Changes with all storages that have keys in etcd: nothing else of the logical cluster is there. The shard must refuse its writes.
func (f *Follower) AllChanges(ctx context.Context, since int64) (*Changes, error) {
	storages, err := f.t.cfg.Scan(ctx)
	if err != nil {
		return nil, fmt.Errorf("following logical cluster %q: finding the storages: %w", f.cluster, err)
	}
	return f.Changes(ctx, since, storages...)
}

func (f *Follower) changes(ctx context.Context, since int64, also []string) (*Changes, error) {
	revision, err := f.advance(ctx, also)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return nil, f.err
	}
	f.returned = max(f.returned, revision)
	changes := &Changes{Revision: revision, Digest: Digest{}, Expiring: true}
	for resource, storage := range f.storages {
		f.t.followedKeys.Add(-int64(len(storage.gone)))
		storage.forget(since)
		f.t.followedKeys.Add(int64(len(storage.gone)))
		if len(storage.keys) > 0 {
			changes.Digest[resource] = ResourceDigest{Keys: int64(len(storage.keys)), Sum: storage.sum}
			changes.Keys += int64(len(storage.keys))
		}
		if storage.changed <= since {
			continue
		}
		for name, print := range storage.keys {
			if print.revision > since || storage.from > since {
				changes.Changed = append(changes.Changed, Listed{Version{Key{resource, name}, print.revision}, print.sum})
			}
		}
		for name, deletion := range storage.gone {
			changes.Gone = append(changes.Gone, Key{resource, name})
			changes.Expiring = changes.Expiring && deletion.leased
		}
	}
	return changes, nil
}

// Digest returns the digest of all keys as of a time after the call, for a caller that does not ask for changes.
func (f *Follower) Digest(ctx context.Context, also ...string) (Digest, error) {
	changes, err := f.Changes(ctx, math.MaxInt64, also...)
	if err != nil {
		return nil, err
	}
	return changes.Digest, nil
}

// Differing returns the keys of a list that are not there with the same sum.
func (f *Follower) Differing(list []Listed) []Key {
	f.mu.Lock()
	defer f.mu.Unlock()
	var differing []Key
	for _, listed := range list {
		storage := f.storages[listed.Resource]
		if storage == nil || storage.keys[listed.Name].sum != listed.Sum {
			differing = append(differing, listed.Key)
		}
	}
	return differing
}

// advance returns a revision that is not older than the call, when the changes up to it are known. It begins to follow the storages that
// have got their first key.
func (f *Follower) advance(ctx context.Context, also []string) (int64, error) {
	counts, revision, err := f.t.countsOf(ctx, f.cluster, also)
	if err != nil {
		return 0, err
	}
	for resource := range counts {
		if !f.follows(resource) {
			if err := f.add(ctx, resource); err != nil {
				return 0, err
			}
		}
	}
	if err := f.await(ctx, revision); err != nil {
		return 0, err
	}
	return revision, f.compare(counts, revision)
}

func (f *Follower) follows(resource string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.storages[resource] != nil
}

// compare fails if a storage that has not changed since a revision has another number of keys than at the revision: the watch has lost
// something.
func (f *Follower) compare(counts map[string]int64, revision int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for resource, storage := range f.storages {
		known := int64(len(storage.keys))
		if resource == f.except.Resource {
			continue // the key that is left out
		}
		if storage.changed <= revision && known != counts[resource] {
			return fmt.Errorf("%s has %d keys, and %d are known", resource, counts[resource], known)
		}
	}
	return nil
}

// add reads a storage, and follows it from then on.
func (f *Follower) add(ctx context.Context, resource string) error {
	prefix, storage, added := f.t.clusterPrefix(f.cluster, resource), f.newFollowed(resource), false
	defer func() {
		if !added { // Close does not know it
			f.t.followedKeys.Add(-storage.size())
		}
	}()
	revision, err := f.t.eachEntry(ctx, prefix, func(kv *mvccpb.KeyValue) error { return f.put(ctx, resource, storage, kv) })
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return f.err
	}
	// Keys that were deleted since the caller has counted them are not known, so that their number does not count.
	storage.revision, storage.from = revision, f.returned+1
	storage.changed = max(revision, storage.from)
	f.storages[resource], added = storage, true
	f.running.Go(func() { f.watch(resource, storage, prefix, revision) })
	return nil
}

// newFollowed returns a storage whose watch has a stream of its own. On a shared one, a report of progress from before the watch exists can
// arrive after its creation, as if its events up to there had been sent.
func (f *Follower) newFollowed(resource string) *followed {
	return &followed{
		keys: map[string]fingerprint{}, gone: map[string]deletion{},
		stream: metadata.AppendToOutgoingContext(f.ctx, "storage", resource), // clients of etcd have a stream for each metadata
	}
}

// put notes a value of a storage that is not followed yet, or while mu is held.
func (f *Follower) put(ctx context.Context, resource string, storage *followed, kv *mvccpb.KeyValue) error {
	name := string(kv.Key[len(f.t.clusterPrefix(f.cluster, resource)):])
	if (Key{resource, name}) == f.except {
		return nil
	}
	plaintext, err := f.t.decrypt(ctx, resource, kv)
	if err != nil {
		return err
	}
	before := storage.size()
	storage.put(name, kv, plaintext)
	return f.count(storage.size() - before)
}

// count counts keys that are remembered.
func (f *Follower) count(added int64) error {
	if f.t.followedKeys.Add(added) > MaxFollowedKeys && added > 0 {
		return errTooManyKeys
	}
	return nil
}

// watch follows a storage until the Follower is closed. It begins at the revision that is known, not after it: etcd reports no progress
// of a watch that begins in the future.
func (f *Follower) watch(resource string, storage *followed, prefix string, revision int64) {
	for response := range f.watcher.Watch(storage.stream, prefix, clientv3.WithPrefix(), clientv3.WithRev(revision)) {
		f.mu.Lock()
		if err := f.apply(resource, storage, prefix, response); err != nil {
			f.fail(err)
		}
		f.mu.Unlock()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail(errors.New("the watch has ended"))
}

// apply applies the changes of a watch while mu is held.
func (f *Follower) apply(resource string, storage *followed, prefix string, response clientv3.WatchResponse) error {
	if err := response.Err(); err != nil {
		return err
	}
	if f.err != nil {
		return nil
	}
	for _, event := range response.Events {
		if event.Type == clientv3.EventTypeDelete {
			storage.remove(string(event.Kv.Key[len(prefix):]), event.Kv.ModRevision)
			continue
		}
		if err := f.put(f.ctx, resource, storage, event.Kv); err != nil {
			return err
		}
	}
	if response.IsProgressNotify() {
		storage.revision = max(storage.revision, response.Header.Revision)
		f.wake()
	}
	return nil
}

// fail ends the Follower with an error while mu is held. The first one counts.
func (f *Follower) fail(err error) {
	if f.err == nil {
		f.err = err
		f.wake()
	}
}

// wake wakes those who wait for progress while mu is held.
func (f *Follower) wake() {
	close(f.advanced)
	f.advanced = make(chan struct{})
}

// await returns when all changes up to a revision are known.
func (f *Follower) await(ctx context.Context, revision int64) error {
	ticker := time.NewTicker(progressInterval)
	defer ticker.Stop()
	for asked := false; ; {
		f.mu.Lock()
		advanced, err := f.advanced, f.err
		var behind []*followed
		for _, storage := range f.storages {
			if storage.revision < revision {
				behind = append(behind, storage)
			}
		}
		f.mu.Unlock()
		if err != nil || len(behind) == 0 {
			return err
		}
		if !asked {
			for _, storage := range behind {
				if err := f.watcher.RequestProgress(storage.stream); err != nil {
					return fmt.Errorf("asking for the progress of the watches: %w", err)
				}
			}
			asked = true
		}
		select {
		case <-advanced:
		case <-ticker.C:
			asked = false
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
