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
func (m *Manager) Controllers() []controller.Controller {
	return []controller.Controller{m.claimedController(), m.cleanupController()}
}

func (m *Manager) cleanupController() controller.Controller {
	return controller.Controller{
		Name:                    "apiexport-definition-cleanup",
		Sources:                 []controller.Source{{Resource: ownapiextensions.Definitions, MapFunc: definitionKeys}},
		MaxConcurrentReconciles: 1,
		Reconcile:               m.cleanup,
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
func (m *Manager) cleanup(ctx context.Context, key controller.Request) (controller.Result, error) {
	definition, err := m.reader.Get(ctx, "", key.Name)
	uid := types.UID(key.Name)
	if apierrors.IsNotFound(err) {
		m.clearLastUsed(uid)
		return controller.Result{}, nil
	}
	if err != nil || definition.DeletionTimestamp != nil {
		return controller.Result{}, err
	}
	if err := m.cfg.Bindings.WaitForSync(ctx); err != nil {
		return controller.Result{}, err
	}
	now := m.cfg.Clock.Now()
	if remaining := UnusedGracePeriod - now.Sub(definition.CreationTimestamp.Time); remaining > 0 {
		return controller.Result{RequeueAfter: remaining}, nil
	}
	needed, err := m.isInUse(ctx, uid, definition)
	if err != nil || needed {
		return controller.Result{RequeueAfter: resyncPeriod}, err
	}
	remaining := m.beginDeletion(uid, now)
	if remaining > 0 {
		return controller.Result{RequeueAfter: remaining}, nil
	}
	defer m.endDeletion(uid)
	return controller.Result{}, m.delete(ctx, definition)
}

// isInUse reports whether the schema of a definition is bound or claimed by an export.
func (m *Manager) isInUse(ctx context.Context, uid types.UID, definition *apiextensions.CustomResourceDefinition) (bool, error) {
	if len(m.cfg.Bindings.ListBySchema(uid)) > 0 {
		return true, nil
	}
	resource := schema.GroupResource{Group: definition.Spec.Group, Resource: definition.Spec.Names.Plural}
	m.mu.Lock()
	claims := make([]controller.Request, 0, len(m.identitiesByExport))
	for export := range m.identitiesByExport {
		claims = append(claims, controller.Request{ClusterName: export.Cluster, Name: export.Name})
	}
	m.mu.Unlock()
	for _, key := range claims {
		claimed, err := m.isSchemaClaimedBy(ctx, key, resource, uid)
		if claimed || err != nil {
			return claimed, err
		}
	}
	return false, nil
}

// isSchemaClaimedBy reports whether an export claims a resource with a schema.
func (m *Manager) isSchemaClaimedBy(ctx context.Context, key controller.Request, resource schema.GroupResource, uid types.UID) (claimed bool, err error) {
	export, err := m.cfg.Exports.Get(ctx, newExportKey(key))
	if err != nil {
		return false, client.IgnoreNotFound(err)
	}
	for _, claim := range export.Spec.PermissionClaims {
		if claim.Group != resource.Group || claim.Resource != resource.Resource {
			continue
		}
		err := m.visitClaimedSchemas(ctx, claim, func(schema *apisv1alpha1.APIResourceSchema) error {
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
func (m *Manager) beginDeletion(uid types.UID, now time.Time) (remaining time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if last, ok := m.lastUsed[uid]; ok {
		if remaining := UnusedGracePeriod - now.Sub(last); remaining > 0 {
			return remaining
		}
	}
	m.deleting.Insert(uid)
	return 0
}

func (m *Manager) endDeletion(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.deleting.Delete(uid)
}

func (m *Manager) clearLastUsed(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.lastUsed, uid)
}

func (m *Manager) delete(ctx context.Context, definition *apiextensions.CustomResourceDefinition) error {
	err := m.cfg.Client.Delete(logicalcluster.With(ctx, logicalcluster.BoundCRDs),
		&apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: definition.Name}},
		client.Preconditions{UID: &definition.UID, ResourceVersion: &definition.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting unused definition %q: %w", definition.Name, err)
	}
	return nil
}
