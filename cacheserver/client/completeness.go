package client

import (
	"strconv"
	"sync"

	exactjson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
)

// Reports is the resource of the heartbeats of shards, which report whether their part of a cache is complete.
var Reports = shardingv1alpha1.SchemeGroupVersion.WithResource("shardreports")

// Shards is the resource of the registered shards. Only those of the root shard count.
var Shards = corev1alpha1.SchemeGroupVersion.WithResource("shards")

// Completeness tracks since when the part of each shard in a cache is complete. It is updated by a reflector of
// Reports. Handlers of other resources need it before they take the absence of an object for its deletion: reflectors
// are independent, so the report of a shard may arrive before its objects, or be that of a store that was lost since.
type Completeness struct {
	lock        sync.Mutex
	incarnation string
	// since is the resource version by which a shard had published everything.
	since map[string]uint64
}

// OnReplace applies the list of all reports.
func (c *Completeness) OnReplace(reports []*Object, at Position) {
	c.lock.Lock()
	defer c.lock.Unlock()
	before := c.since
	c.since = make(map[string]uint64, len(reports))
	for _, report := range reports {
		if version, ok := before[report.Shard]; ok && at.Incarnation == c.incarnation && isComplete(report) {
			c.since[report.Shard] = version
			continue
		}
		c.set(report)
	}
	c.incarnation = at.Incarnation
}

// OnEvent applies one change of a report.
func (c *Completeness) OnEvent(change watch.EventType, report *Object, at Position) {
	if report == nil {
		return
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	c.incarnation = at.Incarnation
	if c.since == nil {
		c.since = map[string]uint64{}
	}
	if change == watch.Deleted {
		delete(c.since, report.Shard)
		return
	}
	c.set(report)
}

func (c *Completeness) set(report *Object) {
	if report.Name != report.Shard {
		return // a shard reports only for itself
	}
	if !isComplete(report) {
		delete(c.since, report.Shard)
		return
	}
	if _, ok := c.since[report.Shard]; ok {
		return
	}
	if version, err := strconv.ParseUint(report.Meta.ResourceVersion, 10, 64); err == nil {
		c.since[report.Shard] = version
	}
}

// IsCompleteAt returns whether a reflector at that position has seen all objects of the shard.
func (c *Completeness) IsCompleteAt(shard string, at Position) bool {
	c.lock.Lock()
	defer c.lock.Unlock()
	since, ok := c.since[shard]
	if !ok || at.Incarnation != c.incarnation {
		return false
	}
	reached, err := strconv.ParseUint(at.ResourceVersion, 10, 64)
	return err == nil && reached >= since
}

// IsComplete returns whether the last report of the shard is complete.
func (c *Completeness) IsComplete(shard string) bool {
	c.lock.Lock()
	defer c.lock.Unlock()
	_, ok := c.since[shard]
	return ok
}

func isComplete(report *Object) bool {
	var content struct {
		Spec struct {
			Complete bool `json:"complete"`
		} `json:"spec"`
	}
	return exactjson.Unmarshal(report.Raw, &content) == nil && content.Spec.Complete
}
