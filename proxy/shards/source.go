package shards

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// pageSize bounds what is decoded at a time while a shard is listed.
const pageSize = 500

// maxPause bounds how long a shard that is back stays unnoticed.
const maxPause = 5 * time.Second

// source is one resource at one server: where objects come from.
type source struct {
	// shard names the server in logs.
	shard    string
	client   rest.Interface
	resource string
	// identity returns the identity of the export that the resource comes from; nil for what needs none.
	identity func(context.Context) (string, error)
	// forget is called when the server does not know the resource by that identity.
	forget func()
	// newList returns an empty list of the partial type; example is one empty item.
	newList func() runtime.Object
	example runtime.Object
}

// newSource prepares a client for <server>/clusters/<cluster>/apis/<group version>/<resource>.
func newSource(config *rest.Config, cluster string, gv schema.GroupVersion, resource string, example runtime.Object, newList func() runtime.Object) (source, error) {
	config = rest.CopyConfig(config)
	config.APIPath = "/clusters/" + cluster + "/apis"
	config.GroupVersion = &gv
	config.NegotiatedSerializer = newCodecs().WithoutConversion()
	config.ContentType = runtime.ContentTypeJSON
	config.AcceptContentTypes = runtime.ContentTypeJSON
	config.QPS = -1 // two long watches need no limit
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return source{}, fmt.Errorf("client for %s at %s: %w", resource, config.Host, err)
	}
	return source{client: client, resource: resource, newList: newList, example: example}, nil
}

// exported returns the resource as a request over all logical clusters names it, "<resource>:<identity>".
func (s source) exported(ctx context.Context) (string, error) {
	if s.identity == nil {
		return s.resource, nil
	}
	identity, err := s.identity(ctx)
	if err != nil {
		return "", err
	}
	return s.resource + ":" + identity, nil
}

// ListWithContext reads one page. The reflector asks for any resource version, for which a server ignores the page
// size; asking for the latest keeps pages, and a server with a watch cache answers it from there all the same.
func (s source) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	options.ResourceVersion = ""
	options.ResourceVersionMatch = ""
	list := s.newList()
	resource, err := s.exported(ctx)
	if err != nil {
		return nil, err
	}
	err = s.client.Get().Resource(resource).VersionedParams(&options, metav1.ParameterCodec).Do(ctx).Into(list)
	if err != nil {
		return nil, err
	}
	strip(list)
	return list, nil
}

// WatchWithContext opens a watch.
func (s source) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	options.Watch = true
	resource, err := s.exported(ctx)
	if err != nil {
		return nil, err
	}
	return s.client.Get().Resource(resource).VersionedParams(&options, metav1.ParameterCodec).Watch(ctx)
}

// List and Watch exist because the reflector's interface still has them.
func (s source) List(options metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.Background(), options)
}

// Watch is WatchWithContext without a context.
func (s source) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(context.Background(), options)
}

// IsWatchListSemanticsUnSupported keeps the reflector from streaming the initial list: it would gather the objects
// in a store keyed by name, where objects of different logical clusters replace each other.
func (s source) IsWatchListSemanticsUnSupported() bool { return true }

// strip drops what is not read from a page, because the reflector gathers all pages before it hands them on.
func strip(list runtime.Object) {
	drop := func(m *metav1.ObjectMeta) {
		m.ManagedFields, m.Labels, m.Finalizers, m.OwnerReferences = nil, nil, nil, nil
		m.Annotations = readAnnotations(m.Annotations)
	}
	switch l := list.(type) {
	case *workspaceObjectList:
		for i := range l.Items {
			drop(&l.Items[i].ObjectMeta)
		}
	case *clusterObjectList:
		for i := range l.Items {
			drop(&l.Items[i].ObjectMeta)
		}
	}
}

// health is what is known about one stream of objects.
type health struct {
	mu      sync.Mutex
	synced  bool
	failure error
}

func (h *health) set(synced bool, failure error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.synced = h.synced || synced
	h.failure = failure
}

// get tells whether the stream ever delivered a whole list, and its last failure since then.
func (h *health) get() (synced bool, failure error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.synced, h.failure
}

// follow keeps the store in step with the source until the context ends. A server that is away is asked again with
// growing pauses; the store keeps what it has in the meantime. Each outage is logged once.
func follow(ctx context.Context, s source, store cache.ReflectorStore, h *health) {
	logger := klog.FromContext(ctx)
	pauses := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.3, Steps: 20, Cap: maxPause}
	quiet := logger.V(2) // what it has to say about a healthy shard is for debugging
	reflector := cache.NewReflectorWithOptions(s, s.example, store, cache.ReflectorOptions{
		Logger:  &quiet,
		Name:    s.resource + "@" + s.shard,
		Backoff: &wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.3, Steps: 20, Cap: maxPause},
	})
	reflector.WatchListPageSize = pageSize

	pause := pauses
	for ctx.Err() == nil {
		err := reflector.ListAndWatchWithContext(klog.NewContext(ctx, quiet))
		switch {
		case ctx.Err() != nil:
			return
		case err == nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
			pause = pauses // the watch ended, or was too old to go on from: list again
		default:
			if _, before := h.get(); before == nil {
				logger.Error(err, "Cannot follow a shard, its known workspaces stay; trying again", "shard", s.shard, "resource", s.resource)
			}
			h.set(false, err)
			if s.forget != nil && apierrors.IsNotFound(err) {
				s.forget()
			}
		}
		timer := time.NewTimer(pause.Step())
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C:
		}
	}
}
