package migration

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// watchEnd is how long a watch that must end may stay open.
const watchEnd = 30 * time.Second

// openWatch is a watch that was opened before a move.
type openWatch struct {
	description string
	ended       chan struct{}

	mu     sync.Mutex
	events []string
}

// open watches a resource from its current state on.
func open(t *testing.T, description string, resource dynamic.ResourceInterface) *openWatch {
	t.Helper()
	list, err := resource.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatalf("%s: %v", description, err)
	}
	stream, err := resource.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		t.Fatalf("%s: %v", description, err)
	}
	w := &openWatch{description: description, ended: make(chan struct{})}
	go func() {
		defer close(w.ended)
		for event := range stream.ResultChan() {
			w.record(event)
		}
	}()
	t.Cleanup(func() { stream.Stop(); <-w.ended })
	return w
}

func (w *openWatch) record(event watch.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := string(event.Type)
	if object, err := meta.Accessor(event.Object); err == nil && event.Type != watch.Error {
		text += " " + logicalcluster.Of(object).String() + "/" + object.GetName()
	}
	w.events = append(w.events, text)
}

// check fails if the watch has delivered anything but one error.
func (w *openWatch) check(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.events) > 1 || len(w.events) == 1 && w.events[0] != string(watch.Error) {
		t.Errorf("%s delivers %v", w.description, w.events)
	}
}

// expectEnd fails unless the watch ends, without events of objects.
func (w *openWatch) expectEnd(t *testing.T) {
	t.Helper()
	select {
	case <-w.ended:
	case <-time.After(watchEnd):
		t.Errorf("%s does not end", w.description)
	}
	w.check(t)
}

// expectOpen fails if the watch has ended or delivered anything.
func (w *openWatch) expectOpen(t *testing.T) {
	t.Helper()
	select {
	case <-w.ended:
		t.Errorf("%s has ended", w.description)
	default:
	}
	w.check(t)
}

// viewInformer is what a controller of a provider sees in one endpoint.
type viewInformer struct {
	informer cache.SharedIndexInformer

	mu      sync.Mutex
	deleted []string
}

// inform runs an informer on a view until the test ends.
func inform(t *testing.T, view dynamic.Interface, gvr schema.GroupVersionResource) *viewInformer {
	t.Helper()
	v := &viewInformer{informer: dynamicinformer.NewFilteredDynamicInformer(view, gvr, metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer()}
	_, err := v.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(object any) {
		if _, listed := object.(cache.DeletedFinalStateUnknown); listed {
			return // the endpoint does not have it any more: no event says that it was deleted
		}
		v.mu.Lock()
		defer v.mu.Unlock()
		v.deleted = append(v.deleted, fmt.Sprint(object))
	}})
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() { v.informer.Run(stop) })
	t.Cleanup(func() { close(stop); running.Wait() })
	if !cache.WaitForCacheSync(t.Context().Done(), v.informer.HasSynced) {
		t.Fatal("the informer does not sync")
	}
	return v
}

// has reports whether the informer has an object of the default namespace.
func (v *viewInformer) has(name string) bool {
	_, exists, err := v.informer.GetStore().GetByKey(metav1.NamespaceDefault + "/" + name)
	return err == nil && exists
}

// checkNoDeletions fails if the informer has received an event DELETED.
func (v *viewInformer) checkNoDeletions(t *testing.T) {
	t.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.deleted) > 0 {
		t.Errorf("events tell of deletions: %v", v.deleted)
	}
}
