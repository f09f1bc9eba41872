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
	exactjson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// Version is the state of an object of this shard in the cache.
type Version struct {
	// ResourceVersion and UID are the cache's.
	ResourceVersion string
	UID             types.UID
	// Digest is equal for objects of equal content.
	Digest Digest
}

// Digest is the digest of an object without the metadata that the cache sets.
type Digest [16]byte

// VersionOf returns the state of an object in the cache.
func VersionOf(object *client.Object) (Version, error) {
	version := Version{ResourceVersion: object.Meta.ResourceVersion, UID: object.Meta.UID}
	var content map[string]any
	if err := exactjson.Unmarshal(object.Raw, &content); err != nil {
		return version, fmt.Errorf("decoding %s: %w", object.Key, err)
	}
	var err error
	version.Digest, err = DigestOf(content)
	return version, err
}

// DigestOf returns the digest of an object as unstructured JSON.
func DigestOf(object map[string]any) (Digest, error) {
	content := make(map[string]any, len(object))
	for name, value := range object {
		content[name] = value
	}
	if metadata, ok := object["metadata"].(map[string]any); ok {
		filtered := make(map[string]any, len(metadata))
		for name, value := range metadata {
			switch name {
			case "uid", "resourceVersion", "generation", "creationTimestamp":
			default:
				filtered[name] = value
			}
		}
		content["metadata"] = filtered
	}
	sorted, err := json.Marshal(content)
	if err != nil {
		return Digest{}, fmt.Errorf("encoding an object: %w", err)
	}
	sum := sha256.Sum256(sorted)
	return Digest(sum[:len(Digest{})]), nil
}

// publishedObjects tracks the objects of this shard in the cache, of one resource.
type publishedObjects struct {
	mu       sync.RWMutex
	versions map[client.Key]Version
	watchers map[*watcher]struct{}
	// known is set while the cache is available and was listed; incarnation is that of the listed store.
	known       bool
	incarnation string
}

func newPublishedObjects() *publishedObjects {
	return &publishedObjects{versions: map[client.Key]Version{}, watchers: map[*watcher]struct{}{}}
}

func (o *publishedObjects) get(key client.Key) (version Version, exists, known bool) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	version, exists = o.versions[key]
	return version, exists, o.known
}

// currentIncarnation returns the incarnation of the listed store.
func (o *publishedObjects) currentIncarnation() (incarnation string, known bool) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.incarnation, o.known
}

func (o *publishedObjects) keys() []client.Key {
	o.mu.RLock()
	defer o.mu.RUnlock()
	keys := make([]client.Key, 0, len(o.versions))
	for key := range o.versions {
		keys = append(keys, key)
	}
	return keys
}

// replace applies a list.
func (o *publishedObjects) replace(versions map[client.Key]Version, incarnation string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.versions, o.known, o.incarnation = versions, true, incarnation
	o.endWatches()
}

// suspend marks the cache as unavailable.
func (o *publishedObjects) suspend() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.known = false
}

// restart marks the cache as available again.
func (o *publishedObjects) restart() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.known = true
	o.endWatches()
}

// endWatches ends all watches, so that their readers check every object again. Callers must hold mu.
func (o *publishedObjects) endWatches() {
	for w := range o.watchers {
		w.Stop()
	}
}

// put stores a state unless a newer one is stored.
func (o *publishedObjects) put(key client.Key, version Version) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before, exists := o.versions[key]
	if exists && older(version.ResourceVersion, before.ResourceVersion) {
		return
	}
	o.versions[key] = version
	if !exists || before != version {
		o.notify(watch.Modified, key)
	}
}

// drop deletes a state unless a newer one is stored.
func (o *publishedObjects) drop(key client.Key, version string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before, exists := o.versions[key]
	if !exists || older(version, before.ResourceVersion) {
		return
	}
	delete(o.versions, key)
	o.notify(watch.Deleted, key)
}

// recordWrite applies the result of a write; nil: the object was deleted.
func (o *publishedObjects) recordWrite(key client.Key, object *client.Object) error {
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

// older returns whether resource version a of one cache is older than b.
func older(a, b string) bool {
	x, errX := strconv.ParseUint(a, 10, 64)
	y, errY := strconv.ParseUint(b, 10, 64)
	return errX == nil && errY == nil && x < y
}

func (o *publishedObjects) notify(change watch.EventType, key client.Key) {
	for w := range o.watchers {
		w.add(watch.Event{Type: change, Object: metadataOf(key)})
	}
}

// metadataOf returns an object with nothing but a key.
func metadataOf(key client.Key) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: key.Namespace, Name: key.Name,
		Annotations: map[string]string{logicalcluster.AnnotationKey: key.Cluster.String()},
	}}
}

func (o *publishedObjects) watch(ctx context.Context) watch.Interface {
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
