package claims

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// followAgain is how long to wait before a watch that ended is started anew.
const followAgain = 100 * time.Millisecond

// Run follows all bindings until the context ends.
func (i *Index) Run(ctx context.Context) {
	for ctx.Err() == nil {
		err := i.follow(ctx)
		i.forget()
		if ctx.Err() != nil {
			return
		}
		klog.FromContext(ctx).V(2).Info("The watch of the claims of all bindings ended, starting it again", "reason", err)
		select {
		case <-ctx.Done():
		case <-time.After(followAgain):
		}
	}
}

// follow runs one watch to its end.
func (i *Index) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := i.reader.WatchAll(ctx)
	if err != nil {
		return err
	}
	defer stream.Stop()
	for event := range stream.ResultChan() {
		switch event.Type {
		case watch.Added, watch.Modified, watch.Deleted:
			object, ok := event.Object.(*apisv1alpha2.APIBinding)
			if !ok {
				return fmt.Errorf("a watch of bindings brought %T", event.Object)
			}
			if event.Type == watch.Deleted {
				i.remove(object)
				continue
			}
			if err := i.update(object); err != nil {
				return err
			}
		case watch.Bookmark:
			i.settle() // the first one says that everything that existed was sent
		case watch.Error:
			return apierrors.FromObject(event.Object)
		}
	}
	return nil
}

func (i *Index) remove(object *apisv1alpha2.APIBinding) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.drop(logicalcluster.Of(object), object.Name)
}

func (i *Index) settle() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.synced = true
}

// forget drops everything, since what is deleted while nobody watches is told by nobody.
func (i *Index) forget() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.synced = false
	i.clusters = map[logicalcluster.Name][]accepting{}
	i.sets = map[content]*set{}
}
