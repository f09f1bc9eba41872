package informer

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/watch"
)

var errEndedEarly = errors.New("the watch ended before its initial events did")

// List returns all objects, from the initial events of a watch that is stopped afterwards.
func List[T any](ctx context.Context, watchFunc WatchFunc) ([]T, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := watchFunc(ctx)
	if err != nil {
		return nil, err
	}
	defer stream.Stop()
	objects, _, err := initialEvents[T](stream)
	return objects, err
}

// initialEvents reads a watch up to the bookmark after its initial events.
func initialEvents[T any](stream watch.Interface) (objects []T, resourceVersion string, err error) {
	for event := range stream.ResultChan() {
		switch event.Type {
		case watch.Added:
			object, ok := event.Object.(T)
			if !ok {
				return nil, "", fmt.Errorf("unexpected type %T", event.Object)
			}
			objects = append(objects, object)
		case watch.Bookmark:
			object, err := meta.Accessor(event.Object)
			if err != nil {
				return nil, "", err
			}
			return objects, object.GetResourceVersion(), nil
		case watch.Error:
			return nil, "", apierrors.FromObject(event.Object)
		default:
			return nil, "", fmt.Errorf("unexpected event %s before the bookmark", event.Type)
		}
	}
	return nil, "", errEndedEarly
}
