// Package definitions creates and deletes the CustomResourceDefinitions that serve APIResourceSchemas, in the logical
// cluster system:bound-crds: one per schema, for all logical clusters that bind it. Manager creates the definitions that
// bindings need, a controller those that exports claim, and another controller deletes unused ones.
//
// The package must not serve resources: that is for package customresources.
package definitions

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	ownapiextensions "github.com/atoll-dev/atoll/shardserver/apis/apiextensions"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// Config holds the dependencies of the package.
type Config struct {
	Registry *storage.Registry
	// Client writes through the shard's own API.
	Client  client.Client
	Exports *apiindex.Resolver
	// Bindings indexes the bound schemas.
	Bindings *bindings.Index
	Clock    clock.PassiveClock
}

// Manager creates definitions of schemas. It records the last use of each existing definition.
type Manager struct {
	cfg    Config
	reader *storage.Reader[*apiextensions.CustomResourceDefinition]

	mu sync.Mutex
	// lastUsed is the time of the last Ensure by UID of the schema. The index of bindings may lag behind it.
	lastUsed map[types.UID]time.Time
	// deleting are the definitions with a delete request in flight.
	deleting sets.Set[types.UID]
	// exportsByIdentity are the exports that claim resources with an identity; identitiesByExport is the inverse.
	exportsByIdentity  map[string]sets.Set[bindings.ExportKey]
	identitiesByExport map[bindings.ExportKey]sets.Set[string]
}

// New returns a Manager. All controllers of a process share one.
func New(cfg Config) *Manager {
	return &Manager{
		cfg:                cfg,
		reader:             storage.NewReader[*apiextensions.CustomResourceDefinition](cfg.Registry, ownapiextensions.Definitions),
		lastUsed:           map[types.UID]time.Time{},
		deleting:           sets.New[types.UID](),
		exportsByIdentity:  map[string]sets.Set[bindings.ExportKey]{},
		identitiesByExport: map[bindings.ExportKey]sets.Set[string]{},
	}
}

// InvalidError means that a schema cannot be converted to a valid definition. It is permanent: schemas are immutable.
type InvalidError struct{ err error }

// Error implements error.
func (e InvalidError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e InvalidError) Unwrap() error { return e.err }

// Ensure creates the definition of a schema unless it exists, and reports whether it is established. It fails with an
// InvalidError for an invalid schema.
func (m *Manager) Ensure(ctx context.Context, schema *apisv1alpha1.APIResourceSchema) (established bool, err error) {
	if !m.markUsed(schema.UID) {
		return false, nil // its deletion event requeues the caller
	}
	ctx = logicalcluster.With(ctx, logicalcluster.BoundCRDs)
	existing, err := m.reader.Get(ctx, "", string(schema.UID))
	if err == nil {
		return existing.DeletionTimestamp == nil && apiextensions.IsCRDConditionTrue(existing, apiextensions.Established), nil
	}
	if !apierrors.IsNotFound(err) {
		return false, err
	}
	definition, err := apiindex.BoundCRD(schema)
	if err != nil {
		m.clearLastUsed(schema.UID)
		return false, InvalidError{err}
	}
	err = m.cfg.Client.Create(ctx, definition)
	switch {
	case apierrors.IsAlreadyExists(err):
		return false, nil
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err):
		m.clearLastUsed(schema.UID)
		return false, InvalidError{fmt.Errorf("APIResourceSchema %q: %w", schema.Name, err)}
	case err != nil:
		return false, fmt.Errorf("creating the definition of APIResourceSchema %q of %q: %w", schema.Name, logicalcluster.Of(schema), err)
	}
	return false, nil
}

// Find returns the specification of the definition of a schema, or nil if the definition does not exist.
func (m *Manager) Find(ctx context.Context, uid types.UID) (*apiextensions.CustomResourceDefinitionSpec, error) {
	existing, err := m.reader.Get(logicalcluster.With(ctx, logicalcluster.BoundCRDs), "", string(uid))
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &existing.Spec, nil
}

// IsCompiledIn reports whether a resource with an identity is a compiled-in type of the shard, which needs no definition.
func IsCompiledIn(registry *storage.Registry, resource schema.GroupResource, identity string) bool {
	builtIn, err := registry.Get(resource)
	return err == nil && identity != "" && strings.HasSuffix(strings.TrimSuffix(builtIn.Prefix, "/"), "/"+identity)
}

// markUsed records a use of a definition. It returns false if the definition is being deleted.
func (m *Manager) markUsed(uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.deleting.Has(uid) {
		return false
	}
	m.lastUsed[uid] = m.cfg.Clock.Now()
	return true
}

// IsInvalid reports whether an error is an InvalidError.
func IsInvalid(err error) bool {
	var invalid InvalidError
	return errors.As(err, &invalid)
}
