package sharedindex

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/internal/movestate"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// RootShard is the shard whose records define which shards exist.
const RootShard = "root"

// Kind is the kind of a record: the segment of its key after the shard.
type Kind string

// The kinds of records.
const (
	Clusters   Kind = "clusters"   // <cluster>: Cluster
	Workspaces Kind = "workspaces" // <parent cluster>/<name>: Workspace
	Types      Kind = "types"      // <cluster>/<name>: Type, of workspace types with issuers of their own
	Issuers    Kind = "issuers"    // <cluster>/<name>: AuthenticationConfiguration, of WorkspaceAuthenticationConfigurations
	Shards     Kind = "shards"     // <name>: Shard, accepted from the root shard only
)

// Keys of a shard that are not records.
const (
	writerKey   = "writer"   // a random value of the writing replica, which excludes others
	completeKey = "complete" // a random value, present once all records of the shard are written; it changes if etcd loses data
)

// MaxValue bounds one record, in bytes. Larger ones are neither written nor read.
const MaxValue = 256 << 10

// Key identifies a record of one shard.
type Key struct {
	Kind Kind
	// Cluster is the logical cluster of the record or of its object; empty for Shards.
	Cluster logicalcluster.Name
	// Name is the name of the object; empty for Clusters.
	Name string
}

// Cluster is the record of a logical cluster on the shard.
type Cluster struct {
	// Type is its workspace type, "<path>:<name>".
	Type string `json:"type,omitempty"`
	// MovedTo is the shard to which this shard has handed the logical cluster over.
	MovedTo string `json:"movedTo,omitempty"`
}

// Workspace is the record of the destination of a workspace.
type Workspace struct {
	// Cluster is its logical cluster, Shard the shard of that. Mount is the URL of a mounted workspace, which has no
	// cluster.
	Cluster     string `json:"cluster,omitempty"`
	Shard       string `json:"shard,omitempty"`
	Mount       string `json:"mount,omitempty"`
	Unavailable bool   `json:"unavailable,omitempty"`
}

// Type is the record of a workspace type: the names of its authentication configurations in its logical cluster.
type Type struct {
	Configurations []string `json:"configurations"`
}

// AuthenticationConfiguration is the record of an authentication configuration.
type AuthenticationConfiguration struct {
	JWT []tenancyv1alpha1.JWTAuthenticator `json:"jwt"`
}

// Shard is the record of a Shard object.
type Shard struct {
	BaseURL string            `json:"baseURL,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
}

// LogicalCluster returns the record of a logical cluster with these annotations; ok is false if the shard is the
// destination of a move and has not stored the complete content yet. Proxies that watch shards use it, too.
func LogicalCluster(annotations map[string]string) (c Cluster, ok bool) {
	return Cluster{
		Type:    annotations[corev1alpha1.LogicalClusterTypeAnnotationKey],
		MovedTo: annotations[corev1alpha1.MovedToAnnotationKey],
	}, movestate.Of(annotations) != movestate.Arriving
}

// WorkspaceDestination returns the record of a workspace with this phase, spec.cluster, shard annotation, spec.URL and
// spec.mount; ok is false if the workspace has no destination (yet). Proxies that watch shards use it, too.
func WorkspaceDestination(phase, cluster, shard, url string, mounted bool) (w Workspace, ok bool) {
	if phase == "" || phase == "Scheduling" {
		return Workspace{}, false
	}
	w.Unavailable = phase == "Unavailable"
	switch {
	case cluster != "":
		w.Cluster, w.Shard = cluster, shard
	case mounted:
		w.Mount = url
	}
	return w, w.Cluster != "" || w.Mount != "" || w.Unavailable
}

// Encode returns the value of a record.
func Encode(record any) ([]byte, error) {
	value, err := json.Marshal(record)
	if err != nil {
		return nil, err
	}
	if len(value) > MaxValue {
		return nil, fmt.Errorf("got %d bytes, at most %d are allowed", len(value), MaxValue)
	}
	return value, nil
}

// Decode returns the record of a value. It ignores unknown fields, which are those of later versions.
func Decode[T any](value []byte) (record T, err error) {
	if len(value) > MaxValue {
		return record, fmt.Errorf("got %d bytes, at most %d are allowed", len(value), MaxValue)
	}
	err = json.Unmarshal(value, &record)
	return record, err
}

// path returns the key below the shard's own prefix.
func (k Key) path() string {
	switch k.Kind {
	case Clusters:
		return string(k.Kind) + "/" + k.Cluster.String()
	case Shards:
		return string(k.Kind) + "/" + k.Name
	}
	return string(k.Kind) + "/" + k.Cluster.String() + "/" + k.Name
}

// parsePath is the inverse of path. It fails for keys that are not records and for kinds of later versions.
func parsePath(path string) (Key, error) {
	kind, rest, _ := strings.Cut(path, "/")
	k := Key{Kind: Kind(kind)}
	cluster := rest
	switch k.Kind {
	case Clusters:
	case Shards:
		cluster, k.Name = "", rest
	case Workspaces, Types, Issuers:
		cluster, k.Name, _ = strings.Cut(rest, "/")
	default:
		return Key{}, fmt.Errorf("key %q: unknown kind", path)
	}
	if k.Kind != Clusters && (k.Name == "" || strings.Contains(k.Name, "/")) {
		return Key{}, fmt.Errorf("key %q: got name %q", path, k.Name)
	}
	if k.Kind == Shards {
		return k, nil
	}
	var err error
	if k.Cluster, err = logicalcluster.ParseName(cluster); err != nil {
		return Key{}, fmt.Errorf("key %q: %w", path, err)
	}
	return k, nil
}
