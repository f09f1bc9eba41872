package definitions

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	"github.com/atoll-dev/atoll/shardserver/controller"
)

// claimedController creates the definitions of resources that exports claim by identity, so that their providers can
// list them across logical clusters even if no logical cluster of the shard binds them yet.
func (m *Manager) claimedController() controller.Controller {
	return controller.Controller{
		Name: "apiexport-claimed-definitions",
		Sources: []controller.Source{
			{Resource: apisv1alpha2.Resource("apiexports"), MapFunc: m.exportKeys, Global: true},
			{Resource: apisv1alpha1.Resource("apiresourceschemas"), MapFunc: m.schemaKeys, Global: true},
		},
		MaxConcurrentReconciles: 2,
		Reconcile:               m.reconcileClaimed,
	}
}

// exportKeys returns an export if it has claims with an identity, and the exports that claim its resources.
func (m *Manager) exportKeys(event watch.Event) []controller.Request {
	export, ok := event.Object.(*apisv1alpha2.APIExport)
	if !ok {
		return nil
	}
	var identities sets.Set[string]
	if event.Type != watch.Deleted {
		identities = claimedIdentities(export)
	}
	keys := m.claimantKeys(export.Status.IdentityHash)
	m.setClaims(apiindex.ExportKeyOf(export), identities)
	if len(identities) > 0 {
		keys = append(keys, controller.RequestForObject(event)...)
	}
	return keys
}

// claimedIdentities returns the identity hashes of the claims of an export.
func claimedIdentities(export *apisv1alpha2.APIExport) sets.Set[string] {
	identities := sets.New[string]()
	for _, claim := range export.Spec.PermissionClaims {
		if claim.IdentityHash != "" {
			identities.Insert(claim.IdentityHash)
		}
	}
	return identities
}

// schemaKeys returns the exports that claim resources of the exports in the logical cluster of a new schema.
func (m *Manager) schemaKeys(event watch.Event) []controller.Request {
	schema, ok := event.Object.(*apisv1alpha1.APIResourceSchema)
	if !ok || event.Type != watch.Added {
		return nil
	}
	if m.isClaimIndexEmpty() {
		return nil
	}
	exports, err := m.cfg.Exports.List(context.Background(), logicalcluster.Of(schema))
	if err != nil {
		return nil
	}
	var keys []controller.Request
	for _, export := range exports {
		keys = append(keys, m.claimantKeys(export.Status.IdentityHash)...)
	}
	return keys
}

func (m *Manager) isClaimIndexEmpty() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.exportsByIdentity) == 0
}

func (m *Manager) claimantKeys(identity string) []controller.Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	var keys []controller.Request
	for export := range m.exportsByIdentity[identity] {
		keys = append(keys, controller.Request{ClusterName: export.Cluster, Name: export.Name})
	}
	return keys
}

func (m *Manager) setClaims(export bindings.ExportKey, identities sets.Set[string]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for identity := range m.identitiesByExport[export].Difference(identities) {
		if m.exportsByIdentity[identity].Delete(export); m.exportsByIdentity[identity].Len() == 0 {
			delete(m.exportsByIdentity, identity)
		}
	}
	for identity := range identities {
		if m.exportsByIdentity[identity] == nil {
			m.exportsByIdentity[identity] = sets.New[bindings.ExportKey]()
		}
		m.exportsByIdentity[identity].Insert(export)
	}
	if m.identitiesByExport[export] = identities; identities.Len() == 0 {
		delete(m.identitiesByExport, export)
	}
}

func (m *Manager) reconcileClaimed(ctx context.Context, key controller.Request) (controller.Result, error) {
	export, err := m.cfg.Exports.Get(ctx, newExportKey(key))
	if apierrors.IsNotFound(err) {
		m.setClaims(newExportKey(key), nil)
		// The export may have been recreated, and its event handled before setClaims removed its claims.
		if export, err = m.cfg.Exports.Get(ctx, newExportKey(key)); apierrors.IsNotFound(err) {
			return controller.Result{}, nil
		}
		if err == nil {
			m.setClaims(newExportKey(key), claimedIdentities(export))
		}
	}
	if err != nil {
		return controller.Result{}, err
	}
	var errs []error
	for _, claim := range export.Spec.PermissionClaims {
		err := m.visitClaimedSchemas(ctx, claim, func(schema *apisv1alpha1.APIResourceSchema) error {
			_, err := m.Ensure(ctx, schema)
			return err
		})
		if err != nil && !IsInvalid(err) { // shown by conditions of the bindings of the schema
			errs = append(errs, fmt.Errorf("claim of %s.%s: %w", claim.Resource, claim.Group, err))
		}
	}
	return controller.Result{}, errors.Join(errs...)
}

// visitClaimedSchemas calls visit for each schema of a resource claimed by identity.
func (m *Manager) visitClaimedSchemas(ctx context.Context, claim apisv1alpha2.PermissionClaim, visit func(*apisv1alpha1.APIResourceSchema) error) error {
	resource := schema.GroupResource{Group: claim.Group, Resource: claim.Resource}
	if _, subresource := apiindex.ClaimedResource(claim); subresource != "" {
		return nil
	}
	if claim.IdentityHash == "" || IsCompiledIn(m.cfg.Registry, resource, claim.IdentityHash) {
		return nil
	}
	providers, err := m.cfg.Exports.ListByIdentity(ctx, claim.IdentityHash)
	if err != nil {
		return err
	}
	for _, provider := range providers {
		for _, exported := range provider.Spec.Resources {
			if exported.Name != claim.Resource || exported.Group != claim.Group {
				continue
			}
			found, err := m.cfg.Exports.GetSchema(ctx, logicalcluster.Of(provider), exported.Schema)
			if apierrors.IsNotFound(err) {
				continue
			}
			if err != nil {
				return err
			}
			if err := visit(found); err != nil {
				return err
			}
		}
	}
	return nil
}

func newExportKey(key controller.Request) bindings.ExportKey {
	return bindings.ExportKey{Cluster: key.ClusterName, Name: key.Name}
}
