package migration

import (
	"encoding/json"
	"path"

	"k8s.io/apimachinery/pkg/types"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/transfer"
	"github.com/atoll-dev/atoll/shardserver/usage"
)

// workspaceName is the name of the virtual workspace of an origin. Its path is
// /services/migratingworkspaces/clusters/<logical cluster>/transfer/<cluster of the migration>/<name of the migration>/<operation>.
const workspaceName = "migratingworkspaces"

// operation is a request of the destination to the origin. Both are JSON, by POST.
type operation string

// The operations, in the order in which a destination uses them.
const (
	opChanges  operation = "changes"  // changesRequest -> changesResponse: the origin follows the logical cluster from then on
	opEntries  operation = "entries"  // entriesRequest -> entriesResponse
	opPause    operation = "pause"    // nothing -> pauseResponse: writes are refused until then
	opResume   operation = "resume"   // nothing -> nothing: ends the pause
	opHandOver operation = "handover" // handOverRequest -> handOverResponse: the origin no longer has the logical cluster
)

// Limits of a request for entries. JSON may need six bytes for one of a name, which some kinds of objects do not limit but by what etcd stores.
const (
	maxKeysPerRequest     = 500
	maxKeyBytesPerRequest = 1 << 20
	maxRequestBytes       = 16 << 20
)

type changesRequest struct {
	// Following is that of an earlier response; "" begins another one. Since is the revision of the last response, 0 asks for all keys.
	Following string `json:"following,omitempty"`
	Since     int64  `json:"since,omitempty"`
}

type changesResponse struct {
	// Following names what the origin remembers for the destination.
	Following string `json:"following"`
	// Changes is nil while the origin reads the values for the first time: the destination asks again.
	Changes *transfer.Changes `json:"changes,omitempty"`
}

type entriesRequest struct {
	Following string         `json:"following"`
	Keys      []transfer.Key `json:"keys"`
}

type entriesResponse struct {
	// Entries may be fewer than were requested: some are gone, or the response is full. Rest are the keys that did not fit.
	Entries []transfer.Entry `json:"entries"`
	Rest    []transfer.Key   `json:"rest,omitempty"`
}

type pauseResponse struct {
	// Token identifies the pause.
	Token string `json:"token"`
}

type handOverRequest struct {
	// Token is that of the pause, Digest that of all objects that the destination has after the last changes of the following, without the
	// LogicalCluster.
	Token     string          `json:"token"`
	Following string          `json:"following"`
	Digest    transfer.Digest `json:"digest"`
}

type handOverResponse struct {
	// Cluster is the LogicalCluster as it was stored, and Epoch its number of moves after this one.
	Cluster json.RawMessage `json:"cluster"`
	Epoch   int64           `json:"epoch"`
	// ParentShard is the shard of the Workspace.
	ParentShard string `json:"parentShard"`
	// Usage is what the clients of the logical cluster have used, by month. Older shards hand over none.
	Usage map[string]usage.Counts `json:"usage,omitempty"`
}

// operationPath returns the path of an operation, relative to the URL of the origin's virtual workspaces.
func operationPath(cluster logicalcluster.Name, migration controller.Request, op operation) string {
	return path.Join("/services", workspaceName, "clusters", cluster.String(), "transfer", migration.ClusterName.String(), migration.Name, string(op))
}

// existsResponse is the answer of the shard that stores migrations, at existsPath, to any shard.
type existsResponse struct {
	Exists bool `json:"exists"`
}

// existsPath returns the path at which the shard that stores migrations says whether one exists.
func existsPath(migration controller.Request, uid types.UID) string {
	return path.Join("/services", workspaceName, "clusters", logicalcluster.Root.String(), "exists", migration.ClusterName.String(), migration.Name, string(uid))
}
