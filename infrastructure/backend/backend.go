// Package backend is the boundary between the platform and what provides instances. The platform knows no backend, and a backend
// knows nothing of the export, the catalogue or tenants' access.
package backend

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/client-go/rest"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
)

// Backend provides the instances of the Templates that name it.
type Backend interface {
	// Name is the value of spec.backend of its Templates.
	Name() string
	// SetupTemplate prepares instances of a Template, before its kind is exported. It is called at every reconciliation and
	// after every restart, so it is idempotent. It validates backendConfig: a mistake there is not an error but a Status
	// that is not ready, with a message that names the field. An error is retried. It must not change the Template.
	SetupTemplate(ctx context.Context, template *infrastructurev1alpha1.Template) (Status, error)
	// TeardownTemplate removes what SetupTemplate made, and what is left of instances that vanished without having been finalized:
	// instances.Teardown does the latter. It is called once no instance is provided any more, because the Template is deleted or another
	// backend takes over, and for Templates that were never set up, too. It is idempotent. An error means that something is left: it is
	// called again, soon if the error is an InstancesLeftError.
	TeardownTemplate(ctx context.Context, template *infrastructurev1alpha1.Template) error
	// Run provides instances until the context ends. export is the client configuration of the provider's workspace. An error
	// before the context ends is fatal for the process.
	Run(ctx context.Context, export *rest.Config) error
}

// Status is what a backend says about a Template.
type Status struct {
	// Ready means that instances can be provided. If not, the Template must be changed; what passes by itself is an error.
	Ready bool
	// Message says why not, in words for the platform operator.
	Message string
}

// InstancesLeftError says what is left of instances. It is no failure: it goes, and is waited for.
type InstancesLeftError struct{ Message string }

func (e *InstancesLeftError) Error() string { return e.Message }

// AnnotationAbandon returns the annotation of a deleted Template whose instances are let go without their backend: what they are made of
// stays as it is.
func AnnotationAbandon(group string) string { return group + "/abandon-instances" }

// AnnotationMigrate returns the annotation of a Template whose instances another backend may take over, which loses what is in them.
func AnnotationMigrate(group string) string { return group + "/migrate-backend" }

// Registry holds the backends of a process, by name.
type Registry struct {
	backends map[string]Backend
}

// Register adds a backend. Names are not empty and unique.
func (r *Registry) Register(b Backend) error {
	name := b.Name()
	if name == "" {
		return fmt.Errorf("backend %T has no name", b)
	}
	if r.backends[name] != nil {
		return fmt.Errorf("two backends are named %q", name)
	}
	if r.backends == nil {
		r.backends = map[string]Backend{}
	}
	r.backends[name] = b
	return nil
}

// Get returns the backend of that name, and whether it is registered.
func (r *Registry) Get(name string) (Backend, bool) {
	b, ok := r.backends[name]
	return b, ok
}

// Names returns the names of all backends, sorted.
func (r *Registry) Names() []string { return slices.Sorted(maps.Keys(r.backends)) }
