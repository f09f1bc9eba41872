package registration

import (
	"context"
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// reportInterval is how often a shard without a representation is checked for a report.
const reportInterval = 2 * time.Second

type representationController struct {
	Config
	reader
}

// RepresentationController returns the controller of the root shard that keeps a representation of each shard in root. A Shard in root that no
// shard owns is left alone: an administrator has planned it, or it is of a shard of an earlier version, which writes it itself.
func RepresentationController(cfg Config) controller.Controller {
	c := &representationController{cfg, newReader(cfg)}
	return controller.Controller{
		Name:                    "shard-representation",
		Sources:                 []controller.Source{{Resource: shards, MapFunc: representationKey}, published(cfg, representationKey)},
		MaxConcurrentReconciles: 1,
		Reconcile:               c.reconcile,
	}
}

// representationKey maps a Shard in root, and one that its shard owns, to the one in root.
func representationKey(event watch.Event) []controller.Request {
	shard := shardOf(event)
	if shard == nil {
		return nil
	}
	switch logicalcluster.Of(shard) {
	case logicalcluster.Root, logicalcluster.Shard:
		return []controller.Request{{ClusterName: logicalcluster.Root, Name: shard.Name}}
	}
	return nil
}

func (c *representationController) reconcile(ctx context.Context, key controller.Request) (controller.Result, error) {
	owned, err := c.owned(ctx, key.Name)
	if storage.IsNotSynced(err) {
		return controller.Result{}, nil // its watch begins again once they are synced
	}
	if err != nil {
		return controller.Result{}, err
	}
	inRoot, err := c.representation(ctx, key.Name)
	if err != nil {
		return controller.Result{}, fmt.Errorf("reading the Shard in %s: %w", logicalcluster.Root, err)
	}
	switch {
	case owned == nil && inRoot == nil:
		return controller.Result{}, nil
	case owned == nil:
		return controller.Result{}, c.prune(ctx, inRoot)
	case inRoot != nil:
		return controller.Result{}, c.update(ctx, inRoot, owned)
	case key.Name != c.ShardName && !c.Reports(key.Name):
		// The shard was removed from root while it was down, and its objects are still in the cache.
		return controller.Result{RequeueAfter: reportInterval}, nil
	}
	return controller.Result{}, c.create(ctx, owned)
}

func (c *representationController) prune(ctx context.Context, inRoot *corev1alpha1.Shard) error {
	if !isRepresentation(inRoot) {
		return nil
	}
	condition := client.Preconditions{UID: &inRoot.UID, ResourceVersion: &inRoot.ResourceVersion}
	if err := c.Client.Delete(ctx, inRoot.DeepCopy(), condition); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting the representation of a shard that has no Shard: %w", err)
	}
	return nil
}

func (c *representationController) create(ctx context.Context, owned *corev1alpha1.Shard) error {
	representation := &corev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: owned.Name}}
	copyDecisions(representation, owned)
	represent(representation, owned)
	if err := c.Client.Create(ctx, representation); err != nil {
		return fmt.Errorf("creating the representation of a shard: %w", err)
	}
	return nil
}

func (c *representationController) update(ctx context.Context, inRoot, owned *corev1alpha1.Shard) error {
	updated := inRoot.DeepCopy()
	represent(updated, owned)
	if equality.Semantic.DeepEqual(updated, inRoot) {
		return nil
	}
	if err := c.Client.Update(ctx, updated); err != nil {
		return fmt.Errorf("updating the representation of a shard: %w", err)
	}
	return nil
}

func isRepresentation(shard *corev1alpha1.Shard) bool {
	return shard.Annotations[corev1alpha1.ShardRepresentationAnnotationKey] != ""
}

// represent sets what the owner of a Shard decides, and keeps what administrators decide.
func represent(inRoot, owned *corev1alpha1.Shard) {
	if inRoot.Annotations == nil {
		inRoot.Annotations = map[string]string{}
	}
	inRoot.Annotations[corev1alpha1.ShardRepresentationAnnotationKey] = "true"
	inRoot.Labels = maps.Clone(owned.Labels)
	limits := inRoot.Spec.ResourceLimits
	inRoot.Spec = owned.Spec
	inRoot.Spec.ResourceLimits = limits
}
