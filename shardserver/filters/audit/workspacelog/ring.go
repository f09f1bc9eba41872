package workspacelog

import (
	"cmp"
	"container/heap"
	"maps"
	"slices"
	"sync"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// What a record and a logical cluster occupy besides the event, in bytes, with the room that slices grow by.
const (
	recordOverhead  = 96
	clusterOverhead = 256
)

// record is an encoded event with its time in microseconds.
type record struct {
	at    int64
	event []byte
}

func (r record) size() int64 { return int64(len(r.event)) + recordOverhead }

// queue has the records of one logical cluster, oldest first.
type queue struct {
	cluster logicalcluster.Name
	records []record
	bytes   int64
	index   int // in the heap
}

func (q *queue) pop() int64 {
	size := q.records[0].size()
	q.records[0] = record{} // the array lives on
	q.records = q.records[1:]
	q.bytes -= size
	return size
}

// ring has the latest records of each logical cluster within a bound for all of them. Its map has entries of those with records.
type ring struct {
	limit, clusterLimit int64

	mu       sync.Mutex
	used     int64
	clusters map[logicalcluster.Name]*queue
	largest  bySize
}

func newRing(limit int64) *ring {
	return &ring{limit: limit, clusterLimit: min(limit/clusterShare, maxClusterBytes), clusters: map[logicalcluster.Name]*queue{}}
}

func (r *ring) add(cluster logicalcluster.Name, added record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	q := r.clusters[cluster]
	if q == nil {
		q = &queue{cluster: cluster, bytes: clusterOverhead}
		r.clusters[cluster] = q
		heap.Push(&r.largest, q)
		r.used += clusterOverhead
	}
	q.records = append(q.records, added)
	q.bytes += added.size()
	r.used += added.size()
	for q.bytes > r.clusterLimit && len(q.records) > 1 {
		r.used -= q.pop()
	}
	heap.Fix(&r.largest, q.index)
	for r.used > r.limit {
		largest := r.largest[0]
		r.used -= largest.pop()
		if len(largest.records) == 0 {
			r.removeLocked(largest)
			continue
		}
		heap.Fix(&r.largest, 0)
	}
}

// remove removes the records of a logical cluster.
func (r *ring) remove(cluster logicalcluster.Name) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if q := r.clusters[cluster]; q != nil {
		r.removeLocked(q)
	}
}

func (r *ring) removeLocked(q *queue) {
	r.used -= q.bytes
	heap.Remove(&r.largest, q.index)
	delete(r.clusters, q.cluster)
}

// read returns the records of a logical cluster.
func (r *ring) read(cluster logicalcluster.Name) []record {
	r.mu.Lock()
	defer r.mu.Unlock()
	if q := r.clusters[cluster]; q != nil {
		return slices.Clone(q.records)
	}
	return nil
}

// list returns the logical clusters with records.
func (r *ring) list() []logicalcluster.Name {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.clusters))
}

// newest returns the newest records since a time, oldest first.
func newest(records []record, since int64, limit int) []record {
	records = slices.DeleteFunc(records, func(r record) bool { return r.at < since })
	slices.SortStableFunc(records, func(a, b record) int { return cmp.Compare(a.at, b.at) }) // requests end in another order than they are added
	return records[max(0, len(records)-limit):]
}

// bySize is a heap of queues, the largest first.
type bySize []*queue

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (b bySize) Len() int           { return len(b) }
func (b bySize) Less(i, j int) bool { return b[i].bytes > b[j].bytes }
func (b bySize) Swap(i, j int) {
	b[i], b[j] = b[j], b[i]
	b[i].index, b[j].index = i, j
}
func (b *bySize) Push(x any) {
	q := x.(*queue)
	q.index = len(*b)
	*b = append(*b, q)
}
func (b *bySize) Pop() any {
	last := len(*b) - 1
	q := (*b)[last]
	(*b)[last] = nil
	*b = (*b)[:last]
	return q
}
