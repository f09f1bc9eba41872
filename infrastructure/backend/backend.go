// Package backend is the boundary between the platform and the backends that provide instances. The platform does not depend on any
// backend, and backends do not depend on the export, the catalogue or tenants' access.
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
	// Name returns the value of spec.backend of its Templates.
	Name() string
	// SetupTemplate prepares for instances of a Template, before the provider exports its kind. The provider calls it at every
	// reconciliation and after every restart, so it must be idempotent. It validates backendConfig: if that is invalid, it returns no
	// error but a Status that is not ready, with a message that names the field. The provider retries after an error. SetupTemplate must
	// not change the Template.
	SetupTemplate(ctx context.Context, template *infrastructurev1alpha1.Template) (Status, error)
	// TeardownTemplate removes what SetupTemplate created, and what remains of instances that disappeared without being finalized;
	// instance.Teardown does the latter. The provider calls it when no instance is provided, because the Template is deleted or another
	// backend takes over. It calls it for Templates that were never set up, too. It must be idempotent. After an error the provider calls
	// it again, soon if the error is an InstancesLeftError.
	TeardownTemplate(ctx context.Context, template *infrastructurev1alpha1.Template) error
	// Run provides instances until the context ends. export is the client configuration of the provider's workspace. An error
	// before the context ends is fatal for the process.
	Run(ctx context.Context, export *rest.Config) error
}

// Status is the result of the set-up of a Template by a backend.
type Status struct {
	// Ready means that instances can be provided. If it is false, the Template must be changed; backends return transient problems as errors.
	Ready bool
	// Message is the reason why Ready is false, for the platform operator.
	Message string
}

// InstancesLeftError describes instances that are still being deleted. It is not a failure: the caller waits and tries again.
type InstancesLeftError struct{ Message string }

func (e *InstancesLeftError) Error() string { return e.Message }

// AnnotationAbandon returns the annotation of a deleted Template whose instances the provider releases without their backend: their
// objects stay as they are.
func AnnotationAbandon(group string) string { return group + "/abandon-instances" }

// AnnotationMigrate returns the annotation of a Template whose instances another backend may take over. The migration loses their data.
func AnnotationMigrate(group string) string { return group + "/migrate-backend" }

// Registry contains the backends of a process, by name.
type Registry struct {
	backends map[string]Backend
}

// Register adds a backend. Names must be unique and not empty.
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
