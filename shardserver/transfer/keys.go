package transfer

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"

	"github.com/atoll-dev/atoll/logicalcluster"
)

const (
	// incomingSegment is the parent of records, where keys of objects have the API group.
	incomingSegment = "~incoming"
	// nameSegment separates storage prefix and name in the keys of records.
	nameSegment = "~"
	// customResources is the third segment of storages of definitions in logical clusters.
	customResources = "customresources"
)

var (
	resourcePattern = regexp.MustCompile(`^(/[a-z0-9][a-z0-9.-]*){2}(/(` + customResources + `|[0-9a-f]{64}))?$`)
	uidPattern      = regexp.MustCompile(`^[A-Za-z0-9-]{1,63}$`)
)

// checkCluster refuses what is not a single logical cluster of users, and the name whose keys could be those of another storage.
func checkCluster(cluster logicalcluster.Name) error {
	if _, err := logicalcluster.ParseName(cluster.String()); err != nil || cluster.IsSystem() || cluster.String() == customResources {
		return errors.New("it is not a logical cluster that can move")
	}
	return nil
}

// checkKey refuses keys that do not have the form of keys of objects. They come from another shard.
func checkKey(key Key) error {
	if !resourcePattern.MatchString(key.Resource) {
		return fmt.Errorf("%q is not the prefix of a storage", key.Resource)
	}
	segments := strings.Split(key.Name, "/")
	if slices.Contains(segments, "") || slices.Contains(segments, ".") || slices.Contains(segments, "..") {
		return fmt.Errorf("a name of %s is invalid", key.Resource)
	}
	return nil
}

// checkStorage refuses resources whose keys would lie inside of another storage of this shard, or in none. Only those with two segments
// are the same on all shards; those with three come with the APIs of logical clusters.
func checkStorage(resource string, storages []string) error {
	segments := strings.Split(resource, "/")
	builtin := slices.Contains(storages, strings.Join(segments[:3], "/"))
	if builtin != (len(segments) == 3) {
		return fmt.Errorf("this shard has no storage %s", resource)
	}
	return nil
}

// clusterPrefix returns the prefix of the keys of a logical cluster in a storage.
func (t *Transfer) clusterPrefix(cluster logicalcluster.Name, resource string) string {
	return t.prefix + resource + "/" + cluster.String() + "/"
}

// clusterKey returns the key of an object.
func (t *Transfer) clusterKey(cluster logicalcluster.Name, key Key) string {
	return t.clusterPrefix(cluster, key.Resource) + key.Name
}

// transformer returns the transformer of a storage. Without encryption it is that of the stock storage, which refuses values that are
// encrypted.
func (t *Transfer) transformer(resource string) value.Transformer {
	if t.cfg.Transformers == nil {
		return identity.NewEncryptCheckTransformer()
	}
	segments := strings.Split(strings.TrimPrefix(resource, "/"), "/")
	if segments[0] == "core" {
		segments[0] = ""
	}
	return t.cfg.Transformers.TransformerForResource(schema.GroupResource{Group: segments[0], Resource: segments[1]})
}
