// Package reconcile is the control loop of all kinds: it reads an object, lets its kind observe the dependencies of the object, runs the
// steps of the kind in order, and patches the status once at the end. The packages of the kinds contain the steps.
package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/etcd"
	"github.com/atoll-dev/atoll/controllers/etcdserver"
	"github.com/atoll-dev/atoll/controllers/status"
	"github.com/atoll-dev/atoll/controllers/workload"
)

// Object is a custom resource of the operator.
type Object interface {
	client.Object
	GetConditions() []metav1.Condition
}

// Config is the common configuration of the reconcilers of all kinds.
type Config struct {
	Cluster apply.Cluster
	// Live reads past the cache of Cluster, for what must not be decided by an old state; nil reads from Cluster.
	Live     client.Reader
	Recorder events.EventRecorder
	Gate     workload.Gate      // of rollouts; nil admits every change immediately
	Image    desired.Image      // of servers whose spec names none
	Etcd     etcdserver.Members // of etcds that the operator runs; nil disables their repair
	// ClusterID identifies this Kubernetes cluster among all.
	ClusterID string
	// ArgoCDNamespace is the namespace in which Argo CD finds its clusters; it is empty if Argo CD is not installed.
	ArgoCDNamespace string
	Now             func() time.Time
	// LookupHost resolves the hosts of etcds; nil disables the check.
	LookupHost etcd.LookupFunc
}

// Reader is Live, or else Cluster.
func (c Config) Reader() client.Reader {
	if c.Live != nil {
		return c.Live
	}
	return c.Cluster
}

// NewDeployment returns the Deployment of a server for one reconcile. condition is the type of the condition about its
// pods.
func (c Config) NewDeployment(report *status.Report, condition, namespace, name string) workload.Deployment {
	return workload.Deployment{Cluster: c.Cluster, Gate: c.Gate, Report: report, Now: c.Now, Condition: condition, Namespace: namespace, Name: name}
}

// Scope is one object during one reconcile.
type Scope interface {
	// Observe reads all input of the steps. It writes nothing.
	Observe(ctx context.Context) error
	// Steps reconcile the object with its spec, in order.
	Steps() []Step
	// SetStatus computes the status of the object from the report and from the observed objects.
	SetStatus()
}

// Finalizer is a Scope whose kind has a finalizer. Owner references delete the dependents of objects of other kinds.
type Finalizer interface {
	// FinalizeSteps replace Steps while the object is being deleted. They end with ErrFinalized.
	FinalizeSteps() []Step
}

// Step is one named part of a reconcile. Its results go into the report of the object; its error is transient, unless
// it is ErrStop or ErrFinalized.
type Step struct {
	Name string
	Run  func(context.Context) error
}

var (
	// ErrRead marks the error of a reconcile that could not read its object.
	ErrRead = errors.New("reading the object")
	// ErrStop skips the remaining steps. A result in the report has the reason.
	ErrStop = errors.New("stop")
	// ErrFinalized ends the reconcile of an object whose finalizer is removed: its status must not be written.
	ErrFinalized = errors.New("finalized")
)

// Reconciler reconciles the objects of one kind.
type Reconciler[T Object] struct {
	Config
	Watches Watches[T]
	// NewScope returns the scope of an object for one reconcile. Results are added to the report.
	NewScope func(object T, report *status.Report) Scope
}

// Reconcile reconciles one object. It patches the status once, at the end, even after an error.
func (r *Reconciler[T]) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	object := r.Watches.For.DeepCopyObject().(T)
	if err := r.Cluster.Get(ctx, req.NamespacedName, object); err != nil {
		if apierrors.IsNotFound(err) {
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, errors.Join(ErrRead, err)
	}
	before, report := object.DeepCopyObject().(T), &status.Report{}
	scope := r.NewScope(object, report)
	err := runSteps(ctx, scope, object.GetDeletionTimestamp() != nil)
	if errors.Is(err, ErrFinalized) {
		return ctrl.Result{}, nil
	}
	report.Transient = err
	scope.SetStatus()
	if writeErr := r.writeStatus(ctx, before, object); writeErr != nil || err != nil {
		return ctrl.Result{}, errors.Join(err, writeErr)
	}
	return ctrl.Result{RequeueAfter: report.RequeueAfter()}, nil
}

// runSteps observes, and runs the steps until one fails or stops.
func runSteps(ctx context.Context, scope Scope, deleting bool) error {
	steps := scope.Steps
	if deleting {
		finalizer, ok := scope.(Finalizer)
		if !ok {
			return nil
		}
		steps = finalizer.FinalizeSteps
	}
	if err := scope.Observe(ctx); err != nil {
		return err
	}
	for _, step := range steps() {
		err := step.Run(ctx)
		switch {
		case errors.Is(err, ErrStop):
			return nil
		case err != nil:
			return fmt.Errorf("%s: %w", step.Name, err)
		}
	}
	return nil
}

// writeStatus patches the status if it changed, and records events about changed conditions.
func (r *Reconciler[T]) writeStatus(ctx context.Context, before, after T) error {
	// A step may have changed the finalizers, which is a separate write.
	before.SetFinalizers(after.GetFinalizers())
	before.SetResourceVersion(after.GetResourceVersion())
	previous, current := before.GetConditions(), after.GetConditions()
	written, err := r.Cluster.WriteStatus(ctx, before, after)
	if written {
		status.RecordEvents(r.Recorder, after, previous, current)
	}
	return err
}
