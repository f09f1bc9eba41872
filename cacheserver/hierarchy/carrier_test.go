package hierarchy

import (
	"errors"
	"fmt"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// TestWhatFailedWaitsForItsTurn: a parent that refuses what a shard has is not asked for all of it at every sweep.
func TestWhatFailedWaitsForItsTurn(t *testing.T) {
	nobody, err := client.New(&rest.Config{Host: "https://cache.invalid"}, "")
	if err != nil {
		t.Fatal(err)
	}
	c := New(Config{Name: "europe", Here: nobody, Parent: nobody})
	defer c.queue.ShutDown()
	published := func(name string) item {
		return item{client.Reports, client.Key{Shard: "alpha", Cluster: logicalcluster.Root, Name: name}}
	}
	c.here.objects[client.Reports], c.above.objects[client.Reports] = map[client.Key]copied{}, map[client.Key]copied{}
	const objects = 3
	for i := range objects {
		c.here.objects[client.Reports][published(fmt.Sprint(i)).key] = copied{exists: true, global: true}
	}
	c.sweep()
	if c.queue.Len() != objects {
		t.Fatalf("%d objects are looked at, want %d", c.queue.Len(), objects)
	}
	for range objects {
		of, _ := c.queue.Get()
		for range 10 { // so that its turn is far away
			c.queue.AddRateLimited(of)
		}
		c.failed(of, errors.New("refused"))
		c.queue.Done(of)
	}
	c.sweep()
	if c.queue.Len() != 0 {
		t.Errorf("%d objects are tried again at once", c.queue.Len())
	}
	c.answering(true)
	c.sweep()
	if c.queue.Len() != objects {
		t.Errorf("%d objects are tried again when the caches answer", c.queue.Len())
	}
	for i := range objects {
		if len(c.troubled) != objects-i {
			t.Errorf("%d objects are in trouble, want %d", len(c.troubled), objects-i)
		}
		c.succeeded(published(fmt.Sprint(i)))
	}
}
