package publisher

import (
	"context"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
)

func TestNewsTellOfAnOfferOnceAndEndWithTheirReader(t *testing.T) {
	defer goleak.VerifyNone(t)
	ctx, cancel := context.WithCancel(t.Context())
	n := newChangeQueue()
	stream, err := n.stream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	key := controller.Key{Cluster: logicalcluster.Root, Name: "widgets"}
	n.tell(key)
	n.tell(key)
	if event := <-stream.ResultChan(); event.Type != watch.Bookmark {
		t.Errorf("got %+v, want the end of what there was", event)
	}
	if event := <-stream.ResultChan(); event.Type != watch.Modified || controller.ObjectKey(event)[0] != key {
		t.Errorf("got %+v", event)
	}
	other := controller.Key{Cluster: logicalcluster.Root, Name: "gadgets"}
	n.tell(other)
	if event := <-stream.ResultChan(); controller.ObjectKey(event)[0] != other {
		t.Errorf("got %+v, though the first was told", event)
	}
	cancel()
	for range stream.ResultChan() { //nolint:revive // until it is closed
	}
	n.tell(key)
	if len(n.readers) > 0 {
		t.Errorf("%d readers are left", len(n.readers))
	}
}
