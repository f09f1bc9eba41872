package opentofu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"
	"k8s.io/utils/keymutex"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/backend"
	"github.com/atoll-dev/atoll/infrastructure/backends/opentofu/runner"
	"github.com/atoll-dev/atoll/infrastructure/instance"
	"github.com/atoll-dev/atoll/infrastructure/runtimecluster"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// Name is the name of the backend.
const Name = "opentofu"

const (
	defaultRetry         = 10 * time.Second
	defaultLeaseDuration = time.Minute
)

// Config configures the backend.
type Config struct {
	runtimecluster.Config
	// Image is the image of the runner, which contains tofu-runner and tofu.
	Image string
	// Namespace is the namespace of the runtime cluster for credentials that Templates name, and for states of retained instances; empty
	// means that Templates can have neither.
	Namespace string
	// Unrestricted allows modules that run programs or load other modules.
	Unrestricted bool
	// Retry is the delay after the first failure of a run; 0 means ten seconds.
	Retry time.Duration
	// LeaseDuration is the time after which another run can take the lock of a killed run; 0 means one minute.
	LeaseDuration time.Duration
}

// Backend implements backend.Backend.
type Backend struct {
	*runtimecluster.Backend
	renderer
	namespace    string
	unrestricted bool
	retry        time.Duration
	log          logr.Logger
	// destroying serializes calls of destroy for an instance, because the teardown of its Template and the purge of its workspace call it, too.
	destroying keymutex.KeyMutex
}

var _ backend.Backend = &Backend{}

// New returns the backend.
func New(cfg Config) *Backend {
	return &Backend{
		Backend:   runtimecluster.NewBackend(Name, cfg.Config),
		renderer:  renderer{group: cfg.Group, image: cfg.Image, leaseDuration: cmp.Or(cfg.LeaseDuration, defaultLeaseDuration)},
		namespace: cfg.Namespace, unrestricted: cfg.Unrestricted, retry: cmp.Or(cfg.Retry, defaultRetry), log: cfg.Log,
		destroying: keymutex.NewHashed(0),
	}
}

// SetupTemplate implements backend.Backend. It keeps no state: everything is in the Template.
func (b *Backend) SetupTemplate(ctx context.Context, t *infrastructurev1alpha1.Template) (backend.Status, error) {
	parsed, err := parseConfig(t, b.unrestricted)
	if err != nil {
		return backend.Status{Message: err.Error()}, nil
	}
	if b.namespace == "" && (parsed.Retain || len(parsed.Credentials) > 0) {
		return backend.Status{Message: "spec.backendConfig: credentials and retain need a namespace of the backend; the provider was started without --opentofu-namespace"}, nil
	}
	if _, err := b.credentials(ctx, parsed.Credentials); err != nil {
		return backend.Status{}, err // retried until the Secret exists
	}
	return backend.Status{Ready: true}, b.Watches.Add(batchv1.SchemeGroupVersion.WithKind("Job"))
}

// TeardownTemplate implements backend.Backend.
func (b *Backend) TeardownTemplate(ctx context.Context, t *infrastructurev1alpha1.Template) error {
	return instance.Teardown(ctx, b, t)
}

// Run implements backend.Backend.
func (b *Backend) Run(ctx context.Context, export *rest.Config) error {
	return b.Serve(ctx, export, b)
}

// Apply implements instance.Handler.
func (b *Backend) Apply(ctx context.Context, inst instance.Instance) (instance.State, error) {
	parsed, err := parseConfig(inst.Template, b.unrestricted)
	if err != nil {
		return instance.State{}, fmt.Errorf("%w: %w", instance.ErrUnusableTemplate, err)
	}
	set := runtimecluster.SetOf(inst)
	s, err := b.observe(ctx, set)
	if err != nil {
		return instance.State{}, err
	}
	wanted, err := parsed.inputs(selfOf(inst))
	if err != nil {
		b.log.Info("The variables of an instance have no values", "cluster", set.Tenant, "template", set.Template, "instance", set.Instance, "err", err)
		return s.withOutputs(runtimecluster.InvalidValues()), nil
	}
	s.revision, s.image, s.repair = wanted.settings.Revision, b.imageOf(&wanted.settings.Run), parsed.AutoApply
	if parsed.DriftInterval != nil {
		s.driftInterval = parsed.DriftInterval.Duration
	}
	next := s.decide()
	if next.start != "" || next.cancel {
		next.after, err = b.execute(ctx, set, wanted, s, next)
	}
	if refused, ok := runtimecluster.Refusal(err); ok {
		b.log.Info("A run of an instance is refused", "cluster", set.Tenant, "template", set.Template, "instance", set.Instance, "err", err)
		return s.withOutputs(refused), nil
	}
	return s.state(next.after), err
}

