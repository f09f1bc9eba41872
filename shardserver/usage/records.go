package usage

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/logicalcluster"
)

const (
	// segment follows the prefix of the shard, where keys of objects have the API group. No API group can have this name.
	segment = "~usage"
	// monthFormat is the last segment of a key. Months are those of UTC.
	monthFormat = "2006-01"
	// keptMonths is for how many months records are kept, the current one included.
	keptMonths = 13
	// keptFlushes is how many flushes a record names: other replicas may have added theirs before a replica tries again.
	keptFlushes = 4
	// batchSize is how many records a transaction writes, or of how many logical clusters it deletes them. Each takes up to three operations, of
	// which etcd allows 128, or fewer if it is configured so.
	batchSize = 25
	// attempts bounds how often a transaction is tried, because another replica writes the same records.
	attempts = 10
	// pageSize is how many keys a sweep reads at once.
	pageSize = 1000
)

// Record is the usage of one logical cluster in one month.
type Record struct {
	Counts
	// Flushes are the last flushes that were added, the latest last. A replica that got no answer to a transaction reads here whether etcd has
	// applied it.
	Flushes []string `json:"flushes"`
}

// addFlush adds the counts of a flush, and discards the oldest flush beyond keptFlushes.
func (r *Record) addFlush(flush string, counts *Counts) {
	r.add(counts)
	r.Flushes = append(r.Flushes, flush)
	r.Flushes = r.Flushes[max(0, len(r.Flushes)-keptFlushes):]
}

// records are the records of all logical clusters of a shard, at <prefix>/~usage/<logical cluster>/<month>.
type records struct {
	connect func() (*clientv3.Client, error)
	prefix  string
	// stored returns the key that a logical cluster has in etcd as long as it exists. Without it, nothing is added to its records.
	stored func(logicalcluster.Name) (string, error)
}

func (r *records) root() string { return path.Join("/", r.prefix, segment) + "/" }

func (r *records) keysOf(cluster logicalcluster.Name) string {
	return r.root() + cluster.String() + "/"
}

// addition is what a flush adds to one record.
type addition struct {
	cluster logicalcluster.Name
	counts  *Counts
}

// add adds to at most batchSize records in one transaction. What it returns was not added.
func (r *records) add(ctx context.Context, flush, month string, batch []addition) (left []addition, err error) {
	etcd, err := r.connect()
	if err != nil {
		return batch, err
	}
	for range attempts {
		if batch, err = r.tryAdd(ctx, etcd, flush, month, batch); len(batch) == 0 || ctx.Err() != nil {
			return batch, err
		}
	}
	return batch, err
}

// tryAdd returns what was not added, or what may not have been added if the answer of etcd was lost. Each record is written if no other
// replica has changed it since it was read, and if its logical cluster exists: what has been deleted gets no record again.
func (r *records) tryAdd(ctx context.Context, etcd *clientv3.Client, flush, month string, batch []addition) (left []addition, err error) {
	reads := make([]clientv3.Op, 0, 2*len(batch))
	keys := make([]string, 0, len(batch))
	for _, a := range batch {
		stored, err := r.stored(a.cluster)
		if err != nil {
			return batch, err
		}
		keys = append(keys, stored)
		reads = append(reads, clientv3.OpGet(r.keysOf(a.cluster)+month), clientv3.OpGet(stored, clientv3.WithCountOnly()))
	}
	found, err := etcd.Txn(ctx).Then(reads...).Commit()
	if err != nil {
		return batch, fmt.Errorf("reading the usage of logical clusters: %w", err)
	}
	var writes []clientv3.Op
	for i, a := range batch {
		key := r.keysOf(a.cluster) + month
		if found.Responses[2*i+1].GetResponseRange().Count == 0 {
			continue // it has been deleted since
		}
		record, revision := &Record{}, int64(0)
		if kvs := found.Responses[2*i].GetResponseRange().Kvs; len(kvs) > 0 {
			revision = kvs[0].ModRevision
			if err := json.Unmarshal(kvs[0].Value, record); err != nil { // the others are written nevertheless
				klog.FromContext(ctx).Error(err, "Failed to read the usage of a logical cluster, to which nothing is added", "cluster", a.cluster, "month", month)
				continue
			}
		}
		if slices.Contains(record.Flushes, flush) {
			continue // the answer to a previous attempt was lost
		}
		record.addFlush(flush, a.counts)
		value, err := json.Marshal(record)
		if err != nil {
			return batch, err
		}
		left = append(left, a)
		unchanged := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", revision), clientv3.Compare(clientv3.CreateRevision(keys[i]), ">", 0)}
		writes = append(writes, clientv3.OpTxn(unchanged, []clientv3.Op{clientv3.OpPut(key, string(value))}, nil))
	}
	if len(writes) == 0 {
		return nil, nil
	}
	done, err := etcd.Txn(ctx).Then(writes...).Commit()
	if err != nil {
		return left, fmt.Errorf("writing the usage of logical clusters: %w", err)
	}
	all := left
	left = nil
	for i, response := range done.Responses {
		if !response.GetResponseTxn().Succeeded {
			left = append(left, all[i])
		}
	}
	if len(left) > 0 {
		err = errors.New("writing the usage of logical clusters: other replicas write the same records")
	}
	return left, err
}

