package claims

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

const (
	// workers is the number of bindings, and touchConcurrency of objects per binding, that are processed at once.
	workers, touchConcurrency = 4, 8
	// maxRunTime is how long a worker relabels objects of one binding before it requeues it.
	maxRunTime = time.Minute
	// indexSyncDelay is the retry interval while the index lags behind the watch cache.
	indexSyncDelay = 20 * time.Millisecond
)

// Config holds the dependencies of the package's controllers.
type Config struct {
	Registry *storage.Registry
	// Index is the index that admission of the same process uses.
	Index *Index
	// Objects patches objects and Bindings writes the status of bindings, both through the shard's own API in the logical
	// cluster of the context.
	Objects  metadata.Interface
	Bindings client.Client
}

// labeler relabels the objects of claimed resources. It compares the labels of all objects with the index and sends an
// empty patch for outdated ones, so that admission sets the labels. status.appliedPermissionClaims determines which
// resources are left; objects with correct labels cost no write, so that an interrupted run continues where it stopped.
type labeler struct {
	cfg      Config
	bindings *storage.Reader[*apisv1alpha2.APIBinding]
	clusters *storage.Reader[*corev1alpha1.LogicalCluster]
}

func newLabeler(cfg Config) *labeler {
	return &labeler{
		cfg:      cfg,
		bindings: storage.NewReader[*apisv1alpha2.APIBinding](cfg.Registry, apiBindings),
		clusters: storage.NewReader[*corev1alpha1.LogicalCluster](cfg.Registry, corev1alpha1.Resource("logicalclusters")),
	}
}

// Controller returns the controller that relabels objects. Its keys are bindings.
func Controller(cfg Config) controller.Controller {
	l := newLabeler(cfg)
	return controller.Controller{
		Name:                    "permission-claims",
		Sources:                 []controller.Source{{Resource: apiBindings, MapFunc: bindingKeys}},
		MaxConcurrentReconciles: workers,
		Reconcile:               l.reconcile,
	}
}

// bindingKeys returns the key of a binding with claims. The status of others is complete without relabeling (see
// UpdateStatus). Releaser handles claims that have ended.
func bindingKeys(event watch.Event) []controller.Request {
	binding, ok := event.Object.(*apisv1alpha2.APIBinding)
	if !ok || areClaimsEnded(binding) || len(binding.Spec.PermissionClaims)+len(binding.Status.AppliedPermissionClaims) == 0 {
		return nil
	}
	return controller.RequestForObject(event)
}

func (l *labeler) reconcile(ctx context.Context, key controller.Request) (controller.Result, error) {
	stored, err := l.bindings.Get(ctx, "", key.Name)
	if err != nil {
		return controller.Result{}, client.IgnoreNotFound(err)
	}
	binding := stored.DeepCopy()
	var result controller.Result
	if pending := UpdateStatus(binding); len(pending) > 0 {
		upToDate, err := l.cfg.Index.isUpToDate(stored)
		if err != nil {
			return controller.Result{}, err
		}
		if !upToDate {
			return controller.Result{RequeueAfter: indexSyncDelay}, nil
		}
		err = l.relabel(ctx, pending)
		switch {
		case errors.Is(err, errUnfinished):
			result.RequeueAfter = time.Millisecond
		case err != nil:
			setFailed(binding, err)
			result.RequeueAfter = 30 * time.Second
		default:
			setApplied(binding, effectiveClaims(binding))
		}
	}
	if equality.Semantic.DeepEqual(stored.Status, binding.Status) {
		return result, nil
	}
	if err := l.cfg.Bindings.Status().Update(ctx, binding); err != nil && !apierrors.IsNotFound(err) {
		return controller.Result{}, fmt.Errorf("writing the applied claims of APIBinding %q of %q: %w", key.Name, key.ClusterName, err)
	}
	return result, nil
}
