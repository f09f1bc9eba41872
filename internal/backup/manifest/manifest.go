// Package manifest defines the layout of a backup in its store, and its manifest. docs/backup.md documents both: they must stay readable
// by later versions, and by people with age, zstd and etcdutl.
package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"time"
)

// Version of the format. A change that this version could not read takes another one.
const Version = 1

// Name is the name of the manifest in the folder of a backup. It is written last: a folder without it is no backup.
const Name = "manifest.json"

// Key is the key of an object of a backup.
func Key(id, name string) string { return path.Join(id, name) }

// SnapshotName is the name of the snapshot of a shard, InventoryName that of its inventory, and SecretsName that of the bundle of Secrets.
func SnapshotName(shard string) string { return "shards/" + shard + "/etcd.snapshot.zst.age" }

// InventoryName is the name of the list of the logical clusters and export identities of a shard.
func InventoryName(shard string) string { return "shards/" + shard + "/inventory.jsonl.zst.age" }

// SecretsName is the name of the bundle of Secrets.
const SecretsName = "secrets.tar.zst.age"

// Manifest describes a backup. It is not encrypted, so that backups can be listed and expired without a key, and so contains nothing of
// tenants.
type Manifest struct {
	FormatVersion int    `json:"formatVersion"`
	ID            string `json:"id"`
	// WrittenBy is the version of the program, EtcdVersion that of its libraries of etcd.
	WrittenBy   string `json:"writtenBy"`
	EtcdVersion string `json:"etcdVersion"`

	Installation Installation `json:"installation"`

	StartedAt time.Time `json:"startedAt"`
	StoppedAt time.Time `json:"stoppedAt"`
	// CutStartedAt and CutStoppedAt enclose the moments of the snapshots of all shards.
	CutStartedAt time.Time `json:"cutStartedAt"`
	CutStoppedAt time.Time `json:"cutStoppedAt"`

	// Recipients are the public keys that can open the objects.
	Recipients []string `json:"recipients"`
	Shards     []Shard  `json:"shards"`
	Secrets    *Secrets `json:"secrets,omitempty"`
}

// Installation names what was saved.
type Installation struct {
	KubernetesCluster string `json:"kubernetesCluster,omitempty"`
	Namespace         string `json:"namespace"`
	RootShard         string `json:"rootShard"`
	Version           string `json:"version,omitempty"`
}

// Shard describes what was saved of a shard.
type Shard struct {
	Name string `json:"name"`
	// EtcdClusterID and EtcdVersion are those of the etcd that was saved, Prefix that of the shard's keys in it.
	EtcdClusterID string `json:"etcdClusterID"`
	EtcdVersion   string `json:"etcdVersion"`
	Prefix        string `json:"prefix"`
	// The snapshot contains all writes up to RevisionFrom and none after RevisionTo. The inventory is of RevisionFrom.
	RevisionFrom int64 `json:"revisionFrom"`
	RevisionTo   int64 `json:"revisionTo"`

	Snapshot  Object `json:"snapshot"`
	Inventory Object `json:"inventory"`
	// LogicalClusters and ExportIdentities are the numbers of lines of the inventory.
	LogicalClusters  int64 `json:"logicalClusters"`
	ExportIdentities int64 `json:"exportIdentities"`
}

// Object is an object of the store.
type Object struct {
	Name string `json:"name"`
	// Size and Digest (SHA-256) of the object as it is stored, and of its content.
	Size          int64  `json:"size"`
	Digest        string `json:"digest"`
	ContentSize   int64  `json:"contentSize"`
	ContentDigest string `json:"contentDigest"`
}

// Secrets describes the bundle of Secrets.
type Secrets struct {
	Object Object   `json:"object"`
	Names  []string `json:"names"`
	// Certificates has the SHA-256 fingerprint of each certificate by "Secret/key".
	Certificates map[string]string `json:"certificates,omitempty"`
}

// Line is a line of an inventory. One field is set.
type Line struct {
	LogicalCluster string `json:"logicalCluster,omitempty"`
	// APIExport is "logical cluster/name" of an APIExport with the identity.
	APIExport    string `json:"apiExport,omitempty"`
	IdentityHash string `json:"identityHash,omitempty"`
}

// Encode returns the bytes of a manifest.
func (m *Manifest) Encode() ([]byte, error) {
	content, err := json.MarshalIndent(m, "", "  ")
	return append(content, '\n'), err
}

// maxShards bounds what is decoded of a manifest: an element of a few bytes takes some hundred in memory.
const maxShards = 10_000

// shards is a list of shards whose length is checked, each time that the field occurs.
type shards struct{}

func (shards) UnmarshalJSON(content []byte) error {
	var elements []struct{}
	if err := json.Unmarshal(content, &elements); err != nil {
		return err
	}
	if len(elements) > maxShards {
		return fmt.Errorf("it has %d shards, want at most %d", len(elements), maxShards)
	}
	return nil
}

// Decode reads a manifest. It refuses another version, and names that leave the folder of the backup.
func Decode(content []byte) (*Manifest, error) {
	var version struct {
		FormatVersion int    `json:"formatVersion"`
		Shards        shards `json:"shards"`
	}
	if err := json.Unmarshal(content, &version); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", Name, err)
	}
	if version.FormatVersion != Version {
		return nil, fmt.Errorf("%s has format version %d, this program reads %d: use the version of the program that wrote the backup, or a newer one", Name, version.FormatVersion, Version)
	}
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	out := &Manifest{}
	if err := decoder.Decode(out); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", Name, err)
	}
	for _, shard := range out.Shards {
		if shard.Name == "" || strings.ContainsAny(shard.Name, "/\\") || shard.Snapshot.Name != SnapshotName(shard.Name) || shard.Inventory.Name != InventoryName(shard.Name) {
			return nil, fmt.Errorf("%s is damaged: shard %q has objects of other names", Name, shard.Name)
		}
	}
	if out.Secrets != nil && out.Secrets.Object.Name != SecretsName {
		return nil, fmt.Errorf("%s is damaged: its Secrets are in %q", Name, out.Secrets.Object.Name)
	}
	return out, nil
}

// Size is the sum of the sizes of all objects.
func (m *Manifest) Size() int64 {
	var sum int64
	for _, object := range m.Objects() {
		sum += object.Size
	}
	return sum
}

// Objects are all objects but the manifest.
func (m *Manifest) Objects() []Object {
	var out []Object
	for _, shard := range m.Shards {
		out = append(out, shard.Snapshot, shard.Inventory)
	}
	if m.Secrets != nil {
		out = append(out, m.Secrets.Object)
	}
	return out
}
