package instances

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/shortname"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// ErrUnusableTemplate is returned by Apply where an edit of the Template cannot be used: what runs stays as it is until the Template
// changes.
var ErrUnusableTemplate = errors.New("the Template cannot be used")

// Handler provides the instances of a backend. Calls for different instances are concurrent, those for one are not, but for Delete: Teardown
// may call it while the platform does.
type Handler interface {
	// Apply brings what an instance is made of to its spec, and says how it is. It is called when the instance, its Template or what
	// it is made of changes, and again after State.RecheckAfter. An error is repeated with growing delays; tenants do not see it.
	Apply(ctx context.Context, instance Instance) (State, error)
	// Delete removes what an instance is made of, and reports whether all of it is gone. It is called until it is, and for an instance
	// that exists no longer, of which only the name is known.
	Delete(ctx context.Context, instance Instance) (gone bool, err error)
	// Instances returns the instances that the backend has anything of. Those whose objects vanished while no provider ran are among them:
	// the platform finds out, and has Delete called.
	Instances(ctx context.Context) ([]Identity, error)
	// Tenants returns the logical clusters that anything of this provider exists of.
	Tenants(ctx context.Context) ([]logicalcluster.Name, error)
	// Purge removes everything of a logical cluster that is gone.
	Purge(ctx context.Context, tenant logicalcluster.Name) error
}

// Identity names an instance.
type Identity struct {
	Cluster logicalcluster.Name
	// Template is the name of its Template, Name its own.
	Template, Name string
}

// Instance is one instance. Nothing of it may be changed.
type Instance struct {
	// Cluster is the logical cluster of the tenant.
	Cluster  logicalcluster.Name
	Template *infrastructurev1alpha1.Template
	// Object has no labels and owners, and only the annotation with the logical cluster.
	Object *unstructured.Unstructured
}

// RuntimeName is the name of the instance for the names of what it is made of: itself, or its beginning and a hash. It has at most 40
// characters, so that a Template can add to it: many names are limited to 63.
func (i Instance) RuntimeName() string { return shortname.Of(i.Object.GetName(), runtimeNameLimit) }

// runtimeNameLimit is the limit of RuntimeName.
const runtimeNameLimit = 40

// State is how an instance is.
type State struct {
	// Phase is Pending, Provisioning, Ready or Failed. An instance that has failed stays so while it is provisioned again, until it is
	// ready or its spec changes; one that is provisioned for too long fails.
	Phase infrastructurev1alpha1.InstancePhase
	// Reason is that of the condition Ready, a word in CamelCase, of a failure that ends when the state says nothing of it any more; empty
	// for that of the phase. It must be no word of the backend.
	Reason string
	// Message is for the tenant. It must have no words of the backend.
	Message string
	// Mistake says to the platform operator what in the Template keeps the instance from being ready, with its field. It is logged, and an
	// event of the Template, once the instance has failed. It must have no values of the connection. Tenants do not see it.
	Mistake string
	// Outputs are fields of the status, such as an endpoint. Values are as JSON is decoded: no integers but int64. While an instance is
	// not ready, nil means those that it had.
	Outputs map[string]any
	// Connection are credentials and other values that are no part of the status. The platform hands them to the tenant as a Secret, if
	// the tenant accepts that. Keys are those of Secrets. An instance that is ready and has none loses its Secret.
	Connection map[string]string
	// RecheckAfter is when Apply is called again; 0 means that changes are reported by Changed.
	RecheckAfter time.Duration
}