// state returns the state of the instance.
func (s *situation) state(recheckAfter time.Duration) instance.State {
	state := instance.State{RecheckAfter: recheckAfter}
	state.Phase, state.Message = s.phase()
	return s.withOutputs(state)
}

// withOutputs adds the outputs of the last successful run, which stay while another run is active.
func (s *situation) withOutputs(state instance.State) instance.State {
	state.Outputs, state.Connection = s.result.Outputs, s.result.Connection
	return state
}

// Delete implements instance.Handler. It uses the current Template if possible, so that a change of the Template can repair a failing removal.
func (b *Backend) Delete(ctx context.Context, inst instance.Instance) (bool, error) {
	// Without inputs, destroy uses those of the last run: for an instance that disappeared, only the name is known.
	var with *inputs
	if parsed, err := parseConfig(inst.Template, b.unrestricted); err == nil && inst.Object.GetUID() != "" {
		if wanted, err := parsed.inputs(selfOf(inst)); err == nil {
			with = wanted
		}
	}
	return b.destroy(ctx, runtimecluster.SetOf(inst), with)
}

// Purge implements instance.Handler. It destroys the infrastructure of instances before it deletes their state, which takes more than
// one call.
func (b *Backend) Purge(ctx context.Context, tenant logicalcluster.Name) error {
	sets, err := b.Cluster.Sets(ctx, tenant)
	if err != nil {
		return err
	}
	left, errs := false, []error(nil)
	for _, set := range sets {
		gone, err := b.destroy(ctx, set, nil)
		left, errs = left || !gone, append(errs, err)
	}
	if err := errors.Join(errs...); err != nil || left {
		return err
	}
	return b.Cluster.Purge(ctx, tenant)
}

// destroy removes an instance, and reports whether it is gone. Callers repeat it until then. If with is nil, it uses the inputs of the last run.
func (b *Backend) destroy(ctx context.Context, set runtimecluster.Set, with *inputs) (gone bool, err error) {
	key := set.Tenant.String() + "/" + nameOf(set)
	b.destroying.LockKey(key)
	defer func() { _ = b.destroying.UnlockKey(key) }() // it returns an error only for a key that is not locked
	s, err := b.observe(ctx, set)
	if err != nil {
		return false, err
	}
	state, err := b.secret(ctx, set, runner.StateName(nameOf(set)))
	if err != nil {
		return false, err
	}
	if with == nil {
		if with, err = b.storedInputs(ctx, set); err != nil {
			return false, err
		}
	}
	s.revision, s.image, s.retain = with.settings.Revision, b.imageOf(&with.settings.Run), with.settings.Run.Retain
	next, destroyed := s.decideDestroy(state != nil && len(state.Data[runner.StateKey]) > 0)
	switch {
	case destroyed:
		if pods, err := b.pods(ctx, set); err != nil || slices.ContainsFunc(pods, mayRun) {
			return false, err
		}
		if s.retain {
			if err := b.retainState(ctx, set, state); err != nil {
				return false, err
			}
		}
		return b.Cluster.Delete(ctx, set)
	case next.start == "" && !next.cancel:
		return false, nil
	case next.start != "" && len(with.files) == 0:
		return false, fmt.Errorf("the inputs %s of an instance that exists are missing", inputsName(nameOf(set)))
	}
	_, err = b.execute(ctx, set, with, s, next)
	return false, err
}

// storedInputs returns the inputs of the last run, or empty ones if there was none.
func (b *Backend) storedInputs(ctx context.Context, set runtimecluster.Set) (*inputs, error) {
	stored, err := b.secret(ctx, set, inputsName(nameOf(set)))
	if err != nil {
		return nil, err
	}
	if stored == nil {
		return &inputs{}, nil
	}
	return parseInputs(stored)
}

