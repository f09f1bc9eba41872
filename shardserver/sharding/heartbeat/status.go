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
	kcpcore "github.com/atoll-dev/atoll/shardserver/apis/core"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// checkInterval is the interval at which the age of a report is checked.
const checkInterval = 5 * time.Second

// ControllerConfig configures the controller.
type ControllerConfig struct {
	Registry *storage.Registry
	// Client is a loopback client.
	Client client.Client
	// ShardName is the name of this shard.
	ShardName string
	// Root is set on the root shard, which has a Shard in root for each shard.
	Root       bool
	Reporter   *Reporter
	Heartbeats *Tracker
}

type statusController struct {
	ControllerConfig
	shards  *storage.Reader[*corev1alpha1.Shard]
	reports *storage.Reader[*shardingv1alpha1.ShardReport]
}

// Controller returns the controller of the status of Shard objects. Each shard writes its state to the Shard that it owns, in system:shard. The
// root shard copies the reports of all shards to their Shards in root.
func Controller(cfg ControllerConfig) controller.Controller {
	shards, reports := corev1alpha1.Resource("shards"), shardingv1alpha1.Resource("shardreports")
	c := &statusController{
		ControllerConfig: cfg,
		shards:           storage.NewReader[*corev1alpha1.Shard](cfg.Registry, shards),
		reports:          storage.NewReader[*shardingv1alpha1.ShardReport](cfg.Registry, reports).Global(),
	}
	return controller.Controller{
		Name: "shard-health",
		Sources: []controller.Source{
			{Resource: shards, MapFunc: c.shardKey},
			{Resource: reports, MapFunc: c.reportKey, Global: true},
		},
		MaxConcurrentReconciles: 1,
		Reconcile:               c.reconcile,
	}
}

func (c *statusController) shardKey(event watch.Event) []controller.Request {
	shard, ok := event.Object.(*corev1alpha1.Shard)
	if !ok {
		return nil
	}
	switch cluster := logicalcluster.Of(shard); {
	case cluster == logicalcluster.Root && c.Root, cluster == logicalcluster.Shard && shard.Name == c.ShardName:
		return controller.RequestForObject(event)
	}
	return nil
}

func (c *statusController) reportKey(event watch.Event) []controller.Request {
	report, ok := event.Object.(*shardingv1alpha1.ShardReport)
	if !ok || !c.Root {
		return nil
	}
	return []controller.Request{{ClusterName: logicalcluster.Root, Name: report.Name}}
}

func (c *statusController) reconcile(ctx context.Context, key controller.Request) (controller.Result, error) {
	stored, err := c.shards.Get(ctx, "", key.Name)
	if apierrors.IsNotFound(err) {
		return controller.Result{}, nil
	}
	if err != nil {
		return controller.Result{}, fmt.Errorf("reading the Shard: %w", err)
	}
	spec, age, err := c.lastReport(ctx, key.Name)
	if err != nil {
		return controller.Result{}, err
	}
	updated := stored.DeepCopy()
	setStatus(updated, spec, age)
	if !equality.Semantic.DeepEqual(stored.Status, updated.Status) {
		if err := c.Client.Status().Update(ctx, updated); err != nil {
			return controller.Result{}, fmt.Errorf("writing the status of the Shard: %w", err)
		}
	}
	return controller.Result{RequeueAfter: checkInterval}, nil
}

// lastReport returns the last report of a shard and its age, or nil if there is none.
func (c *statusController) lastReport(ctx context.Context, shard string) (*shardingv1alpha1.ShardReportSpec, time.Duration, error) {
	if shard == c.ShardName {
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
	last, age := c.Heartbeats.LastReport(shard)
	if last == nil || last.Spec.Beat != report.Spec.Beat {
		age = 0 // the tracker has not received this report yet
	}
	return &report.Spec, age, nil
}

// setStatus writes a report to the status of a Shard. Other status fields are kept.
func setStatus(shard *corev1alpha1.Shard, reported *shardingv1alpha1.ShardReportSpec, age time.Duration) {
	defer kcpcore.MarkCordoned(shard)
	kcpcore.MarkLimits(shard)
	if reported == nil {
		kcpcore.MarkNeverReported(shard)
		return
	}
	shard.Status.Capacity, shard.Status.Load, shard.Status.Used = reported.Capacity, roundDown(reported.Load), reported.Used
	conditions := &conditionList{reported.Conditions}
	for _, condition := range []conditionsv1alpha1.Type{corev1alpha1.ShardSchedulable, corev1alpha1.ShardPublished, corev1alpha1.ShardMovesKnown} {
		if found := conditionsv1alpha1.Get(conditions, condition); found != nil {
			conditionsv1alpha1.Set(shard, *found)
		}
	}
	if age > Timeout {
		conditionsv1alpha1.MarkUnknown(shard, conditionsv1alpha1.Ready, corev1alpha1.ReasonShardNotReporting, "The shard has not reported for %s; "+kcpcore.NoReportAdvice, Timeout)
	} else if ready := conditionsv1alpha1.Get(conditions, conditionsv1alpha1.Ready); ready != nil {
		conditionsv1alpha1.Set(shard, *ready)
	}
}

// roundDown rounds quantities down to two significant digits. This limits writes of Shard objects, which all shards
// watch. The number of logical clusters is exact: what is used of the limits changes with it anyway, and who compares shards needs to know it.
func roundDown(load corev1.ResourceList) corev1.ResourceList {
	rounded := make(corev1.ResourceList, len(load))
	for name, quantity := range load {
		if name == LogicalClusters {
			rounded[name] = quantity
			continue
		}
		value, unit := quantity.Value(), int64(1)
		for value/unit >= 100 {
			unit *= 10
		}
		rounded[name] = *resource.NewQuantity(value/unit*unit, quantity.Format)
	}
	return rounded
}
