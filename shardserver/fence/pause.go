package fence

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// Pause returns when no replica of the shard writes to a logical cluster any more, after the caller has stored its
// LogicalCluster with the annotation for paused writes at the given revision. The stored objects do not change
// afterwards until the annotation is removed, except by writes that are not acknowledged. On an error, which comes after PauseTimeout at the
// latest, the caller removes the annotation, which resumes writes.
// With the annotation of a logical cluster that arrives or has moved away, each replica also hides it from then on: a read that begins after
// Pause has returned gets nothing of it.
func (f *Fence) Pause(ctx context.Context, cluster logicalcluster.Name, revision int64) error {
	ctx, cancel := context.WithTimeout(ctx, PauseTimeout)
	defer cancel()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	var last []string // as of the last successful read
	for {
		writing, err := f.replica.writing(ctx, cluster, revision)
		if err == nil && len(writing) == 0 {
			return nil
		}
		if err == nil {
			last = writing
		}
		select {
		case <-ctx.Done():
			if last == nil {
				return fmt.Errorf("reading which replicas of the shard have paused writes to logical cluster %q: %w", cluster, err)
			}
			return fmt.Errorf("replicas of the shard still write to logical cluster %q: %v: %w", cluster, last, ctx.Err())
		case <-ticker.C:
		}
	}
}

// writing returns the ids of the registered replicas that have not acknowledged a pause. This replica counts as registered
// also while its lease has expired.
func (r *replica) writing(ctx context.Context, cluster logicalcluster.Name, revision int64) ([]string, error) {
	replicas, paused := r.replicasPrefix(), r.pausedPrefix(cluster)
	response, err := r.etcd.Txn(ctx).Then(
		clientv3.OpGet(replicas, clientv3.WithPrefix(), clientv3.WithKeysOnly()),
		clientv3.OpGet(paused, clientv3.WithPrefix()),
	).Commit()
	if err != nil {
		return nil, err
	}
	acknowledged := map[string]bool{}
	for _, kv := range response.Responses[1].GetResponseRange().Kvs {
		if seen, err := strconv.ParseInt(string(kv.Value), 10, 64); err == nil && seen >= revision {
			acknowledged[strings.TrimPrefix(string(kv.Key), paused)] = true
		}
	}
	registered := []string{r.id}
	for _, kv := range response.Responses[0].GetResponseRange().Kvs {
		if id := strings.TrimPrefix(string(kv.Key), replicas); id != r.id {
			registered = append(registered, id)
		}
	}
	return slices.DeleteFunc(registered, func(id string) bool { return acknowledged[id] }), nil
}
