package replica

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"

	cachev1alpha1 "github.com/atoll-dev/atoll/api/cache/v1alpha1"
	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/customresources/crdstorage"
)

// original is the state of the original of a replica on its shard, with its API version. The zero original is unknown.
type original struct{ uid, resourceVersion, apiVersion string }

func originalOf(annotations map[string]string, apiVersion string) original {
	return original{annotations[client.OriginalUIDAnnotation], annotations[client.OriginalResourceVersionAnnotation], apiVersion}
}

// isSet reports whether the original is known, so that replicas with equal originals are equal.
func (o original) isSet() bool { return o.uid != "" && o.resourceVersion != "" }

// listOriginals returns the originals of the replicas in a logical cluster, by name.
func (o *openStorage) listOriginals(ctx context.Context, cluster logicalcluster.Name) (map[string]original, error) {
	ctx = request.WithNamespace(logicalcluster.With(ctx, cluster), "")
	found, err := o.storage.Store().List(ctx, &internalversion.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing the replicas of %q: %w", cluster, err)
	}
	list, ok := found.(*crdstorage.List)
	if !ok {
		return nil, fmt.Errorf("listing replicas: got %T", found)
	}
	stored := make(map[string]original, len(list.Items))
	for i := range list.Items {
		object := &list.Items[i]
		stored[object.GetName()] = originalOf(object.GetAnnotations(), object.GroupVersionKind().GroupVersion().String())
	}
	return stored, nil
}

// writer writes replicas while the term of the Replicator lasts. A check that succeeds just before another replica of the
// shard acquires the term permits one more write, unless that replica writes the same object.
type writer struct {
	*openStorage
	check func(context.Context) error
}

func (w *writer) put(ctx context.Context, cluster logicalcluster.Name, object *crdstorage.Object) error {
	return w.storage.Put(logicalcluster.With(ctx, cluster), object, w.check)
}

func (w *writer) delete(ctx context.Context, cluster logicalcluster.Name, name string) error {
	return w.storage.Delete(logicalcluster.With(ctx, cluster), name, w.check)
}

// putCompleteMarker marks the replicas of a source as complete; deleteCompleteMarker revokes it.
func (w *writer) putCompleteMarker(ctx context.Context, source Source) error {
	data, err := json.Marshal(metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: cachev1alpha1.SchemeGroupVersion.String(), Kind: client.CompleteKind},
		ObjectMeta: metav1.ObjectMeta{Name: source.Cluster.String(), Annotations: map[string]string{
			logicalcluster.AnnotationKey: completeMarkers.String(), client.ShardAnnotation: source.Shard,
		}},
	})
	if err != nil {
		return err
	}
	object, err := crdstorage.NewObject(data, 0)
	if err != nil {
		return err
	}
	return w.put(ctx, completeMarkers, object)
}

// deleteCompleteMarker is described at putCompleteMarker.
func (w *writer) deleteCompleteMarker(ctx context.Context, cluster logicalcluster.Name) error {
	return w.delete(ctx, completeMarkers, cluster.String())
}

// listStored returns the sources with replicas in etcd. It skips from one source to the next with range requests.
func (r *Replicator) listStored(ctx context.Context) (map[sourceKey]bool, error) {
	root := Prefix(r.cfg.SnapshotStore.Prefix) + "/"
	found := map[sourceKey]bool{}
	for from, end := root, clientv3.GetPrefixRangeEnd(root); ; {
		page, err := r.cfg.SnapshotStore.Etcd.Get(ctx, from, clientv3.WithRange(end), clientv3.WithKeysOnly(), clientv3.WithLimit(1))
		if err != nil {
			return nil, fmt.Errorf("reading the keys of replicas: %w", err)
		}
		if len(page.Kvs) == 0 {
			return found, nil
		}
		key, prefix, ok := parseKey(strings.TrimPrefix(string(page.Kvs[0].Key), root))
		if !ok {
			from = string(page.Kvs[0].Key) + "\x00"
			continue
		}
		if key.cluster == completeMarkers { // one for each source, also for those without objects
			name := strings.TrimPrefix(string(page.Kvs[0].Key), root+prefix)
			if cluster, err := logicalcluster.ParseName(name); err == nil {
				found[sourceKey{key.storageKey, cluster}] = true
			}
			from = string(page.Kvs[0].Key) + "\x00"
			continue
		}
		found[key] = true
		from = clientv3.GetPrefixRangeEnd(root + prefix)
	}
}

// parseKey parses "<group or core>/<resource>/<identity>/<cluster>/<name>", and returns the prefix of the cluster.
func parseKey(key string) (source sourceKey, prefix string, ok bool) {
	segments := strings.Split(key, "/")
	if len(segments) != 5 {
		return sourceKey{}, "", false
	}
	cluster, err := logicalcluster.ParseName(segments[3])
	if err != nil {
		return sourceKey{}, "", false
	}
	group := segments[0]
	if group == "core" {
		group = ""
	}
	storage := storageKey{schema.GroupResource{Group: group, Resource: segments[1]}, segments[2]}
	return sourceKey{storage, cluster}, strings.Join(segments[:4], "/") + "/", true
}
