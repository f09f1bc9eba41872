package template

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
	"github.com/atoll-dev/atoll/logicalcluster"
)

// Cleaner removes what Templates no longer need: versions that are retired, once no instance is stored in them, and schemas that nobody
// has bound. It tells the instances of Templates that are lost. It works in the background, and one Template does not stop the others.
type Cleaner struct {
	// Client is an uncached client of the workspace of the provider.
	Client client.Client
	// Group is the API group of the provider, Export the name of the APIExport of its flags.
	Group, Export string
	Instances     Instances
	Events        events.EventRecorder
	// Grace is how long a schema without bindings stays.
	Grace time.Duration
	Log   logr.Logger

	// rewritten has the UIDs of the instances that are written already, by those of Templates: after an error, others follow.
	rewritten map[types.UID]sets.Set[types.UID]
}

// retireTurn is how long the instances of one Template are written before others have their turn. It is long enough to read far more of them
// than are written in it: each turn begins with reading those that are written already.
const retireTurn = 10 * time.Minute

// Clean removes schemas that are unused, and tells instances of Templates that are lost. It is to be repeated.
func (c *Cleaner) Clean(ctx context.Context) error {
	var list infrastructurev1alpha1.TemplateList
	if err := c.Client.List(ctx, &list); err != nil {
		return fmt.Errorf("listing templates: %w", err)
	}
	return errors.Join(c.prune(ctx), c.tellLost(ctx, list.Items))
}

// Retire goes on with the retirement of versions. It is to be repeated, and may run beside Clean: it takes as long as instances are written.
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

// retire moves the instances of a Template to its version, so that retired ones are needed no longer. Each step waits until all bindings
// have the schema of the former one, and everything follows from the definition, so that the process may end at any time:
//
//  1. The definition stores objects in the version of the Template, and serves those that are retired no longer: from then on, nobody owns
//     fields in them anew.
//  2. All instances are written as they are, with the version of the Template for the fields that somebody owns in a retired one.
//  3. Status and annotation of the definition say that nothing is stored in other versions. The controller drops those that are retired.
func (c *Cleaner) retire(ctx context.Context, t *infrastructurev1alpha1.Template) error {
	if len(t.Spec.RetiredVersions) == 0 || !t.DeletionTimestamp.IsZero() || !isReady(t) || t.Status.ObservedGeneration != t.Generation {
		return nil
	}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := c.Client.Get(ctx, client.ObjectKey{Name: DefinitionName(t)}, definition); err != nil {
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
	if retireVersions(definition, t.Spec.InstanceCRD.Version, t.Spec.RetiredVersions) {
		delete(c.rewritten, t.UID) // they are stored in another version
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
	metav1.SetMetaDataAnnotation(&definition.ObjectMeta, AnnotationStored(c.Group), t.Spec.InstanceCRD.Version)
	if err := c.Client.Update(ctx, definition); err != nil {
		return err
	}
	delete(c.rewritten, t.UID)
	c.Events.Eventf(t, nil, corev1.EventTypeNormal, "InstancesMigrated", "Retire", "all instances are stored in version %s; versions %v can go", t.Spec.InstanceCRD.Version, t.Spec.RetiredVersions)
	return nil
}

// isBound reports whether the export and all bindings of the kind have the schema of a definition. Bindings that are being deleted never get
// another one. They count as long as there may be instances of them, which could be stored in a version that goes: then no instance of the
// kind could be listed.
func (c *Cleaner) isBound(ctx context.Context, t *infrastructurev1alpha1.Template, definition *apiextensionsv1.CustomResourceDefinition) (bool, error) {
	schema, err := Schema(definition)
	if err != nil || schema.Name != t.Status.Registered.SchemaName {
		return false, err
	}
	refusing, err := Schema(closed(definition))
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
				if behind++; behind <= maxReasons {
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

// retireVersions has a definition store objects in a version, and not serve those that are retired. It reports whether that is a change.
func retireVersions(definition *apiextensionsv1.CustomResourceDefinition, version string, retired []string) (changed bool) {
	for i := range definition.Spec.Versions {
		v := &definition.Spec.Versions[i]
		storage, served := v.Name == version, v.Served && !slices.Contains(retired, v.Name)
		changed = changed || v.Storage != storage || v.Served != served
		v.Storage, v.Served = storage, served
	}
	return changed
}
