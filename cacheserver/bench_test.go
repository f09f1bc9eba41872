package cacheserver_test

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/atoll-dev/atoll/cacheserver/client"
	cachetesting "github.com/atoll-dev/atoll/cacheserver/testing"
)

// BenchmarkRegions measures the delay from the publication of an object in one region to another, one after the other,
// and the time until a region has a thousand objects that are published at once.
func BenchmarkRegions(b *testing.B) {
	const many = 1000
	t := b
	top := cachetesting.Start(t)
	europe := cachetesting.Start(t, withParent(t, top, "europe"))
	asia := cachetesting.Start(t, withParent(t, top, "asia"))
	alpha := europe.Client(t, "alpha")
	publish := func(name string) {
		obj := newObject(exports, name, setGlobalReach, func(u *unstructured.Unstructured) {
			u.Object["spec"] = map[string]any{"text": fmt.Sprintf("%01000d", 1)}
		})
		if _, err := alpha.Create(t.Context(), exports, testCluster, obj); err != nil {
			t.Fatal(err)
		}
	}
	arrived := make(chan string, many)
	go asia.Client(t, "beta").NewReflector(exports, client.Position{}, addedNames(arrived)).Run(t.Context())
	publish("first")
	<-arrived
	var all time.Duration
	const few = 200
	for i := range few {
		started := time.Now()
		publish(fmt.Sprintf("one-%d", i))
		<-arrived
		all += time.Since(started)
	}
	b.ReportMetric(float64(all.Milliseconds())/few, "ms/object")
	started := time.Now()
	go func() {
		for i := range many {
			publish(fmt.Sprintf("many-%d", i))
		}
	}()
	for range many {
		<-arrived
	}
	b.ReportMetric(time.Since(started).Seconds(), "s/1k")
	_, _, err := alpha.List(t.Context(), exports)
	if err != nil {
		t.Fatal(err)
	}
	started = time.Now()
	if _, _, err := alpha.List(t.Context(), exports); err != nil {
		t.Fatal(err)
	}
	b.ReportMetric(time.Since(started).Seconds(), "s/list")
}

// addedNames receives the names of added objects.
type addedNames chan string

func (a addedNames) OnReplace(objects []*client.Object, _ client.Position) {
	for _, object := range objects {
		a <- object.Name
	}
}

func (a addedNames) OnEvent(change watch.EventType, object *client.Object, _ client.Position) {
	if change == watch.Added {
		a <- object.Name
	}
}

func (addedNames) OnConnect() {}

func (addedNames) OnDisconnect(error) {}
