package doctor

import (
	"cmp"
	"net/http"
	"strings"
	"time"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// Facts are what has been read of an installation. A bundle contains them as JSON: a field may hold names, times, numbers, states and
// addresses, and no text that tenants, containers or other servers have written. Such text has the tag "-".
type Facts struct {
	ReadAt       time.Time `json:"readAt"`
	Installation string    `json:"installation"`
	// Areas has what could not be read.
	Areas map[Area]*Gap `json:"areas,omitempty"`

	// Credentials is the client certificate of the kubeconfig, if it has one, ShardCredentials that of the kubeconfig of the shards.
	Credentials      *Certificate `json:"credentials,omitempty"`
	ShardCredentials *Certificate `json:"shardCredentials,omitempty"`
	Proxy            *Server      `json:"proxy,omitempty"`
	// ShardsUnreadable is set if the installation does not answer the request for its Shards, ShardsError is the text of the error.
	ShardsUnreadable bool   `json:"shardsUnreadable,omitempty"`
	ShardsError      string `json:"-"`

	Shards          []Shard          `json:"shards,omitempty"`
	Servers         []Server         `json:"servers,omitempty"`
	Moves           []Move           `json:"moves,omitempty"`
	Workspaces      []Workspace      `json:"workspaces,omitempty"`
	LogicalClusters []LogicalCluster `json:"logicalClusters,omitempty"`
	Exports         []Export         `json:"exports,omitempty"`
	Slices          []EndpointSlice  `json:"endpointSlices,omitempty"`
	Bindings        []Binding        `json:"bindings,omitempty"`

	Objects      []HostObject      `json:"hostObjects,omitempty"`
	Certificates []HostCertificate `json:"hostCertificates,omitempty"`
	Backups      []Backup          `json:"backups,omitempty"`
	// Leases are those that operators hold while they work.
	Leases []OperatorLease `json:"operatorLeases,omitempty"`
}

// Area is a part of the facts that is read, or not, as a whole.
type Area string

// Areas of facts.
const (
	AreaProxy       Area = "front proxy"
	AreaShards      Area = "shards"
	AreaServers     Area = "servers of shards"
	AreaMoves       Area = "moves"
	AreaReplication Area = "lag of replication"
	AreaTree        Area = "workspaces"
	AreaExports     Area = "exports"
	AreaBindings    Area = "bindings"
	AreaDeep        Area = "all workspaces and bindings"
	AreaHost        Area = "host cluster"
)

// Gap is what is missing of an area.
type Gap struct {
	// Skipped is why nothing of the area has been read.
	Skipped string `json:"skipped,omitempty"`
	// Reason is the text of the error, if there is one.
	Reason string `json:"-"`
	// Unread are the parts that have not been read.
	Unread []Unread `json:"unread,omitempty"`
}

// Unread is a part that has not been read.
type Unread struct {
	What string `json:"what"`
	// Reason is the text of an error, which a server may have written.
	Reason string `json:"-"`
}

// Condition is a condition of any kind.
type Condition struct {
	Type    string    `json:"type"`
	Status  string    `json:"status"`
	Reason  string    `json:"reason,omitempty"`
	Since   time.Time `json:"since"`
	Message string    `json:"-"`
}

// Conditions are the conditions of an object.
type Conditions []Condition

// Get returns a condition, the zero value if it does not exist.
func (c Conditions) Get(conditionType string) Condition {
	for _, condition := range c {
		if condition.Type == conditionType {
			return condition
		}
	}
	return Condition{}
}

// firstFalse returns the first of the conditions that is False.
func (c Conditions) firstFalse(types ...string) (Condition, bool) {
	for _, conditionType := range types {
		if condition := c.Get(conditionType); condition.Status == "False" {
			return condition, true
		}
	}
	return Condition{}, false
}

// Server is what a server of the installation answers.
type Server struct {
	// Name is that of the shard, or "front proxy".
	Name string `json:"name"`
	URL  string `json:"url"`
	// Reachable is false if no response has come.
	Reachable   bool   `json:"reachable"`
	Unreachable string `json:"-"`
	Ready       bool   `json:"ready"`
	// Status is the HTTP status of the request for its readiness.
	Status int `json:"status,omitempty"`
	// untrusted is set if the certificate is of a CA that this client does not know.
	untrusted bool
	// Failing are the names of the readiness checks that fail.
	Failing []string `json:"failing,omitempty"`
	// Version is empty if it has not been read.
	Version string `json:"version,omitempty"`
	// ClockOffset is how far the clock of the server is ahead of that of this machine, Uncertainty by how much it may be wrong.
	ClockOffset time.Duration `json:"clockOffset"`
	Uncertainty time.Duration `json:"uncertainty"`
	// Certificate is what the server presents.
	Certificate *Certificate `json:"certificate,omitempty"`
	// Metrics is nil if they have not been read.
	Metrics Samples `json:"metrics,omitempty"`
}

// isRefusing reports whether the server has refused the credentials, so that nothing is known about its readiness.
func (s *Server) isRefusing() bool {
	return s.Status == http.StatusUnauthorized || s.Status == http.StatusForbidden
}

// Certificate is the validity of a certificate.
type Certificate struct {
	NotBefore time.Time `json:"notBefore"`
	NotAfter  time.Time `json:"notAfter"`
}

// Shard is a Shard object.
type Shard struct {
	Name                string     `json:"name"`
	BaseURL             string     `json:"baseURL"`
	VirtualWorkspaceURL string     `json:"virtualWorkspaceURL"`
	Created             time.Time  `json:"created"`
	Conditions          Conditions `json:"conditions,omitempty"`
	// VirtualWorkspaces is what answers at VirtualWorkspaceURL to anybody.
	VirtualWorkspaces *Server `json:"virtualWorkspaces,omitempty"`
}

// Move is a LogicalClusterMigration in root that has not ended.
type Move struct {
	Name           string     `json:"name"`
	LogicalCluster string     `json:"logicalCluster"`
	From           string     `json:"from,omitempty"`
	To             string     `json:"to"`
	Phase          string     `json:"phase"`
	Conditions     Conditions `json:"conditions,omitempty"`
}

// Object is what all objects of logical clusters have.
type Object struct {
	// Cluster is the name of the logical cluster, Path its path if it is known.
	Cluster  string     `json:"cluster"`
	Path     string     `json:"path,omitempty"`
	Name     string     `json:"name"`
	UID      string     `json:"uid,omitempty"`
	Created  time.Time  `json:"created"`
	Deleting *time.Time `json:"deleting,omitempty"`
}

// String returns the path or name of the logical cluster, and the name.
func (o Object) String() string { return cmp.Or(o.Path, o.Cluster) + "/" + o.Name }

// key identifies an object of a kind.
func (o Object) key() string { return o.Cluster + "/" + o.Name }

// Recheck is the result of reading an object again that seemed to be an orphan.
type Recheck string

// Results of the second read. An object that is no orphan, or was not read again, has none.
const (
	RecheckConfirmed Recheck = "Confirmed"
	RecheckChanged   Recheck = "Changed"
)

// isOfAdministrators reports whether only administrators of the installation can change the object: it is in root or in a logical cluster of
// the system. What tenants can break at will is no error of the installation.
func (o Object) isOfAdministrators() bool {
	return o.Cluster == logicalcluster.Root.String() || strings.HasPrefix(o.Cluster, "system:")
}

// errorOf returns Error for objects of administrators, and otherwise Warning.
func (o Object) errorOf() Severity {
	if o.isOfAdministrators() {
		return SeverityError
	}
	return SeverityWarning
}

// Workspace is a Workspace. Without AreaDeep, those that are Ready are not read.
type Workspace struct {
	Object
	Phase          string     `json:"phase"`
	LogicalCluster string     `json:"logicalCluster,omitempty"`
	IsMount        bool       `json:"isMount,omitempty"`
	Initializers   []string   `json:"initializers,omitempty"`
	Terminators    []string   `json:"terminators,omitempty"`
	Recheck        Recheck    `json:"recheck,omitempty"`
	Conditions     Conditions `json:"conditions,omitempty"`
}

// LogicalCluster is a logical cluster with an owner.
type LogicalCluster struct {
	Object
	// Shard is that which has it.
	Shard        string `json:"shard"`
	OwnerCluster string `json:"ownerCluster"`
	OwnerName    string `json:"ownerName"`
	OwnerUID     string `json:"ownerUID"`
	// IsMoving is set while it may be on two shards.
	IsMoving bool    `json:"isMoving,omitempty"`
	Recheck  Recheck `json:"recheck,omitempty"`
}

// Export is an APIExport.
type Export struct {
	Object
	IdentityHash string     `json:"identityHash,omitempty"`
	Conditions   Conditions `json:"conditions,omitempty"`
}

// EndpointSlice is an APIExportEndpointSlice.
type EndpointSlice struct {
	Object
	// Bases are the addresses of Shards in its endpoints, without the rest of the URLs.
	Bases []string `json:"bases,omitempty"`
	// Foreign is the number of endpoints that are at no address of a Shard. ForeignHosts are these, which users may have written.
	Foreign      int        `json:"foreign,omitempty"`
	ForeignHosts []string   `json:"-"`
	Conditions   Conditions `json:"conditions,omitempty"`
}

// Binding is an APIBinding.
type Binding struct {
	Object
	Phase string `json:"phase"`
	// ExportCluster is empty until it is known.
	ExportCluster string `json:"exportCluster,omitempty"`
	ExportName    string `json:"exportName"`
	// IdentityHashes are those of the bound resources.
	IdentityHashes []string   `json:"identityHashes,omitempty"`
	Conditions     Conditions `json:"conditions,omitempty"`
}

// HostObject is an object of the operator.
type HostObject struct {
	Kind               string     `json:"kind"`
	Namespace          string     `json:"namespace"`
	Name               string     `json:"name"`
	Created            time.Time  `json:"created"`
	Changed            time.Time  `json:"changed"`
	Generation         int64      `json:"generation"`
	ObservedGeneration int64      `json:"observedGeneration"`
	Deleting           *time.Time `json:"deleting,omitempty"`
	Conditions         Conditions `json:"conditions,omitempty"`
}

// String returns kind, namespace and name.
func (o HostObject) String() string { return o.Kind + " " + o.Namespace + "/" + o.Name }

// HostCertificate is a Certificate of cert-manager in a namespace with an installation.
type HostCertificate struct {
	Namespace   string       `json:"namespace"`
	Name        string       `json:"name"`
	Certificate *Certificate `json:"certificate,omitempty"`
	// Renewal is when cert-manager renews it.
	Renewal    *time.Time `json:"renewal,omitempty"`
	Conditions Conditions `json:"conditions,omitempty"`
}

// OperatorLease is the Lease of an operator.
type OperatorLease struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Renewed   time.Time `json:"renewed"`
	// Duration is how long after Renewed another operator may take it.
	Duration time.Duration `json:"duration"`
}

// Backup is a Backup of the operator.
type Backup struct {
	Namespace  string     `json:"namespace"`
	Name       string     `json:"name"`
	RootShard  string     `json:"rootShard"`
	Phase      string     `json:"phase"`
	Created    time.Time  `json:"created"`
	Started    *time.Time `json:"started,omitempty"`
	Conditions Conditions `json:"conditions,omitempty"`
}
