package workspaces

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/atoll-dev/atoll/internal/reflector"
)

// watchTimeout is the minimum after which a watch is opened again, at the last resource version.
const watchTimeout = 5 * time.Minute

// pageSize bounds the decoded objects in memory during a list. They can be as large as a server allows.
const pageSize = 50

// newBackoff returns the delays between attempts to reach a server, or to list a resource that it does not serve yet.
func newBackoff() wait.Backoff {
	return wait.Backoff{Duration: time.Second, Factor: 1.5, Jitter: 0.2, Steps: 9, Cap: 30 * time.Second}
}

// Handler receives the changes of an informer, sequentially. Its functions must not block.
type Handler struct {
	// OnChange is called for each changed or deleted object.
	OnChange func(change Change)
	// OnConnect is called after the first list, and when the server becomes reachable again.
	OnConnect func()
	// OnDisconnect is called when the server is not reachable any more.
	OnDisconnect func()
	// OnError is called after each error of a list or watch; it may be nil.
	OnError func(err error)
}

// Change is the change of an object.
type Change struct {
	Key
	// Index and Before are the index keys of the object after and before the change, zero if it did not exist.
	Index, Before IndexKey
}

// Informer watches the objects of one resource, and stores them in its Store.
type Informer struct {
	*Store
	reflector *reflector.Reflector
	state     *connection
}

// NewInformer returns an informer of the objects that match a label selector. It does nothing before Run.
func NewInformer(resource dynamic.ResourceInterface, selector string, index Index, handler Handler) *Informer {
	store := newStore(index)
	state := &connection{onConnect: handler.OnConnect, onDisconnect: handler.OnDisconnect, onError: handler.OnError}
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.LabelSelector = selector
			list, err := resource.List(ctx, options)
			if err != nil {
				return nil, err
			}
			return list, nil
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector = selector
			return resource.Watch(ctx, options)
		},
	}
	return &Informer{Store: store, state: state, reflector: reflector.New(reflector.Config{
		ListerWatcher: source, Handler: &objects{connection: state, store: store, onChange: handler.OnChange},
		PageSize: pageSize, WatchTimeout: watchTimeout, Backoff: newBackoff(),
	})}
}

// TrimMetadata sets a function that removes fields from the metadata of an object, which is a shallow copy, before the store encodes it.
// It must be called before Run.
func (i *Informer) TrimMetadata(trim func(metadata map[string]any)) { i.trim = trim }

// Run watches until the context ends.
func (i *Informer) Run(ctx context.Context) { i.reflector.Run(ctx) }

// Status reports whether the store has ever been complete, and why it cannot be complete at the moment.
func (i *Informer) Status() (synced bool, err error) { return i.state.status() }

// connection is the state of a reflector.
type connection struct {
	onConnect, onDisconnect func()
	onError                 func(error)

	mu     sync.Mutex
	synced bool
	err    error
}

func (c *connection) status() (synced bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.synced, c.err
}

// listed records that the store is complete.
func (c *connection) listed() {
	c.mu.Lock()
	first := !c.synced
	c.synced = true
	c.mu.Unlock()
	if first {
		c.onConnect()
	}
}

// OnConnect is called by the reflector when a watch is open.
func (c *connection) OnConnect() {
	c.mu.Lock()
	again := c.err != nil
	c.err = nil
	c.mu.Unlock()
	if again {
		c.onConnect()
	}
}

// OnDisconnect is called by the reflector when a list or watch has failed.
func (c *connection) OnDisconnect(err error) {
	c.mu.Lock()
	first := c.err == nil
	c.err = err
	c.mu.Unlock()
	if first {
		c.onDisconnect()
	}
	if c.onError != nil {
		c.onError(err)
	}
}

// objects passes the objects of the reflector to the store and the handler.
type objects struct {
	*connection
	store    *Store
	onChange func(Change)

	listed map[Key]bool // of the current list
}

func (o *objects) OnListStart() { o.listed = map[Key]bool{} }

func (o *objects) OnListPage(page []runtime.Object) {
	for _, object := range page {
		u := object.(*unstructured.Unstructured)
		key := KeyOf(u)
		o.listed[key] = true
		o.change(key, true, func(current *entry) {
			if current == nil || current.resourceVersion != u.GetResourceVersion() {
				o.store.set(key, u)
			}
		})
	}
}

func (o *objects) OnListDone(string) {
	for _, key := range o.store.Keys() {
		if !o.listed[key] {
			o.change(key, true, func(*entry) { o.store.remove(key) })
		}
	}
	o.listed = nil
	o.connection.listed()
}

func (o *objects) OnEvent(event watch.Event, _ string) {
	u, ok := event.Object.(*unstructured.Unstructured)
	if !ok || event.Type == watch.Bookmark {
		return
	}
	key := KeyOf(u)
	o.change(key, false, func(*entry) {
		if event.Type == watch.Deleted {
			o.store.remove(key)
		} else {
			o.store.setNewer(key, u)
		}
	})
}

// change changes the store, and reports the change. It does not report objects that a list returns unchanged.
func (o *objects) change(key Key, listed bool, update func(current *entry)) {
	o.store.mu.Lock()
	before := o.store.objects[key]
	update(before)
	after := o.store.objects[key]
	o.store.mu.Unlock()
	if listed && before == after {
		return
	}
	change := Change{Key: key}
	if before != nil {
		change.Before = before.index
	}
	if after != nil {
		change.Index = after.index
	}
	o.onChange(change)
}
