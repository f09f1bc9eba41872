package removal

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/template"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// maxClusters bounds the logical clusters that a log line names.
const maxClusters = 5

// Cleaner removes what Templates do not use: retired versions in which no instance is stored, and schemas without bindings. It also updates
// the status of orphaned instances. It works in the background, and a failure of one Template does not stop the others.
type Cleaner struct {
	// Client is an uncached client of the provider's workspace.
	Client client.Client
	// Group is the API group of the provider; Export is the name of the standard APIExport.
	Group, Export string
	Instances     template.Instances
	Events        events.EventRecorder
	// Grace is how long a schema without bindings is retained.
	Grace time.Duration
	Log   logr.Logger

	// rewritten contains the UIDs of the rewritten instances, by the UID of their Template, so that a retry after an error skips them.
	rewritten map[types.UID]sets.Set[types.UID]
}

// retireTurn is how long the instances of one Template are written before the Cleaner continues with the next Template. It must be long
// enough to read far more instances than it can write, because each turn begins by reading those that are already written.
const retireTurn = 10 * time.Minute

// Clean removes unused schemas, and updates the status of orphaned instances. Callers call it repeatedly.
func (c *Cleaner) Clean(ctx context.Context) error {
	var list infrastructurev1alpha1.TemplateList
	if err := c.Client.List(ctx, &list); err != nil {
		return fmt.Errorf("listing templates: %w", err)
	}
	return errors.Join(c.prune(ctx), c.reportOrphaned(ctx, list.Items))
}

// Retire continues the retirement of versions. Callers call it repeatedly. It may run concurrently with Clean, because rewriting instances
// takes long.
func (c *Cleaner) Retire(ctx context.Context) error {
	var list infrastructurev1alpha1.TemplateList
	if err := c.Client.List(ctx, &list); err != nil {
		return fmt.Errorf("listing templates: %w", err)
	}
	maps.DeleteFunc(c.rewritten, func(uid types.UID, _ sets.Set[types.UID]) bool {
		return !slices.ContainsFunc(list.Items, func(t infrastructurev1alpha1.Template) bool { return t.UID == uid && len(t.Spec.RetiredVersions) > 0 })
	})
	var errs []error
	for i := range list.Items {
		if err := c.retire(ctx, &list.Items[i]); err != nil {
			errs = append(errs, fmt.Errorf("retiring versions of template %s: %w", list.Items[i].Name, err))
		}
	}
	return errors.Join(errs...)
}

// retire moves the instances of a Template to its version, so that the retired versions can be removed. Each step waits until all bindings
// have the schema of the previous step. All progress is stored in the CRD, so the process may end at any time:
//
//  1. The CRD stores objects in the version of the Template, and stops serving retired versions: from then on, no manager can own fields in
//     them.
//  2. All instances are rewritten, with the version of the Template for fields that a manager owns in a retired one.
//  3. Status and annotation of the CRD record that no object is stored in other versions. The controller drops the retired versions.
func (c *Cleaner) retire(ctx context.Context, t *infrastructurev1alpha1.Template) error {
	if len(t.Spec.RetiredVersions) == 0 || !t.DeletionTimestamp.IsZero() || !template.IsReady(t) || t.Status.ObservedGeneration != t.Generation {
		return nil
	}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := c.Client.Get(ctx, client.ObjectKey{Name: template.DefinitionName(t)}, definition); err != nil {
		return client.IgnoreNotFound(err)
	}
	if !slices.ContainsFunc(definition.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return slices.Contains(t.Spec.RetiredVersions, v.Name)
	}) {
		return nil
	}
	if bound, err := c.isBound(ctx, t, definition); err != nil || !bound {
		return err
	}
	if template.RetireVersions(definition, t.Spec.InstanceCRD.Version, t.Spec.RetiredVersions) {
		delete(c.rewritten, t.UID) // the storage version has changed
		return c.Client.Update(ctx, definition)
	}
	if c.rewritten == nil {
		c.rewritten = map[types.UID]sets.Set[types.UID]{}
	}
	if c.rewritten[t.UID] == nil {
		c.rewritten[t.UID] = sets.New[types.UID]()
	}
	turn, cancel := context.WithTimeout(ctx, retireTurn)
	defer cancel()
	if err := c.Instances.Rewrite(turn, t, c.rewritten[t.UID]); err != nil {
		if turn.Err() != nil && ctx.Err() == nil {
			c.Log.Info("Instances are being written in another version; the next turn goes on", "template", t.Name, "written", len(c.rewritten[t.UID]))
			return nil
		}
		return fmt.Errorf("writing the instances: %w", err)
	}
	definition.Status.StoredVersions = []string{t.Spec.InstanceCRD.Version}
	if err := c.Client.Status().Update(ctx, definition); err != nil {
		return err
	}
	metav1.SetMetaDataAnnotation(&definition.ObjectMeta, template.AnnotationStored(c.Group), t.Spec.InstanceCRD.Version)
	if err := c.Client.Update(ctx, definition); err != nil {
		return err
	}
	delete(c.rewritten, t.UID)
	c.Events.Eventf(t, nil, corev1.EventTypeNormal, "InstancesMigrated", "Retire", "all instances are stored in version %s; versions %v can go", t.Spec.InstanceCRD.Version, t.Spec.RetiredVersions)
	return nil
}

// isBound reports whether the export and all bindings of the kind have the schema of a CRD. Bindings that are being deleted never get another
// schema. They count as long as they may have instances, which could be stored in a version to be removed: the server could then not list any
// instance of the kind.
func (c *Cleaner) isBound(ctx context.Context, t *infrastructurev1alpha1.Template, definition *apiextensionsv1.CustomResourceDefinition) (bool, error) {
	schema, err := template.Schema(definition)
	if err != nil || schema.Name != t.Status.Registered.SchemaName {
		return false, err
	}
	refusing, err := template.Schema(template.Closed(definition))
	if err != nil {
		return false, err
	}
	behind, clusters := 0, []string(nil)
	err = c.Instances.Bindings(ctx, t.Status.Registered.Exports, func(binding *apisv1alpha2.APIBinding) error {
		if !binding.DeletionTimestamp.IsZero() && !controllerutil.ContainsFinalizer(binding, apisv1alpha2.APIBindingFinalizer) {
			return nil // all its instances are gone, and no others can be created
		}
		for _, bound := range binding.Status.BoundResources {
			if bound.Group == c.Group && bound.Resource == t.Spec.InstanceCRD.Resource && bound.Schema.Name != schema.Name && bound.Schema.Name != refusing.Name {
				if behind++; behind <= maxClusters {
					clusters = append(clusters, logicalcluster.Of(binding).String())
				}
			}
		}
		return nil
	})
	if err == nil && behind > 0 {
		c.Log.Info("Bindings do not have the schema of a template yet; its retired versions wait for them", "template", t.Name, "bindings", behind, "clusters", clusters)
	}
	return behind == 0, err
}
