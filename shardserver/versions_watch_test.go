package shardserver_test

import (
	"bufio"
	"context"
	"encoding/json"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// nextEvent returns the next event that is no bookmark.
func nextEvent(t *testing.T, events watch.Interface) watch.Event {
	t.Helper()
	for {
		event, ok := <-events.ResultChan()
		if !ok {
			t.Fatal("the watch ended")
		}
		if event.Type != watch.Bookmark {
			return event
		}
	}
}

func testVersionsOfWatches(t *testing.T, m *movable, gvr schema.GroupVersionResource) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	objects := m.objects(gvr)
	for _, version := range m.olderVersions(t) {
		events, err := objects.Watch(ctx, metav1.ListOptions{ResourceVersion: version})
		if err != nil {
			t.Fatal(err)
		}
		if event, more := <-events.ResultChan(), len(events.ResultChan()); event.Type != watch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(event.Object)) || more != 0 {
			t.Errorf("a watch from %s, before the move: %v", version, event)
		}
	}
	events, err := objects.Watch(ctx, metav1.ListOptions{ResourceVersion: versionOf(m.epoch+1, 1)})
	if err != nil {
		t.Fatal(err)
	}
	if event := <-events.ResultChan(); event.Type != watch.Error || !isTooLarge(apierrors.FromObject(event.Object)) {
		t.Errorf("a watch from a newer version: %v", event)
	}

	list, err := objects.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var resumed []watch.Interface
	for range 2 { // the encoding of an event is shared
		events, err := objects.Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
		if err != nil {
			t.Fatal(err)
		}
		resumed = append(resumed, events)
	}
	response := shardtesting.Open(ctx, t, m.config, "GET", objectsPath(gvr)+"?watch=1&resourceVersion="+list.GetResourceVersion(), "", "Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
	defer response.Body.Close()
	metadata := bufio.NewScanner(response.Body)
	created := m.create(t, gvr, "watched")
	patched, err := objects.Patch(ctx, "watched", types.MergePatchType, []byte(`{"metadata":{"labels":{"color":"red"}}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := objects.Delete(ctx, "watched", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, events := range resumed {
		for i, want := range []struct {
			kind    watch.EventType
			version string
		}{{watch.Added, created.GetResourceVersion()}, {watch.Modified, patched.GetResourceVersion()}, {watch.Deleted, ""}} {
			event := nextEvent(t, events)
			object, ok := event.Object.(*unstructured.Unstructured)
			if !ok || event.Type != want.kind || (want.version != "" && object.GetResourceVersion() != want.version) {
				t.Fatalf("event %d: %v, want %v", i, event, want)
			}
			m.expectVersion(t, string(event.Type), object.GetResourceVersion())
		}
		events.Stop()
	}
	for metadata.Scan() {
		var event struct {
			Type   string
			Object metav1.PartialObjectMetadata
		}
		if err := json.Unmarshal(metadata.Bytes(), &event); err != nil {
			t.Fatal(err)
		}
		m.expectVersion(t, "metadata of "+event.Type, event.Object.ResourceVersion)
		if event.Type == "DELETED" {
			break
		}
	}
	if err := metadata.Err(); err != nil {
		t.Fatal(err)
	}

	streamed, err := objects.Watch(ctx, metav1.ListOptions{
		SendInitialEvents: new(true), AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer streamed.Stop()
	for event := range streamed.ResultChan() {
		object, ok := event.Object.(*unstructured.Unstructured)
		if !ok {
			t.Fatal(event)
		}
		m.expectVersion(t, "streamed "+string(event.Type), object.GetResourceVersion())
		if event.Type == watch.Bookmark {
			if object.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "" {
				t.Error("the bookmark does not end the initial events")
			}
			break
		}
	}
}
