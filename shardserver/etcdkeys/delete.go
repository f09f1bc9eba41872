package etcdkeys

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	etcdmetrics "k8s.io/apiserver/pkg/storage/etcd3/metrics"
	"k8s.io/klog/v2"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

const (
	// deletionsPerTransaction bounds the objects of one transaction. With the conditions of one deletion it must be below etcd's default limit
	// of 128.
	deletionsPerTransaction = 128 - 1 - storage.MaxEmpty
	// transactionsPerCall bounds the transactions of one call, one after the other, because its caller's workers are shared by all tenants.
	transactionsPerCall = 20
)

// errRefused is returned if etcd has not acknowledged a transaction.
var errRefused = errors.New("etcd has not acknowledged the transaction")

// Delete deletes objects of the context's logical cluster, whose LogicalCluster is being deleted, in few transactions, and
// returns which ones it has deleted, with an error, too. An object that has changed since it was read remains, as does one that requires a
// resource to be empty that is not. What is too much for one call remains, and everything from the first transaction on that etcd fails.
//
// Two objects of one resource never share a transaction, as with storage.Together. Deletions are made in their order as far
// as transactions allow: what a later transaction deletes, a watch does not see before. seen is as for PurgeOrphans.
func (s *Scanner) Delete(ctx context.Context, seen *corev1alpha1.LogicalCluster, deletions []storage.Deletion) (deleted []bool, err error) {
	cluster, ok := logicalcluster.From(ctx)
	if !ok || cluster.IsWildcard() || cluster.IsSystem() {
		return nil, fmt.Errorf("deleting objects of %q: not a single user logical cluster", cluster)
	}
	fence, err := s.fence(cluster, seen)
	if err != nil {
		return nil, fmt.Errorf("deleting objects of %q: %w", cluster, err)
	}
	client, err := s.Connect()
	if err != nil {
		return nil, err
	}
	deleted = make([]bool, len(deletions))
	for transactions := 0; len(deletions) > 0 && transactions < transactionsPerCall; transactions++ {
		batch := deletions[:lengthOfTransaction(deletions)]
		done := deleted[len(deleted)-len(deletions):]
		err := s.deleteTogether(ctx, client, cluster, fence, batch, done)
		if errors.Is(err, errRefused) {
			klog.FromContext(ctx).Info("Failed to delete objects of a logical cluster together, requests delete them one by one", "cluster", cluster, "objects", len(deletions), "err", err)
			return deleted, nil
		}
		if err != nil {
			return deleted, fmt.Errorf("deleting objects of %q: %w", cluster, err)
		}
		deletions = deletions[len(batch):]
	}
	return deleted, nil
}

// lengthOfTransaction returns how many of the first deletions can be made in one transaction: of different resources, and
// without one that requires another one to be done, because conditions are evaluated before the first operation.
func lengthOfTransaction(deletions []storage.Deletion) int {
	for i, d := range deletions {
		if i == deletionsPerTransaction || slices.ContainsFunc(deletions[:i], func(earlier storage.Deletion) bool {
			return earlier.Resource.Prefix == d.Resource.Prefix || requires(d, earlier)
		}) {
			return i
		}
	}
	return len(deletions)
}

// requires reports whether a deletion requires another one to be done.
func requires(d, other storage.Deletion) bool {
	return (d.EmptyNamespace == "" || d.EmptyNamespace == other.Namespace) && slices.ContainsFunc(d.Empty, func(resource *storage.Resource) bool {
		return resource.Prefix == other.Resource.Prefix
	})
}

// deleteTogether deletes objects of different resources in one transaction, each under its own conditions.
func (s *Scanner) deleteTogether(ctx context.Context, client *clientv3.Client, cluster logicalcluster.Name, fence []clientv3.Cmp,
	deletions []storage.Deletion, deleted []bool) (err error) {
	ops := make([]clientv3.Op, 0, len(deletions))
	for _, d := range deletions {
		op, err := s.deletion(cluster, d)
		if err != nil {
			return err
		}
		ops = append(ops, op)
	}
	leave, err := s.cfg.Registry.EnterWrite(ctx, cluster)
	if err != nil {
		return err
	}
	begun := time.Now()
	response, err := client.Txn(ctx).If(fence...).Then(ops...).Commit()
	for _, d := range deletions {
		etcdmetrics.RecordEtcdRequest("delete", d.Resource.GVR.GroupResource(), err, begun)
	}
	left := leave()
	switch {
	case err != nil && left == nil && ctx.Err() == nil:
		return fmt.Errorf("%w: %w", errRefused, err)
	case err != nil:
		return errors.Join(err, left)
	case !response.Succeeded:
		return errFenced
	}
	for i, result := range response.Responses {
		deleted[i] = result.GetResponseTxn().Succeeded
	}
	return left // what etcd says to have deleted is deleted, and the caller records it
}

// deletion returns the nested transaction that deletes one object if its conditions hold.
func (s *Scanner) deletion(cluster logicalcluster.Name, d storage.Deletion) (clientv3.Op, error) {
	key, err := s.keyOf(cluster, d)
	if err != nil {
		return clientv3.Op{}, err
	}
	revision, err := storage.ParseRevision(d.ResourceVersion)
	if err != nil || revision == 0 {
		return clientv3.Op{}, fmt.Errorf("%s: not the resource version of an object: %q", key, d.ResourceVersion)
	}
	if len(d.Empty) > storage.MaxEmpty {
		return clientv3.Op{}, fmt.Errorf("%s requires %d resources to be empty, at most %d are possible", key, len(d.Empty), storage.MaxEmpty)
	}
	conditions := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", int64(revision))}
	for _, resource := range d.Empty {
		conditions = append(conditions, clientv3.Compare(clientv3.CreateRevision(s.prefixOf(resource.Prefix, cluster.String(), d.EmptyNamespace)), "=", 0).WithPrefix())
	}
	return clientv3.OpTxn(conditions, []clientv3.Op{clientv3.OpDelete(key)}, nil), nil
}

// keyOf returns the key of an object. It refuses what could be a key of another logical cluster or resource.
func (s *Scanner) keyOf(cluster logicalcluster.Name, d storage.Deletion) (string, error) {
	segments := []string{d.Name}
	if d.Resource.Namespaced {
		segments = []string{d.Namespace, d.Name}
	}
	for _, segment := range segments {
		if segment == "" || segment == "." || segment == ".." || strings.Contains(segment, "/") {
			return "", fmt.Errorf("%s %q in namespace %q: not the name of an object", d.Resource.GVR.GroupResource(), d.Name, d.Namespace)
		}
	}
	return s.prefixOf(d.Resource.Prefix, cluster.String()) + strings.Join(segments, "/"), nil
}