// observe reads the runs of an instance and the result that they have written.
func (b *Backend) observe(ctx context.Context, set runtimecluster.Set) (*situation, error) {
	s := &situation{now: time.Now(), retry: b.retry}
	var jobs batchv1.JobList
	if err := b.Cluster.Client.List(ctx, &jobs, client.InNamespace(runtimecluster.Namespace(set.Tenant)), client.MatchingLabelsSelector{Selector: b.Cluster.Selector(set)}); err != nil {
		return nil, fmt.Errorf("listing runs: %w", err)
	}
	runs := make([]*run, len(jobs.Items))
	for i := range jobs.Items {
		runs[i] = b.runOf(&jobs.Items[i])
	}
	s.last = lastRun(runs)
	if s.last != nil && !s.last.active && !s.last.succeeded {
		if err := b.reportFailure(ctx, set, s.last); err != nil {
			return nil, err
		}
	}
	result, err := b.secret(ctx, set, runner.ResultName(nameOf(set)))
	if err != nil || result == nil || len(result.Data[runner.ResultKey]) == 0 {
		return s, err
	}
	if err := utiljson.Unmarshal(result.Data[runner.ResultKey], &s.result); err != nil { // preserves integers
		return nil, fmt.Errorf("reading the result %s/%s: %w", result.Namespace, result.Name, err)
	}
	if s.result.Drifted && s.last != nil && s.last.operation == runner.Check && s.last.succeeded {
		return s, b.report(ctx, set, s.last, "Drifted", "The infrastructure differs from what was applied; the log of the pod says what.")
	}
	return s, nil
}

// secret returns a Secret of an instance, or nil.
func (b *Backend) secret(ctx context.Context, set runtimecluster.Set, name string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := b.Cluster.Client.Get(ctx, client.ObjectKey{Namespace: runtimecluster.Namespace(set.Tenant), Name: name}, secret)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading Secret %s: %w", name, err)
	}
	if err != nil {
		return nil, nil
	}
	return secret, nil
}

// execute starts or cancels a run, and returns the delay until the next reconciliation. It starts a run only if none is active, so that the
// objects that a run uses do not change during the run.
func (b *Backend) execute(ctx context.Context, set runtimecluster.Set, with *inputs, s *situation, next decision) (time.Duration, error) {
	pods, err := b.pods(ctx, set)
	if err != nil {
		return 0, err
	}
	if next.cancel && !slices.ContainsFunc(pods, func(phase corev1.PodPhase) bool { return phase != corev1.PodPending }) {
		return podsRecheck, b.cancel(ctx, set, s.last)
	}
	if next.cancel || slices.ContainsFunc(pods, mayRun) { // the status of a Job lags behind that of its pods
		return podsRecheck, nil
	}
	started := nextRun(nameOf(set), s.last, next, s.revision)
	credentials, err := b.credentials(ctx, with.settings.Run.Credentials)
	if err != nil {
		return 0, err
	}
	objects, err := b.render(set, with, credentials, started)
	if err != nil {
		return 0, err
	}
	if _, err := b.Cluster.Apply(ctx, set, objects); err != nil {
		return 0, fmt.Errorf("starting a run: %w", err)
	}
	s.last = started
	b.log.V(1).Info("Started a run", "cluster", set.Tenant, "template", set.Template, "instance", set.Instance, "job", started.name, "operation", started.operation)
	return activeRecheck, nil
}

// cancel deletes a run that is not running yet. If it starts at that moment, the deletion terminates it gracefully, and it saves its state.
func (b *Backend) cancel(ctx context.Context, set runtimecluster.Set, pending *run) error {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: runtimecluster.Namespace(set.Tenant), Name: pending.name}}
	err := b.Cluster.Client.Delete(ctx, job, client.Preconditions{UID: &pending.uid}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("canceling run %s: %w", job.Name, err)
	}
	return nil
}

// pods returns the phases of all pods of an instance, including pods of Jobs that were canceled or that somebody has deleted.
func (b *Backend) pods(ctx context.Context, set runtimecluster.Set) ([]corev1.PodPhase, error) {
	var pods corev1.PodList
	if err := b.Cluster.Client.List(ctx, &pods, client.InNamespace(runtimecluster.Namespace(set.Tenant)), client.MatchingLabels{b.group + "/" + labelRuns: nameOf(set)}); err != nil {
		return nil, fmt.Errorf("listing pods of runs: %w", err)
	}
	phases := make([]corev1.PodPhase, len(pods.Items))
	for i := range pods.Items {
		phases[i] = pods.Items[i].Status.Phase
	}
	return phases, nil
}

// mayRun reports whether a pod in a phase runs a process, or may start one.
func mayRun(phase corev1.PodPhase) bool {
	return phase != corev1.PodSucceeded && phase != corev1.PodFailed
}

// selfOf returns the variable self of expressions. It does not contain the name of the tenant's workspace.
func selfOf(inst instance.Instance) map[string]any {
	spec, _, _ := unstructured.NestedMap(inst.Object.Object, "spec")
	return map[string]any{"metadata": map[string]any{"name": inst.Object.GetName()}, "spec": spec}
}
