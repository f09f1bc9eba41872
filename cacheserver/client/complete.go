package client

import (
	"strconv"
	"sync"

	exactjson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
)

// Reports is the resource by which shards say how they are, and whether their part of a cache is complete.
var Reports = shardingv1alpha1.SchemeGroupVersion.WithResource("shardreports")

// Shards is the resource of the objects that make a shard one of the installation. Those of the root shard count.
var Shards = corev1alpha1.SchemeGroupVersion.WithResource("shards")

// Completeness knows of each shard since when its part of a cache is complete. Feed it with the stream of Reports. It
// answers what streams of other resources need to know before they take the absence of an object for its end: streams
// run apart, so that the report of a shard may be known before the objects that it speaks of, or be one of a store that
// was lost in the meantime.
type Completeness struct {
	lock        sync.Mutex
	incarnation string
	// since holds the resource version by which everything a shard publishes was written.
	since map[string]uint64
}

// OnReplace takes the list of all reports.
func (c *Completeness) OnReplace(reports []*Object, at Position) {
	c.lock.Lock()
	defer c.lock.Unlock()
	before := c.since
	c.since = make(map[string]uint64, len(reports))
	for _, report := range reports {
		if version, ok := before[report.Shard]; ok && at.Incarnation == c.incarnation && complete(report) {
			c.since[report.Shard] = version
			continue
		}
		c.set(report)
	}
	c.incarnation = at.Incarnation
}

// OnEvent takes one change of a report.
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
		return // a report speaks for its writer alone
	}
	if !complete(report) {
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

// At tells whether a stream at that position has seen everything that the shard publishes.
func (c *Completeness) At(shard string, at Position) bool {
	c.lock.Lock()
	defer c.lock.Unlock()
	since, ok := c.since[shard]
	if !ok || at.Incarnation != c.incarnation {
		return false
	}
	reached, err := strconv.ParseUint(at.ResourceVersion, 10, 64)
	return err == nil && reached >= since
}

// Now tells whether the shard says that its part is complete, as far as is known.
func (c *Completeness) Now(shard string) bool {
	c.lock.Lock()
	defer c.lock.Unlock()
	_, ok := c.since[shard]
	return ok
}

func complete(report *Object) bool {
	var content struct {
		Spec struct {
			Complete bool `json:"complete"`
		} `json:"spec"`
	}
	return exactjson.Unmarshal(report.Raw, &content) == nil && content.Spec.Complete
}
