package gate

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/rollout"
)

// Keys of the ConfigMap that holds the slot.
const (
	keyHolder   = "component" // a Deployment or StatefulSet of the namespace; empty while nothing is rolled out
	keyRevision = "revision"
	keySince    = "since" // RFC 3339
)

func slotName(root *operatorv1alpha1.RootShard) string { return root.Name + "-rollout" }

// readSlot reads the slot of an installation from the API server, without a cache. A slot that was never held has no object.
func (g *Gate) readSlot(ctx context.Context, root *operatorv1alpha1.RootShard) (rollout.Slot, error) {
	object, err := apply.Get[corev1.ConfigMap](ctx, g.cluster, root.Namespace, slotName(root))
	if err != nil || object == nil {
		return rollout.Slot{}, err
	}
	out := rollout.Slot{Holder: object.Data[keyHolder], Revision: object.Data[keyRevision]}
	if out.Holder == "" {
		return rollout.Slot{}, nil
	}
	var invalid error
	out.Since, invalid = time.Parse(time.RFC3339, object.Data[keySince])
	// The clock of the operator that acquired the slot may have been ahead. The timeout must not wait until that time is reached. A slot
	// whose time cannot be parsed must not be overdue from the start either.
	if since := g.slots.firstObserved(client.ObjectKeyFromObject(object), out, g.now()); invalid != nil || out.Since.After(since) {
		out.Since = since
	}
	return out, nil
}

// updateSlot changes the content of the slot. It returns a slotConflictError if the slot has changed in the meantime.
func (g *Gate) updateSlot(ctx context.Context, root *operatorv1alpha1.RootShard, from, to rollout.Slot) error {
	live, err := apply.Get[corev1.ConfigMap](ctx, g.cluster, root.Namespace, slotName(root))
	if err != nil {
		return err
	}
	data := map[string]string{keyHolder: "", keyRevision: "", keySince: ""}
	if to.Holder != "" {
		data = map[string]string{keyHolder: to.Holder, keyRevision: to.Revision, keySince: to.Since.UTC().Format(time.RFC3339)}
	}
	labels := desired.NewRootShard(root).FileLabels()
	switch {
	case live == nil:
		object := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Name: slotName(root), Namespace: root.Namespace,
				Labels:          labels,
				OwnerReferences: desired.NewOwnerReferences("RootShard", root),
			},
			Data: data,
		}
		err = g.cluster.Create(ctx, object, client.FieldOwner(apply.FieldManager))
	case live.Data[keyHolder] != from.Holder:
		return slotConflictError{root.Name}
	default:
		object := live.DeepCopy()
		object.Data, object.Labels = data, labels
		err = g.cluster.Patch(ctx, object, client.MergeFromWithOptions(live, client.MergeFromWithOptimisticLock{}), client.FieldOwner(apply.FieldManager))
	}
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return slotConflictError{root.Name}
	case err != nil:
		return fmt.Errorf("writing the rollout slot of RootShard %s: %w", root.Name, err)
	}
	return nil
}

// slotConflictError is the error of an update of a slot that another component acquired.
type slotConflictError struct{ root string }

func (e slotConflictError) Error() string {
	return "the rollout slot of RootShard " + e.root + " was acquired by another component"
}
