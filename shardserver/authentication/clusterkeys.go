package authentication

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/kubernetes/pkg/serviceaccount"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/internal/movestate"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/tokenkeys"
)

// clusterReader reads LogicalClusters from the watch cache.
type clusterReader struct {
	clusters *storage.Reader[*corev1alpha1.LogicalCluster]
}

func newClusterReader(registry *storage.Registry) clusterReader {
	return clusterReader{storage.NewReader[*corev1alpha1.LogicalCluster](registry, corev1alpha1.Resource("logicalclusters"))}
}

// get returns the LogicalCluster of the context; nil if there is none.
func (r clusterReader) get(ctx context.Context) (*corev1alpha1.LogicalCluster, error) {
	cluster, err := r.clusters.Get(ctx, "", corev1alpha1.LogicalClusterName)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return cluster, err
}

// isHere reports whether this shard serves a logical cluster. It serves neither the remains of one that has moved, nor an incomplete copy
// of one that moves here: another shard decides about its tokens.
func (r clusterReader) isHere(ctx context.Context, name logicalcluster.Name) (bool, error) {
	if name.IsSystem() {
		return true, nil
	}
	cluster, err := r.get(logicalcluster.With(ctx, name))
	return cluster != nil && !isElsewhere(cluster), err
}

// isElsewhere reports whether another shard serves a logical cluster of which this shard has the object.
func isElsewhere(cluster *corev1alpha1.LogicalCluster) bool {
	return movestate.Of(cluster.Annotations).IsHidden()
}

// clusterKeys are the keys with which service account tokens of the context's logical cluster may be signed: those of this shard, and
// those of the shards that had the logical cluster before. While another shard serves the logical cluster, there are none.
type clusterKeys struct {
	serviceaccount.PublicKeysGetter // of this shard

	reader clusterReader
	// oldest is the lowest generation of keys that are not retired.
	oldest int32
	// now returns the time for keys that expire; zero for tokens that do not.
	now func() time.Time
}

func newClusterKeys(shard serviceaccount.PublicKeysGetter, oldest int32, registry *storage.Registry) clusterKeys {
	return clusterKeys{PublicKeysGetter: shard, reader: newClusterReader(registry), oldest: oldest, now: time.Now}
}

// withoutExpiry returns the keys for tokens of Secrets. These tokens do not expire; the Secret must contain exactly the token, so
// that an old key cannot sign another one.
func (k clusterKeys) withoutExpiry() clusterKeys {
	k.now = func() time.Time { return time.Time{} }
	return k
}

// GetPublicKeys implements serviceaccount.PublicKeysGetter.
func (k clusterKeys) GetPublicKeys(ctx context.Context, keyID string) []serviceaccount.PublicKey {
	keys := k.PublicKeysGetter.GetPublicKeys(ctx, keyID)
	cluster, err := k.reader.get(ctx)
	switch {
	case err != nil || cluster == nil:
		return keys // the account is looked up next
	case isElsewhere(cluster):
		return nil
	}
	moved := tokenkeys.Find(cluster.Annotations[corev1alpha1.TokenKeysAnnotationKey], keyID, k.oldest, k.now())
	return append(keys[:len(keys):len(keys)], moved...)
}
