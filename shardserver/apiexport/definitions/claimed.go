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
func (d *Manager) claimedController() controller.Controller {
	return controller.Controller{
		Name: "apiexport-claimed-definitions",
		Sources: []controller.Source{
			{Resource: apisv1alpha2.Resource("apiexports"), MapFunc: d.exportKeys, Global: true},
			{Resource: apisv1alpha1.Resource("apiresourceschemas"), MapFunc: d.schemaKeys, Global: true},
		},
		MaxConcurrentReconciles: 2,
		Reconcile:               d.reconcileClaimed,
	}
}

// exportKeys returns an export if it has claims with an identity, and the exports that claim its resources.
func (d *Manager) exportKeys(event watch.Event) []controller.Request {
	export, ok := event.Object.(*apisv1alpha2.APIExport)
	if !ok {
		return nil
	}
	var identities sets.Set[string]
	if event.Type != watch.Deleted {
		identities = claimedIdentities(export)
	}
	keys := d.claimantKeys(export.Status.IdentityHash)
	d.setClaims(apiindex.ExportKeyOf(export), identities)
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
func (d *Manager) schemaKeys(event watch.Event) []controller.Request {
	schema, ok := event.Object.(*apisv1alpha1.APIResourceSchema)
	if !ok || event.Type != watch.Added {
		return nil
	}
	if d.isClaimIndexEmpty() {
		return nil
	}
	exports, err := d.cfg.Exports.List(context.Background(), logicalcluster.Of(schema))
	if err != nil {
		return nil
	}
	var keys []controller.Request
	for _, export := range exports {
		keys = append(keys, d.claimantKeys(export.Status.IdentityHash)...)
	}
	return keys
}

func (d *Manager) isClaimIndexEmpty() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.exportsByIdentity) == 0
}

func (d *Manager) claimantKeys(identity string) []controller.Request {
	d.mu.Lock()
	defer d.mu.Unlock()
	var keys []controller.Request
	for export := range d.exportsByIdentity[identity] {
		keys = append(keys, controller.Request{ClusterName: export.Cluster, Name: export.Name})
	}
	return keys
}

func (d *Manager) setClaims(export bindings.ExportKey, identities sets.Set[string]) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for identity := range d.identitiesByExport[export].Difference(identities) {
		if d.exportsByIdentity[identity].Delete(export); d.exportsByIdentity[identity].Len() == 0 {
			delete(d.exportsByIdentity, identity)
		}
	}
	for identity := range identities {
		if d.exportsByIdentity[identity] == nil {
			d.exportsByIdentity[identity] = sets.New[bindings.ExportKey]()
		}
		d.exportsByIdentity[identity].Insert(export)
	}
	if d.identitiesByExport[export] = identities; identities.Len() == 0 {
		delete(d.identitiesByExport, export)
	}
}

func (d *Manager) reconcileClaimed(ctx context.Context, key controller.Request) (controller.Result, error) {
	export, err := d.cfg.Exports.Get(ctx, newExportKey(key))
	if apierrors.IsNotFound(err) {
		d.setClaims(newExportKey(key), nil)
		// The export may have been recreated, and its event handled before setClaims removed its claims.
		if export, err = d.cfg.Exports.Get(ctx, newExportKey(key)); apierrors.IsNotFound(err) {
			return controller.Result{}, nil
		}
		if err == nil {
			d.setClaims(newExportKey(key), claimedIdentities(export))
		}
	}
	if err != nil {
		return controller.Result{}, err
	}
	var errs []error
	for _, claim := range export.Spec.PermissionClaims {
		err := d.visitClaimedSchemas(ctx, claim, func(schema *apisv1alpha1.APIResourceSchema) error {
			_, err := d.Ensure(ctx, schema)
			return err
		})
		if err != nil && !IsInvalid(err) { // shown by conditions of the bindings of the schema
			errs = append(errs, fmt.Errorf("claim of %s.%s: %w", claim.Resource, claim.Group, err))
		}
	}
	return controller.Result{}, errors.Join(errs...)
}

// visitClaimedSchemas calls visit for each schema of a resource claimed by identity.
func (d *Manager) visitClaimedSchemas(ctx context.Context, claim apisv1alpha2.PermissionClaim, visit func(*apisv1alpha1.APIResourceSchema) error) error {
	resource := schema.GroupResource{Group: claim.Group, Resource: claim.Resource}
	if _, subresource := apiindex.ClaimedResource(claim); subresource != "" {
		return nil
	}
	if claim.IdentityHash == "" || IsCompiledIn(d.cfg.Registry, resource, claim.IdentityHash) {
		return nil
	}
	providers, err := d.cfg.Exports.ListByIdentity(ctx, claim.IdentityHash)
	if err != nil {
		return err
	}
	for _, provider := range providers {
		for _, exported := range provider.Spec.Resources {
			if exported.Name != claim.Resource || exported.Group != claim.Group {
				continue
			}
			found, err := d.cfg.Exports.GetSchema(ctx, logicalcluster.Of(provider), exported.Schema)
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
