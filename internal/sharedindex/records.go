package sharedindex

import (
	"encoding/json"
	"fmt"
	"strings"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// RootShard is the shard whose word on shards counts.
const RootShard = "root"

// Kind is what a record is about: the segment of its key behind the shard.
type Kind string

// The kinds of records.
const (
	Clusters   Kind = "clusters"   // <cluster>: Cluster
	Workspaces Kind = "workspaces" // <parent cluster>/<name>: Workspace
	Types      Kind = "types"      // <cluster>/<name>: Type, of workspace types with issuers of their own
	Issuers    Kind = "issuers"    // <cluster>/<name>: IssuersOf, of WorkspaceAuthenticationConfigurations
	Shards     Kind = "shards"     // <name>: Shard, believed of the root shard alone
)

// Keys of a shard that are no records.
const (
	writerKey   = "writer"   // who writes: what lets only one replica of a shard do so
	completeKey = "complete" // there once every record of the shard was written; a random value, so that an etcd that lost it is noticed
)

// MaxValue bounds one record, in bytes. Larger ones are neither written nor read.
const MaxValue = 256 << 10

// Key addresses a record of one shard.
type Key struct {
	Kind Kind
	// Cluster is the logical cluster that the record is about, or that the object is in; empty for Shards.
	Cluster logicalcluster.Name
	// Name is the name of the object; empty for Clusters.
	Name string
}

// Cluster says that the shard has a logical cluster.
type Cluster struct {
	// Type is its workspace type, "<path>:<name>".
	Type string `json:"type,omitempty"`
}

// Workspace says where a workspace leads.
type Workspace struct {
	// Cluster is its logical cluster, and Shard where that was put; Mount is the URL of one that is mounted and has none.
	Cluster     string `json:"cluster,omitempty"`
	Shard       string `json:"shard,omitempty"`
	Mount       string `json:"mount,omitempty"`
	Unavailable bool   `json:"unavailable,omitempty"`
}

// Type names the authentication configurations of a workspace type, in its logical cluster.
type Type struct {
	Configurations []string `json:"configurations"`
}

// IssuersOf are those of one authentication configuration.
type IssuersOf struct {
	JWT []tenancyv1alpha1.JWTAuthenticator `json:"jwt"`
}

// Shard says how a shard is reached, and how it is chosen.
type Shard struct {
	BaseURL string            `json:"baseURL,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
}

// Lead returns what the index says of a workspace with this phase, spec.cluster, annotation of its shard, spec.URL and
// spec.mount; ok is false for one that leads nowhere (yet). It is the one place that knows: proxies that watch shards ask
// it, too.
func Lead(phase, cluster, shard, url string, mounted bool) (w Workspace, ok bool) {
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

// Decode reads the value of a record. Fields that it does not know are of a later version, and left out.
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

// parsePath is the inverse of path. It fails for what is no record, or of a kind that this version does not know.
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

// space is where keys lie in etcd.
type space struct{ prefix string }

// all is the prefix of every key, shard that of one shard's.
func (s space) all() string               { return s.prefix + "/" }
func (s space) shard(shard string) string { return s.prefix + "/" + shard + "/" }

// split takes a key apart: the shard that wrote it, and what is behind.
func (s space) split(key string) (shard, path string, ok bool) {
	rest, ok := strings.CutPrefix(key, s.all())
	if !ok {
		return "", "", false
	}
	shard, path, ok = strings.Cut(rest, "/")
	return shard, path, ok && shard != "" && path != ""
}
