package instance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

const (
	// deletionInterval is how often the backend checks whether an instance is gone.
	deletionInterval = 2 * time.Second
	// connectionInterval is how often the platform retries to write a connection that the tenant's workspace does not accept.
	connectionInterval = time.Minute
	// provisioningTimeout is how long an instance may be provisioned before it fails.
	provisioningTimeout = 30 * time.Minute
	// toleratedErrors is the number of consecutive errors that are not reported to tenants.
	toleratedErrors = 2
	// tooLargeInterval is how often the platform retries to write outputs that are too large.
	tooLargeInterval = time.Minute
	// statusTimeout bounds the write of a status after an error.
	statusTimeout = 10 * time.Second
)

// errNotAccepted means that the Template is not accepted, and that no previously accepted spec is known.
var errNotAccepted = errors.New("the Template is not accepted")

// request identifies one instance. It is the key of the queue.
type request struct {
	url     string
	gvr     schema.GroupVersionResource
	cluster string
	name    string
}

// Finalizer returns the finalizer of instances of a group. It is the same for all backends.
func Finalizer(group string) string { return "instances." + group + "/runtime" }

// Reconcile implements reconcile.TypedReconciler.
func (r *runner) Reconcile(ctx context.Context, req request) (reconcile.Result, error) {
	kind, found := r.kinds.Get(kindKey{req.url, req.gvr})
	if !found {
		return reconcile.Result{}, nil // the Template or the endpoint is gone
	}
	object := kind.get(req.cluster, req.name)
	isGone := object == nil
	if isGone {
		object = &unstructured.Unstructured{}
		object.SetName(req.name)
	}
	cluster, err := logicalcluster.ParseName(req.cluster)
	if err != nil {
		return reconcile.Result{}, reconcile.TerminalError(err)
	}
	current := kind.current.Load()
	p := &reconciliation{runner: r, request: req, kind: kind, ctx: logicalcluster.With(ctx, cluster), latest: current.latest, instance: Instance{Cluster: cluster, Template: current.template, Object: object}}
	if isGone {
		return p.reconcileDeleted()
	}
	started := time.Now()
	result, err := p.run()
	r.observe(kind, started, err)
	return result, err
}

// run provides the instance, removes it, or releases it to another backend.
func (r *reconciliation) run() (reconcile.Result, error) {
	switch t := r.latest; {
	case r.instance.Object.GetDeletionTimestamp() != nil:
		return r.remove()
	case t.Spec.Backend != r.runner.Backend && t.Spec.Backend == t.Status.Backend.ReplacedBy:
		return r.release()
	case t.Spec.Backend != r.runner.Backend: // objects stay as they are: the spec is for another backend
		return reconcile.Result{}, nil
	case !r.hasFinalizer() && t.DeletionTimestamp != nil: // the instance is about to be deleted with it
		return reconcile.Result{}, nil
	case !isAccepted(r.instance.Template):
		return reconcile.Result{}, r.wait(errNotAccepted)
	}
	return r.provide()
}

// reconciliation is one reconciliation of an instance.
type reconciliation struct {
	runner   *runner
	request  request
	kind     *kind
	ctx      context.Context // of this reconciliation; it carries the logical cluster
	latest   *infrastructurev1alpha1.Template
	instance Instance
}

func (r *reconciliation) client() dynamic.ResourceInterface { return r.kind.client }

// provide reconciles an instance with its spec.
func (r *reconciliation) provide() (reconcile.Result, error) {
	object := r.instance.Object
	if !r.hasFinalizer() {
		// The finalizer comes first, because an instance without it may disappear at any time. The event of this write requeues the instance.
		if err := r.setFinalizers(append(slices.Clone(object.GetFinalizers()), Finalizer(r.runner.Group))); err != nil {
			return reconcile.Result{}, err
		}
		return reconcile.Result{}, r.confirm()
	}
	state, err := r.apply()
	if errors.Is(err, ErrUnusableTemplate) {
		return reconcile.Result{}, r.wait(err)
	}
	if err != nil {
		r.reportUnavailable(err)
		return reconcile.Result{}, fmt.Errorf("providing the instance: %w", err)
	}
	state = settle(object, state, provisioningTimeout, time.Now())
	connected, failed := r.connect(state)
	status, changed := newStatus(object, state, connected, time.Now())
	if changed {
		unwritten := r.writeStatus(status)
		if apierrors.IsRequestEntityTooLargeError(unwritten) {
			state, unwritten = r.leaveOutputsOut(connected)
		}
		failed = errors.Join(unwritten, failed)
		if state.Mistake != "" && state.Phase == infrastructurev1alpha1.PhaseFailed {
			r.recordTemplateError(state.Mistake)
		}
	}
	if failed != nil {
		return reconcile.Result{}, failed
	}
	return reconcile.Result{RequeueAfter: recheckAfter(state, connected)}, nil
}

// leaveOutputsOut writes a status without outputs, for an instance that is too large with them. Tenants determine how long values are, so
// the status reports why the outputs are missing.
func (r *reconciliation) leaveOutputsOut(connected connection) (State, error) {
	state := tooLarge()
	status, changed := newStatus(r.instance.Object, state, connected, time.Now())
	if !changed {
		return state, nil
	}
	return state, r.writeStatus(status)
}

