package shardserver_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// replicas are the objects that another shard publishes, without their changes.
type replicas struct {
	mu      sync.Mutex
	objects []*tenancyv1alpha1.WorkspaceType
}

func (r *replicas) set(objects ...*tenancyv1alpha1.WorkspaceType) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.objects = objects
}

func (r *replicas) Get(_ schema.GroupResource, cluster logicalcluster.Name, _, name string) (runtime.Object, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, object := range r.objects {
		if logicalcluster.Of(object) == cluster && object.Name == name {
			return object, true
		}
	}
	return nil, false
}

func (r *replicas) List(resource schema.GroupResource, _ logicalcluster.Name) []runtime.Object {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []runtime.Object
	if resource == workspaceTypes {
		for _, object := range r.objects {
			all = append(all, object)
		}
	}
	return all
}

func (r *replicas) Watch(context.Context, schema.GroupResource) (watch.Interface, error) {
	stream := watch.NewFakeWithChanSize(1, false)
	stream.Action(watch.Bookmark, &metav1.PartialObjectMetadata{})
	return stream, nil
}

func (*replicas) CheckSynced(schema.GroupResource) error { return nil }

var workspaceTypes = tenancyv1alpha1.Resource("workspacetypes")

// TestReadersOfMovingClusters reads, together with the replicas of other shards, an object of a logical cluster that moves away, and of
// one that arrives.
func TestReadersOfMovingClusters(t *testing.T) {
	shard := shardtesting.Start(t, withGate)
	testAbsence(t, shard)
	testChildrenOfMovingCluster(t, shard)
	cluster := shard.NewWorkspace(t, "root", "moves").Spec.Cluster
	name := logicalcluster.MustParseName(cluster)
	admin := shard.Client(t, shard.Admin(t))
	if err := admin.Create(shardtesting.In(t.Context(), cluster), &tenancyv1alpha1.WorkspaceType{ObjectMeta: metav1.ObjectMeta{Name: "town"}}); err != nil {
		t.Fatal(err)
	}
	registry := shard.Server.Registry
	remote := &replicas{}
	registry.SetRemoteStore(remote)
	published := &tenancyv1alpha1.WorkspaceType{ObjectMeta: metav1.ObjectMeta{Name: "town", Labels: map[string]string{"from": "the other shard"}, Annotations: map[string]string{logicalcluster.AnnotationKey: cluster}}}
	reader := storage.NewReader[*tenancyv1alpha1.WorkspaceType](registry, workspaceTypes).Global()
	expect := func(want string) {
		t.Helper()
		got := "nothing"
		object, err := reader.Get(logicalcluster.With(t.Context(), name), "", "town")
		if err == nil {
			got = "the object of " + object.Labels["from"]
		} else if !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		for description, in := range map[string]logicalcluster.Name{"one": name, "all": logicalcluster.Wildcard} {
			all, err := reader.List(logicalcluster.With(t.Context(), in), "", nil)
			if err != nil {
				t.Fatal(err)
			}
			listed := "nothing"
			for _, object := range all {
				if logicalcluster.Of(object) == name {
					if listed != "nothing" {
						t.Errorf("the list of %s has the object twice", description)
					}
					listed = "the object of " + object.Labels["from"]
				}
			}
			if listed != want {
				t.Errorf("the list of %s has %s, want %s", description, listed, want)
			}
		}
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if local, err := registry.IsLocal(t.Context(), name); err != nil || local {
			t.Errorf("the logical cluster is local: %v, %v", local, err)
		}
	}
	waitHidden := func(hidden bool) {
		t.Helper()
		shardtesting.Eventually(t, "the state of the logical cluster", func(context.Context) error {
			if registry.IsHidden(name) != hidden {
				return fmt.Errorf("hidden is %t", !hidden)
			}
			return nil
		})
	}
	m := newMover(t, shard, cluster)
	arriving, movedTo := annotation(corev1alpha1.ArrivingAnnotationKey), annotation(corev1alpha1.MovedToAnnotationKey)

	m.replace(t, annotations, arriving)
	waitHidden(true)
	expect("nothing")
	remote.set(published)
	expect("the object of the other shard")
	whileArriving := follow(t, reader, name)
	m.replace(t, arriving, annotations)
	waitHidden(false)
	if events, ended := whileArriving(true); !ended || len(events) > 0 {
		t.Errorf("a watch from before the logical cluster is open has events %v, and has ended: %t", events, ended)
	}

	remote.set()
	whileOpen := follow(t, reader, name)
	m.replace(t, annotations, movedTo)
	waitHidden(true)
	expect("the object of ")
	remote.set(published)
	expect("the object of the other shard")
	for _, key := range shard.Keys(t, cluster+"/town") {
		shard.DeleteKey(t, key)
	}
	shardtesting.Eventually(t, "the deletion of the remainder", func(ctx context.Context) error {
		_, err := storage.NewReader[*tenancyv1alpha1.WorkspaceType](registry, workspaceTypes).Get(logicalcluster.With(ctx, name), "", "town")
		if !apierrors.IsNotFound(err) {
			return errors.New("it exists")
		}
		return nil
	})
	expect("the object of the other shard")
	if err := admin.Create(shardtesting.In(t.Context(), "root"), &tenancyv1alpha1.WorkspaceType{ObjectMeta: metav1.ObjectMeta{Name: marker}}); err != nil {
		t.Fatal(err)
	}
	if events, ended := whileOpen(false); ended || len(events) != 1 || events[0] != "ADDED" {
		t.Errorf("a watch from before the move has events %v, and has ended: %t", events, ended)
	}
}

// marker is the name of an object that is created in another logical cluster at the end.
const marker = "marker"

// follow watches the objects of a logical cluster. The function that it returns waits for the end of the watch, or for the marker,
// after which it ends the watch. It returns the types of all events, and whether the watch had ended.
func follow(t *testing.T, reader *storage.Reader[*tenancyv1alpha1.WorkspaceType], cluster logicalcluster.Name) func(untilEnd bool) ([]string, bool) {
	t.Helper()
	stream, err := reader.WatchAll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var events []string
	ended, listed, marked := make(chan struct{}), make(chan struct{}), make(chan struct{})
	markListed := sync.OnceFunc(func() { close(listed) })
	go func() {
		defer close(ended)
		for event := range stream.ResultChan() {
			object, err := meta.Accessor(event.Object)
			switch {
			case event.Type == watch.Bookmark:
				markListed()
			case err == nil && logicalcluster.Of(object) == cluster:
				events = append(events, string(event.Type))
			case err == nil && object.GetName() == marker && event.Type == watch.Added:
				close(marked)
			}
		}
	}()
	<-listed
	return func(untilEnd bool) ([]string, bool) {
		if untilEnd {
			marked = nil
		}
		select {
		case <-ended:
			return events, true
		case <-marked:
		case <-time.After(watchTimeout):
		}
		stream.Stop()
		<-ended
		return events, false
	}
}

// watchTimeout is how long the end of a watch, or an event, may take.
const watchTimeout = 30 * time.Second
