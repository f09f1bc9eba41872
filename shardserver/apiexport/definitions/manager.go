// Package definitions keeps the definitions that are made of schemas, in system:bound-crds: it makes those that bindings
// need or exports claim, and deletes those that nobody has used for a while.
//
// A definition is made once for all logical clusters that bind the schema. Serving it is the matter of package
// customresources.
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

// Config is what the package needs.
type Config struct {
	Registry *storage.Registry
	// Client writes through the shard's own API.
	Client  client.Client
	Exports *apiindex.Resolver
	// Bindings tells which schemas are bound.
	Bindings *bindings.Index
	Clock    clock.PassiveClock
}

// Manager makes definitions of schemas. It keeps the time of the last use of each definition that exists.
type Manager struct {
	cfg    Config
	reader *storage.Reader[*apiextensions.CustomResourceDefinition]

	mu sync.Mutex
	// lastUsed is when a definition was last needed by something that the index may not know yet.
	lastUsed map[types.UID]time.Time
	// deleting are those that are being deleted this moment.
	deleting sets.Set[types.UID]
	// exportsByIdentity are the exports that claim resources of an identity.
	exportsByIdentity  map[string]sets.Set[bindings.ExportKey]
	identitiesByExport map[bindings.ExportKey]sets.Set[string]
}

// New returns what makes definitions. There is one for all controllers of a process.
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

// InvalidError says that no definition can be made of a schema, whatever is done but to the schema.
type InvalidError struct{ err error }

// Error implements error.
func (e InvalidError) Error() string { return e.err.Error() }

// Unwrap gives the reason.
func (e InvalidError) Unwrap() error { return e.err }

// Ensure makes the definition of a schema if there is none, and tells whether it is served. It fails with an
// InvalidError for a schema of which none can be made.
func (d *Manager) Ensure(ctx context.Context, schema *apisv1alpha1.APIResourceSchema) (established bool, err error) {
	if !d.markUsed(schema.UID) {
		return false, nil // the event of its end leads here again
	}
	ctx = logicalcluster.With(ctx, apiindex.BoundCRDsCluster)
	existing, err := d.reader.Get(ctx, "", string(schema.UID))
	if err == nil {
		return existing.DeletionTimestamp == nil && apiextensions.IsCRDConditionTrue(existing, apiextensions.Established), nil
	}
	if !apierrors.IsNotFound(err) {
		return false, err
	}
	definition, err := apiindex.BoundCRD(schema)
	if err != nil {
		d.forgetUse(schema.UID)
		return false, InvalidError{err}
	}
	err = d.cfg.Client.Create(ctx, definition)
	switch {
	case apierrors.IsAlreadyExists(err):
		return false, nil
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err):
		d.forgetUse(schema.UID)
		return false, InvalidError{fmt.Errorf("APIResourceSchema %q: %w", schema.Name, err)}
	case err != nil:
		return false, fmt.Errorf("making a definition of APIResourceSchema %q of %q: %w", schema.Name, logicalcluster.Of(schema), err)
	}
	return false, nil
}

// Names returns the names of the resource of a definition, or nil if there is no such definition.
func (d *Manager) Names(ctx context.Context, uid types.UID) (*apiextensions.CustomResourceDefinitionNames, error) {
	existing, err := d.reader.Get(logicalcluster.With(ctx, apiindex.BoundCRDsCluster), "", string(uid))
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &existing.Spec.Names, nil
}

// IsCompiledIn tells whether objects of a resource under an identity are those of the shard's own types, which need no
// definition.
func IsCompiledIn(registry *storage.Registry, resource schema.GroupResource, identity string) bool {
	own, err := registry.Get(resource)
	return err == nil && identity != "" && strings.HasSuffix(strings.TrimSuffix(own.Prefix, "/"), "/"+identity)
}

// markUsed remembers that a definition is needed, unless it is going this moment.
func (d *Manager) markUsed(uid types.UID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.deleting.Has(uid) {
		return false
	}
	d.lastUsed[uid] = d.cfg.Clock.Now()
	return true
}

// IsInvalid tells whether an error is an InvalidError.
func IsInvalid(err error) bool {
	var invalid InvalidError
	return errors.As(err, &invalid)
}
