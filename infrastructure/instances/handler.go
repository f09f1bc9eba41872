package instances

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// Handler provides the instances of a backend. Calls for different instances are concurrent, those for one are not.
type Handler interface {
	// Apply brings what an instance is made of to its spec, and says how it is. It is called when the instance, its Template or what
	// it is made of changes, and again after State.RecheckAfter. An error is repeated with growing delays; tenants do not see it.
	Apply(ctx context.Context, instance Instance) (State, error)
	// Delete removes what an instance is made of, and reports whether all of it is gone. It is called until it is, and for an instance
	// that exists no longer, of which only the name is known.
	Delete(ctx context.Context, instance Instance) (gone bool, err error)
	// Tenants returns the logical clusters that anything exists of.
	Tenants(ctx context.Context) ([]logicalcluster.Name, error)
	// Purge removes everything of a logical cluster that is gone.
	Purge(ctx context.Context, tenant logicalcluster.Name) error
}

// Instance is one instance. Nothing of it may be changed.
type Instance struct {
	// Cluster is the logical cluster of the tenant.
	Cluster  logicalcluster.Name
	Template *infrastructurev1alpha1.Template
	Object   *unstructured.Unstructured
}

// State is how an instance is.
type State struct {
	// Phase is Pending, Provisioning, Ready or Failed.
	Phase infrastructurev1alpha1.InstancePhase
	// Message is for the tenant. It must have no words of the backend.
	Message string
	// Outputs are fields of the status, such as an endpoint. Values are as JSON is decoded: no integers but int64.
	Outputs map[string]any
	// Connection are credentials and other values that are no part of the status. The platform hands them to the tenant as a Secret, if
	// the tenant accepts that. Keys are those of Secrets. An instance that is ready and has none loses its Secret.
	Connection map[string]string
	// RecheckAfter is when Apply is called again; 0 means that changes are reported by Changed.
	RecheckAfter time.Duration
}
