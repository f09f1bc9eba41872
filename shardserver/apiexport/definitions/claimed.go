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

// claimedController makes the definitions of resources that an export claims by identity, so that its provider can list
// them over all logical clusters before any of those that are its own has bound them.
func (d *Definitions) claimedController() controller.Controller {
	return controller.Controller{
		Name: "apiexport-claimed-definitions",
		Inputs: []controller.Input{
			{Resource: apisv1alpha2.Resource("apiexports"), Keys: d.claimedKeys, Everywhere: true},
			{Resource: apisv1alpha1.Resource("apiresourceschemas"), Keys: d.claimedSchemaKeys, Everywhere: true},
		},
		Workers:   2,
		Reconcile: d.reconcileClaimed,
	}
}

// claimedKeys returns an export if it claims anything, and those that claim what it offers.
func (d *Definitions) claimedKeys(event watch.Event) []controller.Key {
	export, ok := event.Object.(*apisv1alpha2.APIExport)
	if !ok {
		return nil
	}
	var identities sets.Set[string]
	if event.Type != watch.Deleted {
		identities = claimedBy(export)
	}
	keys := d.claimantsOf(export.Status.IdentityHash)
	d.setClaims(apiindex.ExportOf(export), identities)
	if len(identities) > 0 {
		keys = append(keys, controller.ObjectKey(event)...)
	}
	return keys
}

// claimedBy returns the identities of what an export claims of others.
func claimedBy(export *apisv1alpha2.APIExport) sets.Set[string] {
	identities := sets.New[string]()
	for _, claim := range export.Spec.PermissionClaims {
		if claim.IdentityHash != "" {
			identities.Insert(claim.IdentityHash)
		}
	}
	return identities
}

// claimedSchemaKeys returns the exports that claim what the exports beside a new schema offer.
func (d *Definitions) claimedSchemaKeys(event watch.Event) []controller.Key {
	schema, ok := event.Object.(*apisv1alpha1.APIResourceSchema)
	if !ok || event.Type != watch.Added {
		return nil
	}
	if d.claimsNothing() {
		return nil
	}
	exports, err := d.cfg.Exports.In(context.Background(), logicalcluster.Of(schema))
	if err != nil {
		return nil
	}
	var keys []controller.Key
	for _, export := range exports {
		keys = append(keys, d.claimantsOf(export.Status.IdentityHash)...)
	}
	return keys
}

func (d *Definitions) claimsNothing() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.claimants) == 0
}

func (d *Definitions) claimantsOf(identity string) []controller.Key {
	d.mu.Lock()
	defer d.mu.Unlock()
	var keys []controller.Key
	for export := range d.claimants[identity] {
		keys = append(keys, controller.Key{Cluster: export.Cluster, Name: export.Name})
	}
	return keys
}

func (d *Definitions) setClaims(export bindings.Export, identities sets.Set[string]) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for identity := range d.claims[export].Difference(identities) {
		if d.claimants[identity].Delete(export); d.claimants[identity].Len() == 0 {
			delete(d.claimants, identity)
		}
	}
	for identity := range identities {
		if d.claimants[identity] == nil {
			d.claimants[identity] = sets.New[bindings.Export]()
		}
		d.claimants[identity].Insert(export)
	}
	if d.claims[export] = identities; identities.Len() == 0 {
		delete(d.claims, export)
	}
}

func (d *Definitions) reconcileClaimed(ctx context.Context, key controller.Key) (controller.Result, error) {
	export, err := d.cfg.Exports.Get(ctx, exportOf(key))
	if apierrors.IsNotFound(err) {
		d.setClaims(exportOf(key), nil)
		// It may have come back since it was asked for, and its event have been seen before its claims were taken away.
		if export, err = d.cfg.Exports.Get(ctx, exportOf(key)); apierrors.IsNotFound(err) {
			return controller.Result{}, nil
		}
		if err == nil {
			d.setClaims(exportOf(key), claimedBy(export))
		}
	}
	if err != nil {
		return controller.Result{}, err
	}
	var failed []error
	for _, claim := range export.Spec.PermissionClaims {
		err := d.claimed(ctx, claim, func(schema *apisv1alpha1.APIResourceSchema) error {
			_, err := d.Ensure(ctx, schema)
			return err
		})
		if err != nil && !IsInvalid(err) { // its own bindings say so
			failed = append(failed, fmt.Errorf("claim of %s.%s: %w", claim.Resource, claim.Group, err))
		}
	}
	return controller.Result{}, errors.Join(failed...)
}

// claimed visits the schemas of a resource that an export claims by identity.
func (d *Definitions) claimed(ctx context.Context, claim apisv1alpha2.PermissionClaim, visit func(*apisv1alpha1.APIResourceSchema) error) error {
	resource := schema.GroupResource{Group: claim.Group, Resource: claim.Resource}
	if claim.IdentityHash == "" || CompiledIn(d.cfg.Registry, resource, claim.IdentityHash) {
		return nil
	}
	providers, err := d.cfg.Exports.ByIdentity(ctx, claim.IdentityHash)
	if err != nil {
		return err
	}
	for _, provider := range providers {
		for _, offered := range provider.Spec.Resources {
			if offered.Name != claim.Resource || offered.Group != claim.Group {
				continue
			}
			found, err := d.cfg.Exports.Schema(ctx, logicalcluster.Of(provider), offered.Schema)
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

func exportOf(key controller.Key) bindings.Export {
	return bindings.Export{Cluster: key.Cluster, Name: key.Name}
}
