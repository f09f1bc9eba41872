// Package workspacerestore is the interface between the program that reads one workspace from a backup and the shard that takes it back: keys below
// "<prefix>/~restoring/" in the etcd of the shard, which no storage reads. Whoever may write there has the certificates of that etcd.
//
// The program writes a Request. The shard checks it, and answers with a Report in the state Ready. The program then writes the objects as they are in
// the backup, and the Request again with Complete. The shard copies the objects to where they belong, and reports. All keys of the program have its lease:
// what it leaves behind when it is killed expires, and a request that has expired restores nothing.
package workspacerestore

import (
	"path"
	"regexp"
	"strings"

	"github.com/atoll-dev/atoll/internal/reservedkeys"
)

// IDPrefix is what the ID of a restore begins with, so that it differs from the UID of a LogicalClusterMigration.
const IDPrefix = "restore-"

// IDPattern is that of the ID of a restore. With what the shard adds for each attempt, it is a UID.
var IDPattern = regexp.MustCompile("^" + IDPrefix + "[A-Za-z0-9-]{1,40}$")

// MaxBytes bounds the objects of a workspace: for a while, etcd has them twice.
const MaxBytes = 64 << 20

// Request is what the program wants.
type Request struct {
	// ID is unique among all restores of workspaces.
	ID string `json:"id"`
	// Backup is the ID of the backup.
	Backup string `json:"backup"`
	// Path of the workspace, for people.
	Path           string `json:"path"`
	LogicalCluster string `json:"logicalCluster"`
	// Parent is the logical cluster of the Workspace, and ParentUID the UID that its LogicalCluster has in the backup.
	Parent    string `json:"parent"`
	ParentUID string `json:"parentUID"`
	// WorkspaceKey is the key of the Workspace in the backup: that of the same shard is the same.
	WorkspaceKey string `json:"workspaceKey"`
	// Keys and Bytes are the number and the size of all objects, the Workspace not included.
	Keys  int   `json:"keys"`
	Bytes int64 `json:"bytes"`
	// Complete is whether all objects are there.
	Complete bool `json:"complete,omitempty"`
}

// State is that of a restore, as the shard reports it.
type State string

// States of a restore. The last two are final.
const (
	Ready     State = "Ready"   // for the objects
	Waiting   State = "Waiting" // the message says for what; the shard tries again
	Copying   State = "Copying"
	Completed State = "Completed"
	Failed    State = "Failed" // nothing is left of it
)

// Report is what the shard says about a Request.
type Report struct {
	ID    string `json:"id"`
	State State  `json:"state"`
	// Copied is the number of objects that are copied.
	Copied int `json:"copied,omitempty"`
	// Message says why the restore has failed or waits, and what to do.
	Message string `json:"message,omitempty"`
}

// IsFinal reports whether the shard has nothing more to say.
func (r Report) IsFinal() bool { return r.State == Completed || r.State == Failed }

// storagePattern is that of the prefixes of storages.
var storagePattern = regexp.MustCompile(`^(/[a-z0-9][a-z0-9.-]*){2}(/(customresources|[0-9a-f]{64}))?$`)

const nameSegment = "/~/"

// Keys are the keys of a shard.
type Keys struct{ base string }

// At returns the keys of the shard with a prefix.
func At(prefix string) Keys { return Keys{reservedkeys.Restoring(prefix) + "/"} }

// Request has the Request. It exists while a program runs, which is one at a time.
func (k Keys) Request() string { return k.base + "request" }

// Report has the Report of the shard.
func (k Keys) Report() string { return k.base + "report" }

// Workspace has the Workspace, as it is in the backup.
func (k Keys) Workspace() string { return k.base + "workspace" }

// Content is the prefix of the other objects, as they are in the backup.
func (k Keys) Content() string { return k.base + "content/" }

// Object is the key of an object, which has a storage prefix and a name as in package transfer.
func (k Keys) Object(storage, name string) string {
	return k.base + "content" + storage + nameSegment + name
}

// ParseObject is the inverse of Object.
func (k Keys) ParseObject(key string) (storage, name string, ok bool) {
	rest, ok := strings.CutPrefix(key, k.base+"content")
	if !ok {
		return "", "", false
	}
	storage, name, ok = strings.Cut(rest, nameSegment)
	return storage, name, ok && storagePattern.MatchString(storage) && name != ""
}

// Claims is the prefix of the keys with the ID of the attempt in which the shard has begun to copy a logical cluster. They have no lease: the shard
// removes the key when nothing is left of the copy, or it is open.
func (k Keys) Claims() string { return k.base + "claims/" }

// Claim is the key of a logical cluster below Claims.
func (k Keys) Claim(logicalCluster string) string { return k.Claims() + logicalCluster }

// Opening is a key that exists while the attempt that has claimed a logical cluster may write for it: whoever removes the copy removes this key first.
func (k Keys) Opening(logicalCluster string) string { return k.base + "opening/" + logicalCluster }

// SplitKey returns the storage prefix, the logical cluster and the name of a key of an object below the prefix of a shard.
func SplitKey(prefix, key string) (storage, logicalCluster, name string, ok bool) {
	rest, ok := strings.CutPrefix(key, path.Join("/", prefix)+"/")
	if !ok || strings.HasPrefix(rest, "~") {
		return "", "", "", false
	}
	segments := strings.SplitN(rest, "/", 5)
	if len(segments) < 4 {
		return "", "", "", false
	}
	at := 2 // of the logical cluster
	if storagePattern.MatchString("/" + strings.Join(segments[:3], "/")) {
		at = 3
	}
	if len(segments) < at+2 {
		return "", "", "", false
	}
	storage = "/" + strings.Join(segments[:at], "/")
	return storage, segments[at], strings.Join(segments[at+1:], "/"), storagePattern.MatchString(storage)
}
