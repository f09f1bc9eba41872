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

// Foresee gives the new bindings of a logical cluster that is about to begin the status that they will have, and returns
// the locks that this relies on. It returns "" and leaves the bindings alone where that cannot be told.
type Foresee func(ctx context.Context, cluster logicalcluster.Name, bindings []*apisv1alpha2.APIBinding) (locks string, err error)

// Config is what a Binder needs.
type Config struct {
	Registry *storage.Registry
	Exports  *apiindex.Resolver
	// Client writes through the shard's own API, as the shard itself.
	Client client.Client
	// Foresee may be nil. Then every binding is looked at after it was made.
	Foresee Foresee
}

// Binder makes default bindings. It is safe for concurrent use.
type Binder struct {
	cfg      Config
	bindings *storage.Reader[*apisv1alpha2.APIBinding]
}

// NewBinder returns a Binder that reads what this shard stores.
func NewBinder(cfg Config) *Binder {
	return &Binder{cfg: cfg, bindings: storage.NewReader[*apisv1alpha2.APIBinding](cfg.Registry, bindings)}
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

// Maintain makes those of the bindings that types want maintained what they were: missing ones are made, changed ones
// written over. It touches no other. An error is one of the moment.
func (b *Binder) Maintain(ctx context.Context, aliases []workspacetype.Resolved) (Outcome, error) {
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
		if !w.maintained {
			continue
		}
		if err := outcome.take(w, existing, b.restore(ctx, w, w.in(existing))); err != nil {
			return outcome, err
		}
	}
	return outcome, nil
}

// take notes what became of one binding. It returns errors of the moment.
func (o *Outcome) take(w wanted, existing []*apisv1alpha2.APIBinding, err error) error {
	switch {
	case errors.Is(err, errMissing):
		o.Missing = append(o.Missing, w.reference.String())
	case apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err):
		o.Refused = append(o.Refused, err.Error())
	case err != nil:
		return err
	case !w.completeIn(existing):
		o.Waiting = append(o.Waiting, w.name)
	}
	return nil
}

// errMissing says that an export does not exist.
var errMissing = errors.New("the export does not exist")

func (b *Binder) export(ctx context.Context, reference apiindex.Reference) (*apisv1alpha2.APIExport, error) {
	export, err := b.cfg.Exports.Resolve(ctx, reference)
	if apierrors.IsNotFound(err) {
		return nil, errMissing
	}
	return export, err
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

func newBinding(w wanted, spec apisv1alpha2.APIBindingSpec) *apisv1alpha2.APIBinding {
	return &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: w.name}, Spec: spec}
}

// create makes a binding, which becomes what was stored. One that is there already is as good.
func (b *Binder) create(ctx context.Context, binding *apisv1alpha2.APIBinding) error {
	name := binding.Name
	if err := b.cfg.Client.Create(ctx, binding); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating APIBinding %q: %w", name, err)
	}
	return nil
}
