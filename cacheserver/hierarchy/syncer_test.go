package hierarchy

import (
	"errors"
	"fmt"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// TestFailedItemsKeepTheirBackoff checks that a resync does not retry all items that a parent rejects.
func TestFailedItemsKeepTheirBackoff(t *testing.T) {
	unreachable, err := client.New(&rest.Config{Host: "https://cache.invalid"}, "")
	if err != nil {
		t.Fatal(err)
	}
	c := New(Config{Name: "europe", Local: unreachable, Parent: unreachable})
	defer c.queue.ShutDown()
	published := func(name string) objectRef {
		return objectRef{client.Reports, client.Key{Shard: "alpha", Cluster: logicalcluster.Root, Name: name}}
	}
	c.local.objects[client.Reports], c.parent.objects[client.Reports] = map[client.Key]summary{}, map[client.Key]summary{}
	const objects = 3
	for i := range objects {
		c.local.objects[client.Reports][published(fmt.Sprint(i)).key] = summary{exists: true, global: true}
	}
	c.resync()
	if c.queue.Len() != objects {
		t.Fatalf("%d objects are queued, want %d", c.queue.Len(), objects)
	}
	for range objects {
		ref, _ := c.queue.Get()
		for range 10 { // for a long backoff
			c.queue.AddRateLimited(ref)
		}
		c.recordFailure(ref, errors.New("refused"))
		c.queue.Done(ref)
	}
	c.resync()
	if c.queue.Len() != 0 {
		t.Errorf("%d objects are retried at once", c.queue.Len())
	}
	c.setAvailable(true)
	c.resync()
	if c.queue.Len() != objects {
		t.Errorf("%d objects are retried when the caches are available", c.queue.Len())
	}
	for i := range objects {
		if len(c.failing) != objects-i {
			t.Errorf("%d objects are failing, want %d", len(c.failing), objects-i)
		}
		c.recordSuccess(published(fmt.Sprint(i)))
	}
}
