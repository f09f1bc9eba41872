package replica

import (
	"encoding/hex"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	cachev1alpha1 "github.com/atoll-dev/atoll/api/cache/v1alpha1"
	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// identityBytes is the length of every identity, a SHA-256.
const identityBytes = 32

// Source identifies the objects to replicate: one resource, under an identity, of one logical cluster of another shard.
type Source struct {
	// Resource has the plain name of the resource, in the published version.
	Resource schema.GroupVersionResource
	Identity string
	Shard    string
	Cluster  logicalcluster.Name
}

// storageKey identifies a storage of replicas: all versions of a resource, of whichever shard.
type storageKey struct {
	resource schema.GroupResource
	identity string
}

// sourceKey identifies the replicas of one source.
type sourceKey struct {
	storageKey
	cluster logicalcluster.Name
}

func (s Source) storageKey() storageKey { return storageKey{s.Resource.GroupResource(), s.Identity} }
func (s Source) sourceKey() sourceKey   { return sourceKey{s.storageKey(), s.Cluster} }

// SourceOf returns the source of a ClusterCachedResource of another shard, and whether it is valid: fields of other
// shards become part of URLs and keys.
func SourceOf(cachedResource *cachev1alpha1.ClusterCachedResource) (Source, bool) {
	gvr := cachedResource.Spec.GroupVersionResource
	s := Source{
		Resource: schema.GroupVersionResource{Group: gvr.Group, Version: gvr.Version, Resource: gvr.Resource},
		Identity: cachedResource.Status.IdentityHash,
		Shard:    cachedResource.Annotations[client.ShardAnnotation],
		Cluster:  logicalcluster.Of(cachedResource),
	}
	identity, err := hex.DecodeString(s.Identity)
	valid := err == nil && len(identity) == identityBytes && s.Shard != "" && !s.Cluster.Empty() && !s.Cluster.IsSystem() &&
		(s.Resource.Group == "" || len(validation.IsDNS1123Subdomain(s.Resource.Group)) == 0) &&
		len(validation.IsDNS1035Label(s.Resource.Version)) == 0 && len(validation.IsDNS1123Label(s.Resource.Resource)) == 0
	return s, valid
}
