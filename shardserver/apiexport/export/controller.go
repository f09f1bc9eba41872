// Package export holds the controller of APIExports. It generates and verifies the identity of an export, creates its
// default APIExportEndpointSlice, and has admission record the kinds that it offers.
//
// The package must not touch bindings (package binding) or the status of endpoint slices (package endpointslice).
package export

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/kubernetes/pkg/apis/core"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiexport/identity"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/loopback"
	"github.com/atoll-dev/atoll/shardserver/sharding/endpoints"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

var (
	exports        = apisv1alpha2.Resource("apiexports")
	schemas        = apisv1alpha1.Resource("apiresourceschemas")
	endpointSlices = apisv1alpha1.Resource("apiexportendpointslices")
	secrets        = schema.GroupResource{Resource: "secrets"}
	shards         = corev1alpha1.Resource("shards")
)

// Config holds the dependencies of the controller.
type Config struct {
	Registry *storage.Registry
	// Clients write through the shard's own API.
	Clients *loopback.Clients
	// Exports resolves the exports that endpoint slices refer to, as admission does.
	Exports *apiindex.Resolver
	// ShardName is the value of the label "shard" of metrics.
	ShardName string
	// DeprecatedURLs enables status.virtualWorkspaces of exports.
	DeprecatedURLs bool
}

// Controllers returns the controllers of this package.
func Controllers(cfg Config) []controller.Controller {
	c := &exportController{
		cfg:        cfg,
		exports:    storage.NewReader[*apisv1alpha2.APIExport](cfg.Registry, exports),
		slices:     storage.NewReader[*apisv1alpha1.APIExportEndpointSlice](cfg.Registry, endpointSlices),
		identities: identity.NewSecretStore(cfg.Registry, cfg.Clients.Typed),
		shards:     endpoints.NewShardLister(cfg.Registry),
	}
	inputs := []controller.Source{
		{Resource: exports, MapFunc: controller.RequestForObject},
		{Resource: endpointSlices, MapFunc: deletedSliceKeys},
		{Resource: secrets, MapFunc: c.secretKeys},
		{Resource: schemas, MapFunc: c.schemaKeys},
	}
	if cfg.DeprecatedURLs {
		inputs = append(inputs, controller.Source{Resource: shards, MapFunc: c.shardKeys, Global: true})
	}
	return []controller.Controller{{Name: "apiexport", Sources: inputs, Reconcile: c.reconcile}}
}

type exportController struct {
	cfg          Config
	exports      *storage.Reader[*apisv1alpha2.APIExport]
	slices       *storage.Reader[*apisv1alpha1.APIExportEndpointSlice]
	identities   *identity.SecretStore
	shards       endpoints.ShardLister
	shardChanges endpoints.ShardChanges
}

// deletedSliceKeys returns the export of a deleted default slice, which has the same name.
func deletedSliceKeys(event watch.Event) []controller.Request {
	if event.Type != watch.Deleted {
		return nil
	}
	return controller.RequestForObject(event)
}

// secretKeys returns the exports whose identity is stored in a Secret, and those that do not name one yet.
func (c *exportController) secretKeys(event watch.Event) []controller.Request {
	secret, ok := event.Object.(*core.Secret)
	if !ok {
		return nil
	}
	return controller.RequestsForObjects(c.exports, logicalcluster.Of(secret), func(export *apisv1alpha2.APIExport) bool {
		identity := export.Spec.Identity
		return identity == nil || identity.SecretRef == nil ||
			(identity.SecretRef.Name == secret.Name && identity.SecretRef.Namespace == secret.Namespace)
	})
}

// shardKeys returns all exports when the URLs of a shard change.
func (c *exportController) shardKeys(event watch.Event) []controller.Request {
	if _, changed := c.shardChanges.Observe(event); !changed {
		return nil
	}
	return controller.RequestsForObjects(c.exports, logicalcluster.Wildcard, nil)
}

// reconcile ensures the identity, computes and writes the status, and ensures the default endpoint slice and the record of kinds.
func (c *exportController) reconcile(ctx context.Context, key controller.Request) (controller.Result, error) {
	stored, err := c.exports.Get(ctx, "", key.Name)
	if apierrors.IsNotFound(err) || (err == nil && stored.DeletionTimestamp != nil) {
		return controller.Result{}, nil
	}
	if err != nil {
		return controller.Result{}, err
	}
	export := stored.DeepCopy()
	errs := []error{c.ensureIdentity(ctx, export)}
	status := export.Status.DeepCopy()
	if c.cfg.DeprecatedURLs {
		errs = append(errs, c.setURLs(ctx, export, status))
	} else {
		removeURLs(status)
	}
	if !equality.Semantic.DeepEqual(stored.Status, *status) {
		export.Status = *status
		if err := c.cfg.Clients.Typed.Status().Update(ctx, export); err != nil {
			return controller.Result{}, errors.Join(append(errs, fmt.Errorf("writing the status of APIExport %q: %w", export.Name, err))...)
		}
		if stored.Status.IdentityHash == "" && export.Status.IdentityHash != "" {
			apiindex.ObserveExportReady(c.cfg.ShardName, export.CreationTimestamp, time.Now())
		}
	}
	errs = append(errs, c.ensureEndpointSlice(ctx, export), c.recordServedKinds(ctx, export))
	if export.ResourceVersion != stored.ResourceVersion {
		_, _ = c.exports.GetNotOlderThan(ctx, "", export.Name, export.ResourceVersion) // best effort: the next reconciliation should read it
	}
	return controller.Result{}, errors.Join(errs...)
}

// ensureEndpointSlice creates the default endpoint slice of an export unless it exists or an annotation opts out.
func (c *exportController) ensureEndpointSlice(ctx context.Context, export *apisv1alpha2.APIExport) error {
	if _, skip := export.Annotations[apisv1alpha2.SkipEndpointSliceAnnotationKey]; skip {
		return nil
	}
	if _, err := c.slices.Get(ctx, "", export.Name); err == nil || !apierrors.IsNotFound(err) {
		return err
	}
	cluster := logicalcluster.Of(export)
	slice := &apisv1alpha1.APIExportEndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: export.Name,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: apisv1alpha2.SchemeGroupVersion.String(), Kind: "APIExport", Name: export.Name, UID: export.UID,
			}},
		},
		Spec: apisv1alpha1.APIExportEndpointSliceSpec{APIExport: apisv1alpha1.ExportBindingReference{
			Path: cluster.String(), Name: export.Name,
		}},
	}
	if err := c.cfg.Clients.Typed.Create(ctx, slice); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating the endpoint slice of APIExport %q: %w", export.Name, err)
	}
	return nil
}
