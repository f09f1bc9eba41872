package defaultbindings

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/klog/v2"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/tenancy/workspacetype"
)

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

// Initialization is the creation of the default bindings of a new logical cluster.
type Initialization struct {
	binder   *Binder
	existing []*apisv1alpha2.APIBinding
	outcome  Outcome
	// created are the bindings to create, of defaults.
	created  []*apisv1alpha2.APIBinding
	defaults []defaultBinding
	errs     []error
}

// Initialize returns the creation of the missing default bindings of the context's logical cluster. Existing ones are not changed. If
// the logical cluster was created with their reservations, the bindings are complete immediately. It returns transient
// errors only.
func (b *Binder) Initialize(ctx context.Context, cluster *corev1alpha1.LogicalCluster, aliases []workspacetype.Resolved) (*Initialization, error) {
	name, _ := logicalcluster.From(ctx)
	i := &Initialization{binder: b}
	all, err := defaultBindings(name, aliases)
	if err != nil {
		i.outcome.Refused = []string{err.Error()}
		return i, nil
	}
	if i.existing, err = b.bindings.List(ctx, "", nil); err != nil {
		return nil, fmt.Errorf("listing APIBindings: %w", err)
	}
	for _, w := range all {
		if w.find(i.existing) != nil {
			_ = i.outcome.record(w, i.existing, nil)
			continue
		}
		export, err := b.export(ctx, w.reference)
		switch {
		case errors.Is(err, errMissing):
			_ = i.outcome.record(w, i.existing, err)
		case err != nil:
			return nil, err
		default:
			i.created, i.defaults = append(i.created, newBinding(w, newSpec(w.reference, export, true))), append(i.defaults, w)
		}
	}
	if len(i.created) == len(all) {
		if err := b.precompute(ctx, name, cluster, i.created); err != nil {
			return nil, err
		}
	}
	i.errs = make([]error, len(i.created))
	return i, nil
}

// Creations returns functions that create the bindings. They may run concurrently, and return no errors: Outcome has them.
func (i *Initialization) Creations() []func(context.Context) error {
	creations := make([]func(context.Context) error, 0, len(i.created))
	for at, binding := range i.created {
		creations = append(creations, func(ctx context.Context) error {
			i.errs[at] = i.binder.create(ctx, binding)
			return nil
		})
	}
	return creations
}

// AcceptsClaims reports whether a binding that Creations creates accepts a permission claim.
func (i *Initialization) AcceptsClaims() bool {
	return slices.ContainsFunc(i.created, func(binding *apisv1alpha2.APIBinding) bool { return len(binding.Spec.PermissionClaims) > 0 })
}

// Outcome returns the state of all default bindings, after all creations. It returns transient errors only.
func (i *Initialization) Outcome() (Outcome, error) {
	var transient []error
	for at, binding := range i.created {
		transient = append(transient, i.outcome.record(i.defaults[at], append(i.existing, binding), i.errs[at]))
	}
	return i.outcome, errors.Join(transient...)
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
