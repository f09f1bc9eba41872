package defaultbindings

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/tenancy/workspacetype"
)

// Precompute sets the status of the new bindings of a new logical cluster in advance, and returns the reservations that
// this depends on. It returns "" and does not change the bindings if the status cannot be computed.
type Precompute func(ctx context.Context, cluster logicalcluster.Name, bindings []*apisv1alpha2.APIBinding) (reservations string, err error)

// Config configures a Binder.
type Config struct {
	Registry *storage.Registry
	Exports  *apiindex.Resolver
	// Client is a loopback client.
	Client client.Client
	// Precompute may be nil. Then the binding controller computes the status.
	Precompute Precompute
}

// Binder creates default bindings. It is safe for concurrent use.
type Binder struct {
	cfg      Config
	bindings *storage.Reader[*apisv1alpha2.APIBinding]
}

// NewBinder returns a Binder.
func NewBinder(cfg Config) *Binder {
	return &Binder{cfg: cfg, bindings: storage.NewReader[*apisv1alpha2.APIBinding](cfg.Registry, bindings)}
}

// Outcome is the state of the default bindings of a logical cluster. It is empty if all are complete.
type Outcome struct {
	// Missing are exports that do not exist, as "<path>:<name>". A retry may succeed.
	Missing []string
	// Refused are the errors of bindings that were denied or invalid. Retries do not help.
	Refused []string
	// Waiting are the names of bindings that are not complete yet.
	Waiting []string
}

// Done reports whether all bindings are complete.
func (o Outcome) Done() bool { return len(o.Missing)+len(o.Refused)+len(o.Waiting) == 0 }

// Problems returns messages about bindings that cannot be created.
func (o Outcome) Problems() []string {
	var problems []string
	for _, export := range o.Missing {
		problems = append(problems, fmt.Sprintf("APIExport %q does not exist", export))
	}
	return append(problems, o.Refused...)
}

// Maintain creates missing maintained bindings and restores changed ones. It returns transient errors only.
func (b *Binder) Maintain(ctx context.Context, aliases []workspacetype.Resolved) (Outcome, error) {
	cluster, _ := logicalcluster.From(ctx)
	all, err := defaultBindings(cluster, aliases)
	if err != nil {
		return Outcome{Refused: []string{err.Error()}}, nil
	}
	existing, err := b.bindings.List(ctx, "", nil)
	if err != nil {
		return Outcome{}, fmt.Errorf("listing APIBindings: %w", err)
	}
	var outcome Outcome
	for _, w := range all {
		if !w.maintained {
			continue
		}
		if err := outcome.record(w, existing, b.restore(ctx, w, w.find(existing))); err != nil {
			return outcome, err
		}
	}
	return outcome, nil
}

// record adds the result of one binding. It returns transient errors.
func (o *Outcome) record(w defaultBinding, existing []*apisv1alpha2.APIBinding, err error) error {
	switch {
	case errors.Is(err, errMissing):
		o.Missing = append(o.Missing, w.reference.String())
	case apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err):
		o.Refused = append(o.Refused, err.Error())
	case err != nil:
		return err
	case !w.isCompleteIn(existing):
		o.Waiting = append(o.Waiting, w.name)
	}
	return nil
}

// errMissing is returned for an export that does not exist.
var errMissing = errors.New("the export does not exist")

func (b *Binder) export(ctx context.Context, reference apiindex.Reference) (*apisv1alpha2.APIExport, error) {
	export, err := b.cfg.Exports.Resolve(ctx, reference)
	if apierrors.IsNotFound(err) {
		return nil, errMissing
	}
	return export, err
}

// restore creates a missing binding, or updates one that differs.
func (b *Binder) restore(ctx context.Context, w defaultBinding, found *apisv1alpha2.APIBinding) error {
	if found != nil && found.DeletionTimestamp != nil {
		return nil // it is created again after its deletion
	}
	export, err := b.export(ctx, w.reference)
	if err != nil {
		return err
	}
	spec := newSpec(w.reference, export, false)
	if found == nil {
		return b.create(ctx, newBinding(w, spec))
	}
	if equality.Semantic.DeepEqual(found.Spec, spec) {
		return nil
	}
	updated := found.DeepCopy()
	updated.Spec = spec
	if err := b.cfg.Client.Update(ctx, updated); err != nil {
		return fmt.Errorf("restoring APIBinding %q: %w", w.name, err)
	}
	return nil
}

func newBinding(w defaultBinding, spec apisv1alpha2.APIBindingSpec) *apisv1alpha2.APIBinding {
	return &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: w.name}, Spec: spec}
}

// create creates a binding and updates it from the response. An existing one is not an error.
func (b *Binder) create(ctx context.Context, binding *apisv1alpha2.APIBinding) error {
	name := binding.Name
	if err := b.cfg.Client.Create(ctx, binding); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating APIBinding %q: %w", name, err)
	}
	return nil
}
