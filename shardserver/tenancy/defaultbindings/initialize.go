package defaultbindings

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/tenancy/workspacetype"
)

// parallelCreates bounds the bindings that are created at once for one logical cluster. Each waits for etcd.
const parallelCreates = 8

// noReservations is the annotation value of a logical cluster without reservations.
const noReservations = "{}"

// Reservations returns the value of ResourceBindingsAnnotationKey of a new logical cluster: the resources of the
// bindings of its types. If it cannot be computed yet it is empty, and the bindings acquire their resources later.
func (b *Binder) Reservations(ctx context.Context, cluster logicalcluster.Name, aliases []workspacetype.Resolved) string {
	all, err := defaultBindings(cluster, aliases)
	if err != nil || len(all) == 0 || b.cfg.Precompute == nil {
		return noReservations
	}
	var created []*apisv1alpha2.APIBinding
	for _, w := range all {
		export, err := b.export(ctx, w.reference)
		if err != nil {
			return noReservations
		}
		created = append(created, newBinding(w, newSpec(w.reference, export, true)))
	}
	reservations, err := b.cfg.Precompute(ctx, cluster, created)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Failed to precompute the bindings of a new logical cluster", "cluster", cluster, "err", err)
	}
	if err != nil || reservations == "" {
		return noReservations
	}
	return reservations
}

// Initialize creates the missing default bindings of the context's logical cluster. Existing ones are not changed. If
// the logical cluster was created with their reservations, the bindings are complete immediately. It returns transient
// errors only.
func (b *Binder) Initialize(ctx context.Context, cluster *corev1alpha1.LogicalCluster, aliases []workspacetype.Resolved) (Outcome, error) {
	name, _ := logicalcluster.From(ctx)
	all, err := defaultBindings(name, aliases)
	if err != nil {
		return Outcome{Refused: []string{err.Error()}}, nil
	}
	existing, err := b.bindings.List(ctx, "", nil)
	if err != nil {
		return Outcome{}, fmt.Errorf("listing APIBindings: %w", err)
	}
	var outcome Outcome
	var created []*apisv1alpha2.APIBinding
	byName := map[string]defaultBinding{}
	for _, w := range all {
		if w.find(existing) != nil {
			_ = outcome.record(w, existing, nil)
			continue
		}
		export, err := b.export(ctx, w.reference)
		switch {
		case errors.Is(err, errMissing):
			_ = outcome.record(w, existing, err)
		case err != nil:
			return outcome, err
		default:
			created, byName[w.name] = append(created, newBinding(w, newSpec(w.reference, export, true))), w
		}
	}
	if len(created) == len(all) {
		if err := b.precompute(ctx, name, cluster, created); err != nil {
			return outcome, err
		}
	}
	errs := make([]error, len(created))
	var creating errgroup.Group
	creating.SetLimit(parallelCreates)
	for i, binding := range created {
		creating.Go(func() error {
			errs[i] = b.create(ctx, binding)
			return nil
		})
	}
	_ = creating.Wait()
	var transient []error
	for i, binding := range created {
		transient = append(transient, outcome.record(byName[binding.Name], append(existing, binding), errs[i]))
	}
	return outcome, errors.Join(transient...)
}

// precompute sets the status of new bindings if the logical cluster was created with their reservations.
func (b *Binder) precompute(ctx context.Context, name logicalcluster.Name, cluster *corev1alpha1.LogicalCluster, created []*apisv1alpha2.APIBinding) error {
	existing := cluster.Annotations[corev1alpha1.ResourceBindingsAnnotationKey]
	if b.cfg.Precompute == nil || existing == "" || existing == noReservations {
		return nil
	}
	reservations, err := b.cfg.Precompute(ctx, name, created)
	if err != nil {
		return fmt.Errorf("precomputing the status of new APIBindings: %w", err)
	}
	if reservations != existing { // something has changed since: the binding controller computes each status
		for _, binding := range created {
			binding.Status = apisv1alpha2.APIBindingStatus{}
		}
	}
	return nil
}
