package defaultbindings

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiexport"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/tenancy/workspacetype"
)

// Binder makes default bindings. It is safe for concurrent use.
type Binder struct {
	bindings *storage.Reader[*apisv1alpha2.APIBinding]
	exports  *apiexport.Catalog
	// client writes through the shard's own API, as a member of system:masters.
	client client.Client
}

// NewBinder returns a Binder that reads what this shard stores.
func NewBinder(registry *storage.Registry, exports *apiexport.Catalog, c client.Client) *Binder {
	return &Binder{bindings: storage.NewReader[*apisv1alpha2.APIBinding](registry, bindings), exports: exports, client: c}
}

// Outcome is how far the default bindings of a logical cluster are. Nothing in it: all are there and complete.
type Outcome struct {
	// Missing are exports that do not exist, as "<path>:<name>". Looking again later may help.
	Missing []string
	// Refused says why bindings could not be made. Only a change of something helps.
	Refused []string
	// Waiting are the names of bindings that are not complete yet.
	Waiting []string
}

// Done tells whether all bindings are there and complete.
func (o Outcome) Done() bool { return len(o.Missing)+len(o.Refused)+len(o.Waiting) == 0 }

// Problems returns what keeps bindings from being made, for people; nil if nothing does.
func (o Outcome) Problems() []string {
	var problems []string
	for _, export := range o.Missing {
		problems = append(problems, fmt.Sprintf("APIExport %q does not exist", export))
	}
	return append(problems, o.Refused...)
}

// Initialize makes the bindings that the types of the context's logical cluster ask for and that it does not have. What
// is there is left as it is. An error is one of the moment.
func (b *Binder) Initialize(ctx context.Context, aliases []workspacetype.Resolved) (Outcome, error) {
	return b.each(ctx, aliases, func(wanted) bool { return true }, b.create)
}

// Maintain makes those of the bindings that types want maintained what they were: missing ones are made, changed ones
// written over. It touches no other.
func (b *Binder) Maintain(ctx context.Context, aliases []workspacetype.Resolved) (Outcome, error) {
	return b.each(ctx, aliases, func(w wanted) bool { return w.maintained }, b.restore)
}

// each brings every chosen binding to where it shall be, and looks how far all of them are.
func (b *Binder) each(ctx context.Context, aliases []workspacetype.Resolved, chosen func(wanted) bool, ensure func(context.Context, wanted, *apisv1alpha2.APIBinding) error) (Outcome, error) {
	cluster, _ := logicalcluster.From(ctx)
	all, err := wantedBy(cluster, aliases)
	if err != nil {
		return Outcome{Refused: []string{err.Error()}}, nil
	}
	existing, err := b.bindings.List(ctx, "", nil)
	if err != nil {
		return Outcome{}, fmt.Errorf("listing APIBindings: %w", err)
	}
	var outcome Outcome
	for _, w := range all {
		if !chosen(w) {
			continue
		}
		at := slices.IndexFunc(existing, func(binding *apisv1alpha2.APIBinding) bool { return binding.Name == w.name })
		var found *apisv1alpha2.APIBinding
		if at >= 0 {
			found = existing[at]
		}
		switch err := ensure(ctx, w, found); {
		case errors.Is(err, errMissing):
			outcome.Missing = append(outcome.Missing, w.reference.String())
		case apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err):
			outcome.Refused = append(outcome.Refused, err.Error())
		case err != nil:
			return outcome, err
		case !w.completeIn(existing):
			outcome.Waiting = append(outcome.Waiting, w.name)
		}
	}
	return outcome, nil
}

// errMissing says that an export does not exist.
var errMissing = errors.New("the export does not exist")

func (b *Binder) export(ctx context.Context, reference apiexport.Reference) (*apisv1alpha2.APIExport, error) {
	export, err := b.exports.ByPath(ctx, reference)
	if apierrors.IsNotFound(err) {
		return nil, errMissing
	}
	return export, err
}

// create makes a binding that is not there.
func (b *Binder) create(ctx context.Context, w wanted, found *apisv1alpha2.APIBinding) error {
	if found != nil {
		return nil
	}
	export, err := b.export(ctx, w.reference)
	if err != nil {
		return err
	}
	return b.write(ctx, w, specOf(w.reference, export, true))
}

// restore makes a binding that is not there, or that differs, what it shall be.
func (b *Binder) restore(ctx context.Context, w wanted, found *apisv1alpha2.APIBinding) error {
	if found != nil && found.DeletionTimestamp != nil {
		return nil // it is made anew when it is gone
	}
	export, err := b.export(ctx, w.reference)
	if err != nil {
		return err
	}
	spec := specOf(w.reference, export, false)
	if found == nil {
		return b.write(ctx, w, spec)
	}
	if equality.Semantic.DeepEqual(found.Spec, spec) {
		return nil
	}
	updated := found.DeepCopy()
	updated.Spec = spec
	if err := b.client.Update(ctx, updated); err != nil {
		return fmt.Errorf("restoring APIBinding %q: %w", w.name, err)
	}
	return nil
}

func (b *Binder) write(ctx context.Context, w wanted, spec apisv1alpha2.APIBindingSpec) error {
	binding := &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: w.name}, Spec: spec}
	if err := b.client.Create(ctx, binding); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating APIBinding %q: %w", w.name, err)
	}
	return nil
}
