package heartbeat

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// lookAfter says what to do about a shard that is silent.
const lookAfter = "see whether it runs, and whether it and the root shard reach the cache server"

// lookAgain is how often the age of a report is judged.
const lookAgain = 5 * time.Second

// ControllerConfig is what the controller needs.
type ControllerConfig struct {
	Registry *storage.Registry
	// Client writes through the shard's own API.
	Client client.Client
	// Own is the name of this shard, and Reporter what says how it is; Beats tells of the others.
	Own      string
	Reporter *Reporter
	Beats    *Beats
}

type statusController struct {
	ControllerConfig
	shards  *storage.Reader[*corev1alpha1.Shard]
	reports *storage.Reader[*shardingv1alpha1.ShardReport]
}

// Controller returns the controller that copies what shards report of themselves into the status of their Shard objects
// in root. It runs on the root shard.
func Controller(cfg ControllerConfig) controller.Controller {
	shards, reports := corev1alpha1.Resource("shards"), shardingv1alpha1.Resource("shardreports")
	c := &statusController{
		ControllerConfig: cfg,
		shards:           storage.NewReader[*corev1alpha1.Shard](cfg.Registry, shards),
		reports:          storage.NewReader[*shardingv1alpha1.ShardReport](cfg.Registry, reports).Everywhere(),
	}
	return controller.Controller{
		Name: "shard-health",
		Inputs: []controller.Input{
			{Resource: shards, Keys: ofRoot},
			{Resource: reports, Keys: ofShard, Everywhere: true},
		},
		Workers:   1,
		Reconcile: c.reconcile,
	}
}

func ofRoot(event watch.Event) []controller.Key {
	if shard, ok := event.Object.(*corev1alpha1.Shard); !ok || logicalcluster.Of(shard) != logicalcluster.Root {
		return nil
	}
	return controller.ObjectKey(event)
}

func ofShard(event watch.Event) []controller.Key {
	report, ok := event.Object.(*shardingv1alpha1.ShardReport)
	if !ok {
		return nil
	}
	return []controller.Key{{Cluster: logicalcluster.Root, Name: report.Name}}
}

func (c *statusController) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	stored, err := c.shards.Get(ctx, "", key.Name)
	if apierrors.IsNotFound(err) {
		return controller.Result{}, nil
	}
	if err != nil {
		return controller.Result{}, fmt.Errorf("reading the Shard: %w", err)
	}
	spec, silent, err := c.heard(ctx, key.Name)
	if err != nil {
		return controller.Result{}, err
	}
	updated := stored.DeepCopy()
	describe(updated, spec, silent)
	if !equality.Semantic.DeepEqual(stored.Status, updated.Status) {
		if err := c.Client.Status().Update(ctx, updated); err != nil {
			return controller.Result{}, fmt.Errorf("writing the status of the Shard: %w", err)
		}
	}
	return controller.Result{RequeueAfter: lookAgain}, nil
}

// heard returns what a shard last said of itself, nil if nothing, and for how long it has been silent.
func (c *statusController) heard(ctx context.Context, shard string) (*shardingv1alpha1.ShardReportSpec, time.Duration, error) {
	if shard == c.Own {
		spec, err := c.Reporter.Current(ctx)
		return &spec, 0, err
	}
	report, err := c.reports.Get(ctx, "", shard)
	if apierrors.IsNotFound(err) || apierrors.IsServiceUnavailable(err) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("reading the report of the shard: %w", err)
	}
	last, silent := c.Beats.Last(shard)
	if last == nil || last.Spec.Beat != report.Spec.Beat {
		silent = 0 // the report is so new that it has not been taken in there
	}
	return &report.Spec, silent, nil
}

// describe writes what was heard of a shard into its status. What others wrote there stays.
func describe(shard *corev1alpha1.Shard, heard *shardingv1alpha1.ShardReportSpec, silent time.Duration) {
	if heard == nil {
		conditionsv1alpha1.MarkUnknown(shard, conditionsv1alpha1.Ready, corev1alpha1.ReasonShardSilent, "The shard has not been heard of; "+lookAfter)
		return
	}
	shard.Status.Capacity, shard.Status.Load = heard.Capacity, rough(heard.Load)
	reported := &conditioned{heard.Conditions}
	if schedulable := conditionsv1alpha1.Get(reported, corev1alpha1.ShardSchedulable); schedulable != nil {
		conditionsv1alpha1.Set(shard, *schedulable)
	}
	if silent > Patience {
		conditionsv1alpha1.MarkUnknown(shard, conditionsv1alpha1.Ready, corev1alpha1.ReasonShardSilent, "The shard has not been heard of for %s; "+lookAfter, Patience)
	} else if ready := conditionsv1alpha1.Get(reported, conditionsv1alpha1.Ready); ready != nil {
		conditionsv1alpha1.Set(shard, *ready)
	}
}

// rough returns quantities to two digits: every heartbeat has others, and every write of a Shard is read by all shards.
func rough(load corev1.ResourceList) corev1.ResourceList {
	rounded := make(corev1.ResourceList, len(load))
	for name, quantity := range load {
		value, unit := quantity.Value(), int64(1)
		for value/unit >= 100 {
			unit *= 10
		}
		rounded[name] = *resource.NewQuantity(value/unit*unit, quantity.Format)
	}
	return rounded
}
