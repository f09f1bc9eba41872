package ladder

import (
	"context"
	"errors"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/status"
)

// Object is a custom resource of the operator's.
type Object interface {
	client.Object
	GetConditions() []metav1.Condition
}

// ErrRead marks the error of a reconcile that could not read its object.
var ErrRead = errors.New("reading the object")

// Read reads the object that a reconcile is about. It is nil when there is none any more. Errors are ErrRead.
func Read[T any, P interface {
	*T
	Object
}](ctx context.Context, c apply.Cluster, req ctrl.Request) (P, error) {
	object, err := apply.Get[T, P](ctx, c, req.Namespace, req.Name)
	if err != nil {
		return nil, errors.Join(ErrRead, err)
	}
	return object, nil
}

// ErrStop ends a ladder without being a failure: a result in the report says why.
var ErrStop = errors.New("stop")

// Climb takes steps over a scope, in order, up to the first that fails or stops.
func Climb[S any](ctx context.Context, scope S, steps ...func(context.Context, S) error) error {
	for _, step := range steps {
		if err := step(ctx, scope); err != nil {
			if errors.Is(err, ErrStop) {
				return nil
			}
			return err
		}
	}
	return nil
}

// Leave ends the ladder of an object that nothing can be made of. Its pods, if there are any, stay as they are, and are
// reported on. It returns their Deployment, or nil, and ErrStop.
func Leave(ctx context.Context, c apply.Cluster, report *status.Report, namespace, deployment string) (*appsv1.Deployment, error) {
	live, result, err := c.Observe(ctx, operatorv1alpha1.ConditionAvailable, namespace, deployment)
	if err != nil {
		return nil, err
	}
	report.Set(result)
	return live, ErrStop
}

// Look is one look at an object. Before is the object as it was read, Object the same with what is to be its status.
type Look struct {
	Cluster        apply.Cluster
	Recorder       events.EventRecorder
	Before, Object Object
}

// WriteStatus is the only write to the status of an object, and none when nothing changed. What did becomes events.
func (l Look) WriteStatus(ctx context.Context) error {
	was, is := l.Before.GetConditions(), l.Object.GetConditions()
	written, err := l.Cluster.WriteStatus(ctx, l.Before, l.Object)
	if written {
		status.RecordEvents(l.Recorder, l.Object, was, is)
	}
	return err
}

// End writes the status and says when to look again. err is what the ladder ended with, which the caller has put into
// the report: it is repeated with a growing delay.
func (l Look) End(ctx context.Context, report *status.Report, err error) (ctrl.Result, error) {
	if writeErr := l.WriteStatus(ctx); writeErr != nil {
		return ctrl.Result{}, errors.Join(err, writeErr)
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: report.RequeueAfter()}, nil
}
