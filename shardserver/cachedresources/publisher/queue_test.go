package publisher

import (
	"context"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
)

func TestChangeQueue(t *testing.T) {
	defer goleak.VerifyNone(t)
	ctx, cancel := context.WithCancel(t.Context())
	n := newChangeQueue()
	stream, err := n.stream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	key := controller.Request{ClusterName: logicalcluster.Root, Name: "widgets"}
	n.add(key)
	n.add(key)
	if event := <-stream.ResultChan(); event.Type != watch.Bookmark {
		t.Errorf("got %+v, want the bookmark after the initial list", event)
	}
	if event := <-stream.ResultChan(); event.Type != watch.Modified || controller.RequestForObject(event)[0] != key {
		t.Errorf("got %+v", event)
	}
	other := controller.Request{ClusterName: logicalcluster.Root, Name: "gadgets"}
	n.add(other)
	if event := <-stream.ResultChan(); controller.RequestForObject(event)[0] != other {
		t.Errorf("got %+v, want the second key", event)
	}
	cancel()
	for range stream.ResultChan() { // until it is closed
	}
	n.add(key)
	if len(n.watchers) > 0 {
		t.Errorf("%d watchers remain", len(n.watchers))
	}
}
