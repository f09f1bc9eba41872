package definitions

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	ownapiextensions "github.com/atoll-dev/atoll/shardserver/apis/apiextensions"
	"github.com/atoll-dev/atoll/shardserver/controller"
)

// UnusedGracePeriod is how long a definition has to be unused, and how old it has to be, before it is deleted.
const UnusedGracePeriod = 30 * time.Minute

// resyncPeriod is how often a definition in use is checked again.
const resyncPeriod = 10 * time.Minute

// Controllers returns the controllers of this package.
func (d *Manager) Controllers() []controller.Controller {
	return []controller.Controller{d.claimedController(), d.cleanupController()}
}

func (d *Manager) cleanupController() controller.Controller {
	return controller.Controller{
		Name:                    "apiexport-definition-cleanup",
		Sources:                 []controller.Source{{Resource: ownapiextensions.Definitions, MapFunc: definitionKeys}},
		MaxConcurrentReconciles: 1,
		Reconcile:               d.cleanup,
	}
}

func definitionKeys(event watch.Event) []controller.Request {
	keys := controller.RequestForObject(event)
	if len(keys) == 0 || keys[0].ClusterName != logicalcluster.BoundCRDs {
		return nil
	}
	return keys
}

// cleanup deletes an unused definition after the grace period.
func (d *Manager) cleanup(ctx context.Context, key controller.Request) (controller.Result, error) {
	definition, err := d.reader.Get(ctx, "", key.Name)
	uid := types.UID(key.Name)
	if apierrors.IsNotFound(err) {
		d.clearLastUsed(uid)
		return controller.Result{}, nil
	}
	if err != nil || definition.DeletionTimestamp != nil {
		return controller.Result{}, err
	}
	if err := d.cfg.Bindings.WaitForSync(ctx); err != nil {
		return controller.Result{}, err
	}
	now := d.cfg.Clock.Now()
	if remaining := UnusedGracePeriod - now.Sub(definition.CreationTimestamp.Time); remaining > 0 {
		return controller.Result{RequeueAfter: remaining}, nil
	}
	needed, err := d.isInUse(ctx, uid, definition)
	if err != nil || needed {
		return controller.Result{RequeueAfter: resyncPeriod}, err
	}
	remaining := d.beginDeletion(uid, now)
	if remaining > 0 {
		return controller.Result{RequeueAfter: remaining}, nil
	}
	defer d.endDeletion(uid)
	return controller.Result{}, d.delete(ctx, definition)
}

// isInUse reports whether the schema of a definition is bound or claimed by an export.
func (d *Manager) isInUse(ctx context.Context, uid types.UID, definition *apiextensions.CustomResourceDefinition) (bool, error) {
	if len(d.cfg.Bindings.ListBySchema(uid)) > 0 {
		return true, nil
	}
	resource := schema.GroupResource{Group: definition.Spec.Group, Resource: definition.Spec.Names.Plural}
	d.mu.Lock()
	claims := make([]controller.Request, 0, len(d.identitiesByExport))
	for export := range d.identitiesByExport {
		claims = append(claims, controller.Request{ClusterName: export.Cluster, Name: export.Name})
	}
	d.mu.Unlock()
	for _, key := range claims {
		claimed, err := d.isSchemaClaimedBy(ctx, key, resource, uid)
		if claimed || err != nil {
			return claimed, err
		}
	}
	return false, nil
}

// isSchemaClaimedBy reports whether an export claims a resource with a schema.
func (d *Manager) isSchemaClaimedBy(ctx context.Context, key controller.Request, resource schema.GroupResource, uid types.UID) (claimed bool, err error) {
	export, err := d.cfg.Exports.Get(ctx, newExportKey(key))
	if err != nil {
		return false, client.IgnoreNotFound(err)
	}
	for _, claim := range export.Spec.PermissionClaims {
		if claim.Group != resource.Group || claim.Resource != resource.Resource {
			continue
		}
		err := d.visitClaimedSchemas(ctx, claim, func(schema *apisv1alpha1.APIResourceSchema) error {
			claimed = claimed || schema.UID == uid
			return nil
		})
		if claimed || err != nil {
			return claimed, err
		}
	}
	return false, nil
}

// beginDeletion marks a definition as being deleted, until endDeletion is called, so that markUsed fails. If the
// definition was used within the grace period, it returns the remaining time instead.
func (d *Manager) beginDeletion(uid types.UID, now time.Time) (remaining time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if last, ok := d.lastUsed[uid]; ok {
		if remaining := UnusedGracePeriod - now.Sub(last); remaining > 0 {
			return remaining
		}
	}
	d.deleting.Insert(uid)
	return 0
}

func (d *Manager) endDeletion(uid types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.deleting.Delete(uid)
}

func (d *Manager) clearLastUsed(uid types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.lastUsed, uid)
}

func (d *Manager) delete(ctx context.Context, definition *apiextensions.CustomResourceDefinition) error {
	err := d.cfg.Client.Delete(logicalcluster.With(ctx, logicalcluster.BoundCRDs),
		&apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: definition.Name}},
		client.Preconditions{UID: &definition.UID, ResourceVersion: &definition.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting unused definition %q: %w", definition.Name, err)
	}
	return nil
}
