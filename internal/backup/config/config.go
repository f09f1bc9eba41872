// Package config is the interface between the operator and a run of a backup: the file with what the program saves and where,
// and the report that it leaves behind. It connects to nothing.
package config

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"sigs.k8s.io/yaml"
)

// Backup is the file of the flag --config of `etcd backup create`. The commands `list`, `verify`, `restore` and `secrets` read its store only.
type Backup struct {
	// ID is what the name of the backup in the store begins with; it sorts by time.
	ID string `json:"id,omitempty"`
	// Installation is what is saved.
	Installation Installation `json:"installation,omitzero"`
	Store        Store        `json:"store"`
	Shards       []Shard      `json:"shards,omitempty"`
	Secrets      []Secret     `json:"secrets,omitempty"`
}

// Installation names an installation among all.
type Installation struct {
	// KubernetesCluster is the UID of the namespace kube-system.
	KubernetesCluster string `json:"kubernetesCluster,omitempty"`
	Namespace         string `json:"namespace"`
	RootShard         string `json:"rootShard"`
	// Version is the image of the servers.
	Version string `json:"version,omitempty"`
}

// Store is an S3 bucket, with credentials in files, which are read for each request so that they can be rotated.
type Store struct {
	EndpointURL string `json:"endpointURL"`
	Bucket      string `json:"bucket"`
	// Prefix is put before all keys; it is that of one installation.
	Prefix string `json:"prefix,omitempty"`
	// Region is us-east-1 by default.
	Region string `json:"region,omitempty"`
	// AddressingStyle is Path or VirtualHosted, by default Path.
	AddressingStyle string `json:"addressingStyle,omitempty"`
	// EndpointCAFile is a bundle of certificates that is trusted instead of public CAs.
	EndpointCAFile      string `json:"endpointCAFile,omitempty"`
	AccessKeyIDFile     string `json:"accessKeyIDFile"`
	SecretAccessKeyFile string `json:"secretAccessKeyFile"`
	SessionTokenFile    string `json:"sessionTokenFile,omitempty"`
	// Recipients are public keys of age. Everything but manifests is encrypted to all of them.
	Recipients []string `json:"recipients,omitempty"`
	// UploadBytesPerSecond limits all uploads together; 0 is no limit.
	UploadBytesPerSecond int64 `json:"uploadBytesPerSecond,omitempty"`
	// ObjectLock locks objects when they are stored; nil leaves that to the bucket.
	ObjectLock *ObjectLock `json:"objectLock,omitempty"`
}

// ObjectLock is how, and how long, objects are locked.
type ObjectLock struct {
	// Mode is Governance or Compliance.
	Mode string `json:"mode"`
	// RetainSeconds is how long an object is locked after it was stored.
	RetainSeconds int64 `json:"retainSeconds"`
}

// Addressing styles of a store.
const (
	AddressingPath          = "Path"
	AddressingVirtualHosted = "VirtualHosted"
)

// Shard is the etcd of a shard.
type Shard struct {
	Name      string   `json:"name"`
	Endpoints []string `json:"endpoints"`
	// Prefix of the keys of the shard.
	Prefix string `json:"prefix"`
	// CredentialsDirectory has ca.crt, tls.crt and tls.key; none for an etcd without TLS.
	CredentialsDirectory string `json:"credentialsDirectory,omitempty"`
}

// Secret is a Secret of the installation, with its data as files of a directory. Its labels and annotations are saved because
// cert-manager issues a certificate again if they are missing.
type Secret struct {
	Name        string            `json:"name"`
	Type        string            `json:"type,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Directory   string            `json:"directory"`
}

// Result is the report of a backup. A pod has room for four kilobytes of it, so it does not grow with the installation: details of each
// shard are in the manifest.
type Result struct {
	// Error is why there is no backup, with the next step; no other field is set.
	Error string `json:"error,omitempty"`

	// BackupID is the name of the backup in the store, DestinationPath its folder for people.
	BackupID        string `json:"backupId,omitempty"`
	DestinationPath string `json:"destinationPath,omitempty"`

	StartedAt time.Time `json:"startedAt,omitzero"`
	StoppedAt time.Time `json:"stoppedAt,omitzero"`
	// ManifestDigest is the SHA-256 digest of the manifest: a person who has it detects a backup that was replaced.
	ManifestDigest string `json:"manifestDigest,omitempty"`
	// Size is the sum of the objects in the store, SnapshotSize that of the databases.
	Size         int64 `json:"size,omitempty"`
	SnapshotSize int64 `json:"snapshotSize,omitempty"`
	Shards       int   `json:"shards,omitempty"`
	// LogicalClusters is the number of logical clusters of all shards.
	LogicalClusters int64 `json:"logicalClusters,omitempty"`
	Secrets         int   `json:"secrets,omitempty"`
	// Workspace is what was restored of a workspace, for people.
	Workspace string `json:"workspace,omitempty"`
	// TakenAt is the time of the data that was restored.
	TakenAt time.Time `json:"takenAt,omitzero"`
}

// maxResultBytes is what Kubernetes keeps of a termination message.
const maxResultBytes = 4096

// Load reads a configuration. Unknown fields are errors: a typing error must not leave a limit or a shard out.
func Load(file string) (*Backup, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	out := &Backup{}
	if err := yaml.UnmarshalStrict(content, out); err != nil {
		return nil, fmt.Errorf("reading the configuration %s: %w", file, err)
	}
	return out, nil
}

// Write writes a result to a file. A long error is cut.
func (r Result) Write(file string) error {
	for {
		content, err := json.Marshal(r)
		if err != nil {
			return err
		}
		if len(content) <= maxResultBytes {
			return os.WriteFile(file, content, 0o600)
		}
		r.Error = r.Error[:len(r.Error)*3/4]
	}
}

// ParseResult reads the termination message of a run.
func ParseResult(message string) (Result, error) {
	var out Result
	err := json.Unmarshal([]byte(message), &out)
	return out, err
}
