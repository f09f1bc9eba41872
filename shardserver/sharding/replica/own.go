package replica

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// Version is the state of one of this shard's objects in the cache.
type Version struct {
	// ResourceVersion and UID are the cache's.
	ResourceVersion string
	UID             types.UID
	// Content is the same for objects that say the same.
	Content Content
}

// Content is a digest of an object, without what a cache decides about it.
type Content [16]byte

// VersionOf returns the state of an object as the cache has it.
func VersionOf(object *client.Object) (Version, error) {
	version := Version{ResourceVersion: object.Meta.ResourceVersion, UID: object.Meta.UID}
	var content map[string]any
	if err := json.Unmarshal(object.Raw, &content); err != nil {
		return version, fmt.Errorf("decoding %s: %w", object.Key, err)
	}
	var err error
	version.Content, err = ContentOf(content)
	return version, err
}

// ContentOf returns the digest of an object as generic JSON.
func ContentOf(object map[string]any) (Content, error) {
	said := make(map[string]any, len(object))
	for name, value := range object {
		said[name] = value
	}
	if metadata, ok := object["metadata"].(map[string]any); ok {
		kept := make(map[string]any, len(metadata))
		for name, value := range metadata {
			switch name {
			case "uid", "resourceVersion", "generation", "creationTimestamp":
			default:
				kept[name] = value
			}
		}
		said["metadata"] = kept
	}
	sorted, err := json.Marshal(said)
	if err != nil {
		return Content{}, fmt.Errorf("encoding an object: %w", err)
	}
	sum := sha256.Sum256(sorted)
	return Content(sum[:len(Content{})]), nil
}

// owned are the objects of this shard in the cache, of one resource.
type owned struct {
	mu       sync.RWMutex
	versions map[client.Key]Version
	watchers map[*watcher]struct{}
	// known says that the cache was listed and answers, incarnation which store was listed.
	known       bool
	incarnation string
}

func newOwned() *owned {
	return &owned{versions: map[client.Key]Version{}, watchers: map[*watcher]struct{}{}}
}

func (o *owned) get(key client.Key) (version Version, exists, known bool) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	version, exists = o.versions[key]
	return version, exists, o.known
}

// store returns which incarnation of the cache is known.
func (o *owned) store() (incarnation string, known bool) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.incarnation, o.known
}

func (o *owned) keys() []client.Key {
	o.mu.RLock()
	defer o.mu.RUnlock()
	keys := make([]client.Key, 0, len(o.versions))
	for key := range o.versions {
		keys = append(keys, key)
	}
	return keys
}

// replace takes over what a list has.
func (o *owned) replace(versions map[client.Key]Version, incarnation string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.versions, o.known, o.incarnation = versions, true, incarnation
	o.end()
}

// suspend says that the cache does not answer, restart that it does again.
func (o *owned) suspend() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.known = false
}

// restart is explained at suspend.
func (o *owned) restart() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.known = true
	o.end()
}

// end ends all watches, so that everything is looked at anew. The lock is held.
func (o *owned) end() {
	for w := range o.watchers {
		w.Stop()
	}
}

// put takes over a state that is not older than the known one.
func (o *owned) put(key client.Key, version Version) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before, exists := o.versions[key]
	if exists && older(version.ResourceVersion, before.ResourceVersion) {
		return
	}
	o.versions[key] = version
	if !exists || before != version {
		o.tell(watch.Modified, key)
	}
}

// drop takes over that an object is gone, unless a newer one is known.
func (o *owned) drop(key client.Key, version string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before, exists := o.versions[key]
	if !exists || older(version, before.ResourceVersion) {
		return
	}
	delete(o.versions, key)
	o.tell(watch.Deleted, key)
}

// wrote takes over the outcome of a write; nil: the object is gone.
func (o *owned) wrote(key client.Key, object *client.Object) error {
	if object == nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.versions, key)
		return nil
	}
	version, err := VersionOf(object)
	if err != nil {
		return err
	}
	o.put(key, version)
	return nil
}

// older compares resource versions of one cache.
func older(a, b string) bool {
	x, errX := strconv.ParseUint(a, 10, 64)
	y, errY := strconv.ParseUint(b, 10, 64)
	return errX == nil && errY == nil && x < y
}

func (o *owned) tell(change watch.EventType, key client.Key) {
	for w := range o.watchers {
		w.add(watch.Event{Type: change, Object: metadataOf(key)})
	}
}

// metadataOf returns an object that only tells its key.
func metadataOf(key client.Key) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: key.Namespace, Name: key.Name,
		Annotations: map[string]string{logicalcluster.AnnotationKey: key.Cluster.String()},
	}}
}

func (o *owned) watch(ctx context.Context) watch.Interface {
	o.mu.Lock()
	defer o.mu.Unlock()
	w := newWatcher(ctx, func(w *watcher) {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.watchers, w)
	})
	o.watchers[w] = struct{}{}
	if !o.known {
		w.run(nil, false)
		return w
	}
	initial := make([]runtime.Object, 0, len(o.versions))
	for key := range o.versions {
		initial = append(initial, metadataOf(key))
	}
	w.run(initial, true)
	return w
}
