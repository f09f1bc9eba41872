package workspaces

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"github.com/atoll-dev/atoll/internal/reflector"
)

// NewWatch returns a watcher of the metadata of a resource's objects that match a label selector. It stores no objects. It calls
// onChange for each changed or deleted object, and resync when it may have missed changes: after every list.
func NewWatch(resource metadata.Getter, selector string, onChange func(object *metav1.PartialObjectMetadata), resync func()) *reflector.Reflector {
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.LabelSelector, options.Limit = selector, 1 // the objects are not used, only the resource version
			list, err := resource.List(ctx, options)
			if err == nil {
				list.Continue = ""
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector = selector
			return resource.Watch(ctx, options)
		},
	}
	return reflector.New(reflector.Config{
		ListerWatcher: source, Handler: &watchHandler{onChange, resync}, WatchTimeout: watchTimeout, Backoff: newBackoff(),
	})
}

type watchHandler struct {
	onChange func(object *metav1.PartialObjectMetadata)
	resync   func()
}

func (h *watchHandler) OnListStart()                {}
func (h *watchHandler) OnListPage([]runtime.Object) {}
func (h *watchHandler) OnListDone(string)           { h.resync() }
func (h *watchHandler) OnConnect()                  {}
func (h *watchHandler) OnDisconnect(error)          {}

func (h *watchHandler) OnEvent(event watch.Event, _ string) {
	if object, ok := event.Object.(*metav1.PartialObjectMetadata); ok && event.Type != watch.Bookmark {
		h.onChange(object)
	}
}
