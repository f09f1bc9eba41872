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

// readSlot reads the slot of an installation past any cache, so that it is the newest. One that nobody took is not there.
func (g *Gate) readSlot(ctx context.Context, root *operatorv1alpha1.RootShard) (rollout.Slot, error) {
	object, err := apply.Get[corev1.ConfigMap](ctx, g.cluster, root.Namespace, slotName(root))
	if err != nil || object == nil {
		return rollout.Slot{}, err
	}
	out := rollout.Slot{Holder: object.Data[keyHolder], Revision: object.Data[keyRevision]}
	if out.Holder == "" {
		return rollout.Slot{}, nil
	}
	// A time that cannot be read makes the rollout overdue, which is said; the slot is given back all the same.
	out.Since, _ = time.Parse(time.RFC3339, object.Data[keySince])
	// An operator whose clock was ahead took it: a rollout that fails must not wait for that time to come before it says so.
	if seen := g.slots.since(client.ObjectKeyFromObject(object), out, g.now()); out.Since.After(seen) {
		out.Since = seen
	}
	return out, nil
}

// updateSlot puts another content into the slot, unless somebody else did meanwhile: then the error is an errTaken.
func (g *Gate) updateSlot(ctx context.Context, root *operatorv1alpha1.RootShard, had, wanted rollout.Slot) error {
	live, err := apply.Get[corev1.ConfigMap](ctx, g.cluster, root.Namespace, slotName(root))
	if err != nil {
		return err
	}
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: slotName(root), Namespace: root.Namespace,
		Labels:          map[string]string{operatorv1alpha1.LabelRootShard: root.Name},
		OwnerReferences: desired.OwnedBy("RootShard", root),
	}}
	data := map[string]string{keyHolder: "", keyRevision: "", keySince: ""}
	if wanted.Holder != "" {
		data = map[string]string{keyHolder: wanted.Holder, keyRevision: wanted.Revision, keySince: wanted.Since.UTC().Format(time.RFC3339)}
	}
	if live == nil {
		object.Data = data
		err = g.cluster.Create(ctx, object, client.FieldOwner(apply.FieldManager))
	} else {
		if live.Data[keyHolder] != had.Holder {
			return slotConflict(root)
		}
		object = live.DeepCopy()
		object.Data = data
		err = g.cluster.Patch(ctx, object, client.MergeFromWithOptions(live, client.MergeFromWithOptimisticLock{}), client.FieldOwner(apply.FieldManager))
	}
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return slotConflict(root)
	case err != nil:
		return fmt.Errorf("writing the rollout slot of RootShard %s: %w", root.Name, err)
	}
	return nil
}

// slotConflictError tells MayRoll that somebody was faster.
type slotConflictError struct{ root string }

func (e slotConflictError) Error() string {
	return "the rollout slot of RootShard " + e.root + " was taken meanwhile"
}

func slotConflict(root *operatorv1alpha1.RootShard) error { return slotConflictError{root.Name} }