// apply calls the handler. If the instance fails, it reads the instance and retries: a new default of the schema causes no watch event.
func (r *reconciliation) apply() (State, error) {
	state, err := r.runner.Handler.Apply(r.ctx, r.instance)
	if err != nil || state.Phase != infrastructurev1alpha1.PhaseFailed {
		return state, err
	}
	before := r.instance.Object
	current, err := r.client().Get(r.ctx, before.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return state, nil // the watch event of the deletion follows
	}
	if err != nil {
		return State{}, fmt.Errorf("reading the instance: %w", err)
	}
	if current.GetResourceVersion() != before.GetResourceVersion() || equality.Semantic.DeepEqual(current.Object["spec"], before.Object["spec"]) {
		return state, nil
	}
	r.kind.informer.Wrote(current)
	r.instance.Object = current
	return r.runner.Handler.Apply(r.ctx, r.instance)
}

// wait leaves an instance as it is until its Template changes.
func (r *reconciliation) wait(cause error) error {
	log.FromContext(r.ctx).Info("An instance waits for its Template", "template", r.instance.Template.Name, "err", cause)
	if readyCondition(statusOf(r.instance.Object)) != nil {
		return nil
	}
	status, _ := newStatus(r.instance.Object, State{Phase: infrastructurev1alpha1.PhasePending, Message: "The platform is preparing this kind."}, connection{}, time.Now())
	return r.writeStatus(status)
}

// reportUnavailable reports in the status that the instance cannot be reconciled. It ignores the first errors, which a concurrent write of
// another client may cause.
func (r *reconciliation) reportUnavailable(err error) {
	if r.runner.controller.NumRequeues(r.request) < toleratedErrors && !errors.Is(err, context.DeadlineExceeded) {
		return
	}
	status, changed := unavailableStatus(r.instance.Object, time.Now())
	if !changed {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), statusTimeout) // the deadline of the reconciliation may have passed
	defer cancel()
	r.ctx = ctx
	r.report(status)
}

// recheckAfter returns when an instance is reconciled again without an event.
func recheckAfter(state State, connected connection) time.Duration {
	if connected.condition == nil || connected.condition.Status == metav1.ConditionTrue || state.RecheckAfter > 0 && state.RecheckAfter < connectionInterval {
		return state.RecheckAfter
	}
	return connectionInterval // the cause may not produce an event, such as another Secret of that name
}

// remove deletes the objects of an instance, and then removes the finalizer.
func (r *reconciliation) remove() (reconcile.Result, error) {
	object := r.instance.Object
	if !r.hasFinalizer() {
		return reconcile.Result{}, nil
	}
	gone, err := r.runner.Handler.Delete(r.ctx, r.instance)
	if err != nil {
		r.reportUnavailable(err)
		return reconcile.Result{}, fmt.Errorf("removing the instance: %w", err)
	}
	if gone {
		if err := r.removeFinalizer(); err != nil {
			return reconcile.Result{}, err
		}
		r.kind.shard.record(r.ctx, r.instance.Cluster, object, corev1.EventTypeNormal, "Deleted", "The instance has been removed.")
		return reconcile.Result{}, nil
	}
	if status, changed := newStatus(object, removalState(object), connectionOf(object), time.Now()); changed {
		r.report(status)
	}
	return reconcile.Result{RequeueAfter: deletionInterval}, nil
}

// reconcileDeleted deletes the remaining objects of an instance that is gone. Usually there are none. But an instance that is deleted while it gets
// its finalizer can disappear without being finalized, and tenants can remove finalizers.
func (r *reconciliation) reconcileDeleted() (reconcile.Result, error) {
	name := r.instance.Object.GetName()
	_, err := r.client().Get(r.ctx, name, metav1.GetOptions{})
	switch {
	case err == nil:
		return reconcile.Result{}, nil // it exists again, and its watch event follows
	case !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err):
		return reconcile.Result{}, fmt.Errorf("looking for instance %s: %w", name, err) // no other event requeues this request
	case apierrors.IsForbidden(err) || apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
		return reconcile.Result{}, nil // the workspace is not visible, so the instance may exist: the sweep decides
	}
	gone, err := r.runner.Handler.Delete(r.ctx, r.instance)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("removing what is left of instance %s: %w", name, err)
	}
	if !gone {
		return reconcile.Result{RequeueAfter: deletionInterval}, nil
	}
	return reconcile.Result{}, nil
}

// setFinalizers replaces the finalizers, on condition that the object has not changed since it was read.
func (r *reconciliation) setFinalizers(finalizers []string) error {
	patch, err := finalizersPatch(r.instance.Object, finalizers)
	if err != nil {
		return err
	}
	written, err := r.client().Patch(r.ctx, r.instance.Object.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
	return r.wrote(written, err)
}

// writeStatus replaces the status.
func (r *reconciliation) writeStatus(status map[string]any) error {
	object := r.instance.Object.DeepCopy()
	object.Object["status"] = status
	written, err := r.client().UpdateStatus(r.ctx, object, metav1.UpdateOptions{})
	if err == nil {
		r.recordTransition(status)
	}
	return r.wrote(written, err)
}

// report writes a status whose failure does not stop the reconciliation, and reports whether it succeeded. A workspace that has reached a
// limit refuses the write, but allows changes that reduce its size.
func (r *reconciliation) report(status map[string]any) bool {
	err := r.writeStatus(status)
	if err != nil {
		log.FromContext(r.ctx).Info("Failed to write the status of an instance", "err", err)
	}
	return err == nil
}

// wrote stores the written object in the cache, so that the next reconciliation does not see an older state. It ignores conflicts and
// missing objects, because a watch event follows.
func (r *reconciliation) wrote(written *unstructured.Unstructured, err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		return err
	}
	r.kind.informer.Wrote(written)
	return nil
}
