package defaultbindings

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/klog/v2"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/tenancy/workspacetype"
)

// noLocks is what stands in the annotation of a logical cluster in which nothing belongs to anybody.
const noLocks = "{}"

// Locks returns what a new logical cluster is made with in its annotation ResourceBindingsAnnotationKey: what will belong
// to the bindings of its types. Where that cannot be told yet it is empty, and the bindings take what is theirs later.
func (b *Binder) Locks(ctx context.Context, cluster logicalcluster.Name, aliases []workspacetype.Resolved) string {
	all, err := wantedBy(cluster, aliases)
	if err != nil || len(all) == 0 || b.cfg.Foresee == nil {
		return noLocks
	}
	var born []*apisv1alpha2.APIBinding
	for _, w := range all {
		export, err := b.export(ctx, w.reference)
		if err != nil {
			return noLocks
		}
		born = append(born, newBinding(w, specOf(w.reference, export, true)))
	}
	locks, err := b.cfg.Foresee(ctx, cluster, born)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("The bindings of a new logical cluster cannot be foreseen", "cluster", cluster, "err", err)
	}
	if err != nil || locks == "" {
		return noLocks
	}
	return locks
}

// Initialize makes the bindings that the types of the context's logical cluster ask for and that it does not have. What
// is there is left as it is. Bindings of a logical cluster that was made with their locks are complete at once. An error
// is one of the moment.
func (b *Binder) Initialize(ctx context.Context, cluster *corev1alpha1.LogicalCluster, aliases []workspacetype.Resolved) (Outcome, error) {
	name, _ := logicalcluster.From(ctx)
	all, err := wantedBy(name, aliases)
	if err != nil {
		return Outcome{Refused: []string{err.Error()}}, nil
	}
	existing, err := b.bindings.List(ctx, "", nil)
	if err != nil {
		return Outcome{}, fmt.Errorf("listing APIBindings: %w", err)
	}
	var outcome Outcome
	var born []*apisv1alpha2.APIBinding
	of := map[string]wanted{}
	for _, w := range all {
		if w.in(existing) != nil {
			_ = outcome.take(w, existing, nil)
			continue
		}
		export, err := b.export(ctx, w.reference)
		switch {
		case errors.Is(err, errMissing):
			_ = outcome.take(w, existing, err)
		case err != nil:
			return outcome, err
		default:
			born, of[w.name] = append(born, newBinding(w, specOf(w.reference, export, true))), w
		}
	}
	if len(born) == len(all) {
		if err := b.foresee(ctx, name, cluster, born); err != nil {
			return outcome, err
		}
	}
	for _, binding := range born {
		w := of[binding.Name]
		err := b.create(ctx, binding)
		if err := outcome.take(w, append(existing, binding), err); err != nil {
			return outcome, err
		}
	}
	return outcome, nil
}

// foresee gives new bindings the status that they will have, if the logical cluster was made with the locks for it.
func (b *Binder) foresee(ctx context.Context, name logicalcluster.Name, cluster *corev1alpha1.LogicalCluster, born []*apisv1alpha2.APIBinding) error {
	held := cluster.Annotations[corev1alpha1.ResourceBindingsAnnotationKey]
	if b.cfg.Foresee == nil || held == "" || held == noLocks {
		return nil
	}
	locks, err := b.cfg.Foresee(ctx, name, born)
	if err != nil {
		return fmt.Errorf("finding out what new APIBindings bind: %w", err)
	}
	if locks != held { // something has changed since: they are looked at one by one
		for _, binding := range born {
			binding.Status = apisv1alpha2.APIBindingStatus{}
		}
	}
	return nil
}
