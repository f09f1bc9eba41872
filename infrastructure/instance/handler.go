// Package instance is what backends share to serve the instances that tenants create: it watches the kinds of their Templates in all
// workspaces that have bound the export, owns finalizer, status and conditions, retries after errors, and removes the remains of deleted
// workspaces. A backend only implements Handler.
//
// There is one watch for each kind and shard, and one queue for all, which is fair between tenants. No goroutine, watch or cache exists per
// workspace.
package instance

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/shortname"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// ErrUnusableTemplate is returned by Apply if it cannot use an edit of the Template: the objects of instances stay as they are until the
// Template changes.
var ErrUnusableTemplate = errors.New("the Template cannot be used")

// Handler provides the instances of a backend. The platform calls it concurrently for different instances, but not for one instance.
// Delete is an exception: Teardown may call it while the platform does.
type Handler interface {
	// Apply reconciles the objects of an instance with its spec, and returns its state. The platform calls it when the instance, its
	// Template or its objects change, and again after State.RecheckAfter. It retries after an error with exponential backoff; tenants do
	// not see the error.
	Apply(ctx context.Context, instance Instance) (State, error)
	// Delete deletes the objects of an instance, and reports whether all of them are gone. The platform calls it until they are gone. It
	// also calls it for an instance that does not exist; then only the name of the instance is known.
	Delete(ctx context.Context, instance Instance) (gone bool, err error)
	// Instances returns the instances of which the backend has any objects, including instances that were deleted without finalization while
	// no provider was running: the platform detects them, and calls Delete.
	Instances(ctx context.Context) ([]Identity, error)
	// Tenants returns the logical clusters of which this provider has anything.
	Tenants(ctx context.Context) ([]logicalcluster.Name, error)
	// Purge deletes everything of a logical cluster that is gone.
	Purge(ctx context.Context, tenant logicalcluster.Name) error
}

// Identity names an instance.
type Identity struct {
	Cluster logicalcluster.Name
	// Template is the name of the Template; Name is the name of the instance.
	Template, Name string
}

// Instance is one instance. Handlers must not change it.
type Instance struct {
	// Cluster is the logical cluster of the tenant.
	Cluster  logicalcluster.Name
	Template *infrastructurev1alpha1.Template
	// Object has no labels or owners, and only the annotation with the logical cluster.
	Object *unstructured.Unstructured
}

// RuntimeName returns a name for the objects of the instance: the name of the instance, or its beginning and a hash. It has at most 40
// characters, so that a Template can extend it: many names are limited to 63.
func (i Instance) RuntimeName() string { return shortname.Of(i.Object.GetName(), runtimeNameLimit) }

// runtimeNameLimit is the limit of RuntimeName.
const runtimeNameLimit = 40

// State is the observed state of an instance.
type State struct {
	// Phase is Pending, Provisioning, Ready or Failed. A failed instance stays Failed while it is provisioned again, until it is ready or
	// its spec changes. An instance that is provisioned for too long fails.
	Phase infrastructurev1alpha1.InstancePhase
	// Reason is the reason of the condition Ready, in CamelCase, for a failure that ends when a later state omits it; empty means the
	// reason for the phase. It must not name the backend or its concepts.
	Reason string
	// Message is for the tenant. It must not mention the backend or its concepts.
	Message string
	// Mistake describes, for the platform operator, the field of the Template that prevents the instance from becoming ready. When the
	// instance has failed, the platform logs it and records it as an event of the Template. It must not contain values of the connection.
	// Tenants do not see it.
	Mistake string
	// Outputs are fields of the status, such as an endpoint. Values have the types of decoded JSON, with int64 for integers. While an
	// instance is not ready, nil retains its current outputs.
	Outputs map[string]any
	// Connection contains credentials and other values that are not part of the status. The platform writes them to a Secret for the
	// tenant, if the tenant accepts the claim. Keys must be valid keys of Secrets. If a ready instance has none, the platform deletes its
	// Secret.
	Connection map[string]string
	// RecheckAfter is the delay before the platform calls Apply again; 0 means that Changed reports all changes.
	RecheckAfter time.Duration
}
