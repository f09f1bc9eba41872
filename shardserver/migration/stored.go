package migration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	exactjson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/storage/value"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/transfer"
)

// maxConflicts bounds how often a change of a LogicalCluster is tried again because another one came first.
const maxConflicts = 20

// errConflict is returned if the stored LogicalCluster is not in the state that a change requires.
var errConflict = errors.New("the stored LogicalCluster is in another state")

// storedClusters changes LogicalClusters directly in etcd: requests to a logical cluster that moves are refused, those of
// controllers too, and an object that has arrived keeps its metadata.
type storedClusters struct {
	etcd        *clientv3.Client
	registry    *storage.Registry
	prefix      string
	transformer value.Transformer
}

// storedCluster is a LogicalCluster as it is stored.
type storedCluster struct {
	object   map[string]any
	revision int64
}

func (c *storedCluster) annotations() map[string]string {
	return (&unstructured.Unstructured{Object: c.object}).GetAnnotations()
}

func (c *storedCluster) uid() string {
	return string((&unstructured.Unstructured{Object: c.object}).GetUID())
}

func (c *storedCluster) isDeleting() bool {
	return (&unstructured.Unstructured{Object: c.object}).GetDeletionTimestamp() != nil
}

// isArrivingFor reports whether it is that of the copy of a migration. There may be none.
func (c *storedCluster) isArrivingFor(migration types.UID) bool {
	return c != nil && c.annotations()[corev1alpha1.ArrivingAnnotationKey] == string(migration)
}

// key returns the key of the LogicalCluster of a logical cluster.
func (s *storedClusters) key(cluster logicalcluster.Name) (string, error) {
	resource, err := s.registry.Get(corev1alpha1.Resource("logicalclusters"))
	if err != nil {
		return "", err
	}
	return path.Join("/", s.prefix, resource.Prefix, cluster.String(), corev1alpha1.LogicalClusterName), nil
}

// ownKey returns the key of a LogicalCluster in its logical cluster.
func (s *storedClusters) ownKey() (transfer.Key, error) {
	resource, err := s.registry.Get(logicalClusters)
	if err != nil {
		return transfer.Key{}, err
	}
	return transfer.Key{Resource: resource.Prefix, Name: corev1alpha1.LogicalClusterName}, nil
}

// get reads the LogicalCluster consistently; nil if there is none.
func (s *storedClusters) get(ctx context.Context, cluster logicalcluster.Name) (*storedCluster, error) {
	key, err := s.key(cluster)
	if err != nil {
		return nil, err
	}
	response, err := s.etcd.Get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("reading logical cluster %q: %w", cluster, err)
	}
	if len(response.Kvs) == 0 {
		return nil, nil
	}
	plain, _, err := s.transformer.TransformFromStorage(ctx, response.Kvs[0].Value, value.DefaultContext(key))
	if err != nil {
		return nil, fmt.Errorf("decrypting logical cluster %q: %w", cluster, err)
	}
	stored := &storedCluster{revision: response.Kvs[0].ModRevision}
	if err := exactjson.Unmarshal(plain, &stored.object); err != nil {
		return nil, fmt.Errorf("decoding logical cluster %q: %w", cluster, err)
	}
	return stored, nil
}

// update changes the annotations of a LogicalCluster, and returns the stored object and the revision of the change. It returns
// errors of change unchanged, and errConflict if the conditions do not hold.
func (s *storedClusters) update(ctx context.Context, cluster logicalcluster.Name, change func(*storedCluster, map[string]string) error, conditions ...clientv3.Cmp) (*storedCluster, error) {
	for range maxConflicts {
		stored, err := s.get(ctx, cluster)
		if err != nil {
			return nil, err
		}
		if stored == nil {
			return nil, fmt.Errorf("logical cluster %q: %w", cluster, errConflict)
		}
		annotations := stored.annotations()
		changed := maps.Clone(annotations)
		if changed == nil {
			changed = map[string]string{}
		}
		if err := change(stored, changed); err != nil {
			return nil, err
		}
		if maps.Equal(annotations, changed) {
			return stored, nil
		}
		(&unstructured.Unstructured{Object: stored.object}).SetAnnotations(changed)
		revision, err := s.put(ctx, cluster, stored.object, stored.revision, conditions...)
		if errors.Is(err, errConflict) {
			continue
		}
		if err != nil {
			return nil, err
		}
		stored.revision = revision
		return stored, nil
	}
	return nil, fmt.Errorf("changing logical cluster %q: %w", cluster, errConflict)
}

// put stores a LogicalCluster if the stored one has a revision (0: if there is none), and returns the new one.
func (s *storedClusters) put(ctx context.Context, cluster logicalcluster.Name, object map[string]any, revision int64, conditions ...clientv3.Cmp) (int64, error) {
	return s.putWith(ctx, cluster, object, revision, nil, conditions...)
}

// putWith is put with further operations in the same transaction.
func (s *storedClusters) putWith(ctx context.Context, cluster logicalcluster.Name, object map[string]any, revision int64, more []clientv3.Op, conditions ...clientv3.Cmp) (int64, error) {
	key, err := s.key(cluster)
	if err != nil {
		return 0, err
	}
	plain, err := exactjson.Marshal(object)
	if err != nil {
		return 0, fmt.Errorf("encoding logical cluster %q: %w", cluster, err)
	}
	encrypted, err := s.transformer.TransformToStorage(ctx, plain, value.DefaultContext(key))
	if err != nil {
		return 0, fmt.Errorf("encrypting logical cluster %q: %w", cluster, err)
	}
	response, err := s.etcd.Txn(ctx).
		If(append(conditions, clientv3.Compare(clientv3.ModRevision(key), "=", revision))...).
		Then(append(more, clientv3.OpPut(key, string(encrypted)))...).
		Commit()
	if err != nil {
		return 0, fmt.Errorf("writing logical cluster %q: %w", cluster, err)
	}
	if !response.Succeeded {
		return 0, errConflict
	}
	return response.Header.Revision, nil
}

// delete deletes a LogicalCluster while conditions hold.
func (s *storedClusters) delete(ctx context.Context, cluster logicalcluster.Name, conditions []clientv3.Cmp) error {
	key, err := s.key(cluster)
	if err != nil {
		return err
	}
	response, err := s.etcd.Txn(ctx).If(conditions...).Then(clientv3.OpDelete(key)).Commit()
	if err != nil {
		return fmt.Errorf("deleting logical cluster %q: %w", cluster, err)
	}
	if !response.Succeeded {
		return errConflict
	}
	return nil
}

// unchanged returns the condition that the stored LogicalCluster is the one that was read.
func (s *storedClusters) unchanged(cluster logicalcluster.Name, read *storedCluster) ([]clientv3.Cmp, error) {
	key, err := s.key(cluster)
	if err != nil {
		return nil, err
	}
	return []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", read.revision)}, nil
}

// setOrDelete sets an annotation, or deletes it if the value is empty.
func setOrDelete(annotations map[string]string, key, value string) {
	if value == "" {
		delete(annotations, key)
		return
	}
	annotations[key] = value
}