// delete deletes all records of at most batchSize logical clusters, except of those that exist: one that has moved away may have come back.
func (r *records) delete(ctx context.Context, clusters []logicalcluster.Name) error {
	etcd, err := r.connect()
	if err != nil {
		return err
	}
	var deletions []clientv3.Op
	for _, cluster := range clusters {
		stored, err := r.stored(cluster)
		if err != nil {
			return err
		}
		gone := clientv3.Compare(clientv3.CreateRevision(stored), "=", 0)
		deletions = append(deletions, clientv3.OpTxn([]clientv3.Cmp{gone}, []clientv3.Op{clientv3.OpDelete(r.keysOf(cluster), clientv3.WithPrefix())}, nil))
	}
	if _, err := etcd.Txn(ctx).Then(deletions...).Commit(); err != nil {
		return fmt.Errorf("deleting the usage of logical clusters: %w", err)
	}
	return nil
}

// of returns the records of a logical cluster by month.
func (r *records) of(ctx context.Context, cluster logicalcluster.Name) (map[string]*Record, error) {
	found, err := r.list(ctx, cluster)
	if err != nil {
		return nil, err
	}
	months := map[string]*Record{}
	for month, value := range found {
		record := &Record{}
		if err := json.Unmarshal(value, record); err != nil {
			return nil, fmt.Errorf("reading the usage of logical cluster %q: %w", cluster, err)
		}
		months[month] = record
	}
	return months, nil
}

// list returns the records of a logical cluster by month, as they are stored.
func (r *records) list(ctx context.Context, cluster logicalcluster.Name) (map[string][]byte, error) {
	etcd, err := r.connect()
	if err != nil {
		return nil, err
	}
	keys := r.keysOf(cluster)
	found, err := etcd.Get(ctx, keys, clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("reading the usage of logical cluster %q: %w", cluster, err)
	}
	months := map[string][]byte{}
	for _, kv := range found.Kvs {
		months[strings.TrimPrefix(string(kv.Key), keys)] = kv.Value
	}
	return months, nil
}

// sweep deletes the records of logical clusters that are gone, and those of months before the kept ones. What it cannot decide about, it leaves
// to the next sweep, and returns the first of these errors.
func (r *records) sweep(ctx context.Context, now time.Time, isGone func(context.Context, logicalcluster.Name) (bool, error)) error {
	etcd, err := r.connect()
	if err != nil {
		return err
	}
	year, month, _ := now.UTC().Date()
	oldest := time.Date(year, month-keptMonths+1, 1, 0, 0, 0, 0, time.UTC).Format(monthFormat)
	from, end := r.root(), clientv3.GetPrefixRangeEnd(r.root())
	var (
		asked logicalcluster.Name // the keys of a logical cluster follow each other
		gone  bool
		first error
	)
	for {
		page, err := etcd.Get(ctx, from, clientv3.WithRange(end), clientv3.WithKeysOnly(), clientv3.WithLimit(pageSize))
		if err != nil {
			return fmt.Errorf("listing the usage of logical clusters: %w", err)
		}
		for _, kv := range page.Kvs {
			segment, month, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), r.root()), "/")
			if month >= oldest {
				name, err := logicalcluster.ParseName(segment)
				if err == nil && name != asked {
					asked = name
					gone, err = isGone(ctx, name)
				}
				if err != nil {
					gone = false
					first = cmp.Or(first, fmt.Errorf("deciding about the usage of logical cluster %q: %w", segment, err))
				}
				if err != nil || !gone {
					continue
				}
				if err := r.delete(ctx, []logicalcluster.Name{name}); err != nil { // unless it has come back
					return err
				}
				continue
			}
			if _, err := etcd.Delete(ctx, string(kv.Key)); err != nil {
				return fmt.Errorf("deleting usage: %w", err)
			}
		}
		if !page.More {
			return first
		}
		from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
	}
}
