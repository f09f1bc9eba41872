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
	// workers is how many bindings are worked on at once, touching how many objects of each is at work at a time.
	workers, touchConcurrency = 4, 8
	// maxRunTime is how long objects are touched before other bindings get their turn.
	maxRunTime = time.Minute
	// indexSyncDelay is how long the index gets to learn what the labeler has read.
	indexSyncDelay = 20 * time.Millisecond
)

// Config is what the labeler works with.
type Config struct {
	Registry *storage.Registry
	// Index is the one that admission of the same process goes by.
	Index *Index
	// Objects touches objects, Bindings writes the status of bindings, both through the shard's own API, in the logical
	// cluster of the context.
	Objects  metadata.Interface
	Bindings client.Client
}

// labeler has the objects labelled that a binding's claims concern. It compares all objects with what the index wants,
// and sends those that are not right through admission, which is what changes them. What the binding's status says is
// applied tells what is left to do; objects that are right already cost no write, so that a pass that was cut off
// continues where it was.
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

// Controller returns the labeler. Its key is a binding.
func Controller(cfg Config) controller.Controller {
	l := newLabeler(cfg)
	return controller.Controller{
		Name:      "permission-claims",
		Inputs:    []controller.Input{{Resource: apiBindings, Keys: bindingKeys}},
		Workers:   workers,
		Reconcile: l.reconcile,
	}
}

// bindingKeys returns the key of a binding that has anything to do with claims. Most have not: what their status says of
// claims comes with the rest of it (Judge). Claims that have ended are the Releaser's.
func bindingKeys(event watch.Event) []controller.Key {
	binding, ok := event.Object.(*apisv1alpha2.APIBinding)
	if !ok || claimsEnded(binding) || len(binding.Spec.PermissionClaims)+len(binding.Status.AppliedPermissionClaims) == 0 {
		return nil
	}
	return controller.ObjectKey(event)
}

func (l *labeler) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	stored, err := l.bindings.Get(ctx, "", key.Name)
	if err != nil {
		return controller.Result{}, client.IgnoreNotFound(err)
	}
	binding := stored.DeepCopy()
	var again controller.Result
	if pending := UpdateStatus(binding); len(pending) > 0 {
		reflected, err := l.cfg.Index.isUpToDate(stored)
		if err != nil {
			return controller.Result{}, err
		}
		if !reflected {
			return controller.Result{RequeueAfter: indexSyncDelay}, nil
		}
		err = l.relabel(ctx, pending)
		switch {
		case errors.Is(err, errUnfinished):
			again.RequeueAfter = time.Millisecond
		case err != nil:
			setFailed(binding, err)
			again.RequeueAfter = 30 * time.Second
		default:
			setApplied(binding, effectiveClaims(binding))
		}
	}
	if equality.Semantic.DeepEqual(stored.Status, binding.Status) {
		return again, nil
	}
	if err := l.cfg.Bindings.Status().Update(ctx, binding); err != nil && !apierrors.IsNotFound(err) {
		return controller.Result{}, fmt.Errorf("writing which claims of binding %q of %q are applied: %w", key.Name, key.Cluster, err)
	}
	return again, nil
}
