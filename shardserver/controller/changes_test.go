package controller

import (
	"context"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/atoll-dev/atoll/logicalcluster"
)

func TestChanges(t *testing.T) {
	defer goleak.VerifyNone(t)
	ctx, cancel := context.WithCancel(t.Context())
	existing := Request{ClusterName: logicalcluster.Root, Namespace: "default", Name: "existing"}
	c := NewChanges(func() []Request { return []Request{existing} })
	stream, err := c.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	other, err := c.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	first := Request{ClusterName: logicalcluster.Root, Name: "widgets"}
	c.Add(first)
	c.Add(first)
	for _, stream := range []watch.Interface{stream, other} {
		if event := <-stream.ResultChan(); event.Type != watch.Added || RequestForObject(event)[0] != existing {
			t.Errorf("got %+v, want the initial request", event)
		}
		if event := <-stream.ResultChan(); event.Type != watch.Bookmark {
			t.Errorf("got %+v, want the bookmark after the initial requests", event)
		}
		if event := <-stream.ResultChan(); event.Type != watch.Modified || RequestForObject(event)[0] != first {
			t.Errorf("got %+v", event)
		}
	}
	other.Stop()
	for range other.ResultChan() { // until it is closed
	}
	second := Request{ClusterName: logicalcluster.Root, Name: "gadgets"}
	c.Add(second)
	if event := <-stream.ResultChan(); RequestForObject(event)[0] != second {
		t.Errorf("got %+v, want the second request", event)
	}
	cancel()
	for range stream.ResultChan() {
	}
	c.Add(first)
	if len(c.watches) > 0 {
		t.Errorf("%d watches remain", len(c.watches))
	}
}
