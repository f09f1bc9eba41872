// Package etcdserver brings up the etcd that the operator runs for a shard or a cache server, and reports on its quorum.
// What its objects look like, and which changes of the spec can be made, package etcd decides.
package etcdserver

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/etcd"
	"github.com/atoll-dev/atoll/controllers/status"
)

const condition = operatorv1alpha1.ConditionEtcdAvailable

// Reconcile applies everything of an etcd but its certificates and reports on its members.
func Reconcile(ctx context.Context, cluster apply.Cluster, report *status.Report, store etcd.Cluster, image desired.Image) error {
	result, err := provide(ctx, cluster, report, store, image)
	return apply.Settle(report, result, err)
}

// Abandoned reports on the etcd that the operator ran for an owner whose spec names another one, while it is still there
// with all the data. The result has no type where there is none.
func Abandoned(ctx context.Context, cluster apply.Cluster, owner desired.Owner) (status.Result, error) {
	live, err := apply.Get[appsv1.StatefulSet](ctx, cluster, owner.Namespace, etcd.StatefulSetName(owner))
	// A StatefulSet of that name which is not the owner's is the user's own etcd.
	if err != nil || live == nil || !ownedBy(live, owner) {
		return status.Result{}, err
	}
	refusal := etcd.ValidateRemoval(live)
	return status.Stall(condition, refusal.Reason, "%s", refusal.Message), nil
}

func provide(ctx context.Context, cluster apply.Cluster, report *status.Report, store etcd.Cluster, image desired.Image) (status.Result, error) {
	namespace := store.Owner().Namespace
	live, err := apply.Get[appsv1.StatefulSet](ctx, cluster, namespace, store.Name())
	if err != nil {
		return status.Result{}, err
	}
	for _, service := range store.Services() {
		if err := cluster.Object(ctx, condition, service); err != nil {
			return status.Result{}, err
		}
	}
	if budget := store.DisruptionBudget(); budget != nil {
		if err := cluster.Object(ctx, condition, budget); err != nil {
			return status.Result{}, err
		}
	}
	wanted := store.StatefulSet(image)
	if live != nil {
		if refusal := etcd.ValidateUpdate(live, wanted); refusal != nil {
			return status.Stall(condition, refusal.Reason, "%s", refusal.Message), nil
		}
		etcd.KeepImage(live, wanted)
	}
	revisions, missing, err := cluster.Revisions(ctx, namespace, desired.MountsOf(&wanted.Spec.Template.Spec))
	switch {
	case err != nil:
		return status.Result{}, err
	case len(missing) > 0 && live == nil:
		return status.Wait(condition, "WaitingForCertificates", "etcd starts once its certificates are issued"), nil
	case len(missing) == 0:
		store.LabelCARevision(wanted, revisions)
		var ready status.Result
		if live != nil {
			ready = quorum(store, live)
		}
		verdict, err := cluster.GatedStore(ctx, live, wanted, ready)
		if err != nil {
			return status.Result{}, err
		}
		report.SetWorst(verdict)
		if err := cluster.Object(ctx, condition, wanted); err != nil {
			return status.Result{}, err
		}
		live = wanted
	}
	return quorum(store, live), nil
}

// quorum reports on the members that are ready. Fewer than all but enough is no reason to hold up anything; members that
// are being replaced are: servers that restart meanwhile would find no store.
func quorum(store etcd.Cluster, live *appsv1.StatefulSet) status.Result {
	ready, want := live.Status.ReadyReplicas, store.Members()
	switch {
	case live.Status.ObservedGeneration < live.Generation:
		return status.Wait(condition, "Updating", "StatefulSet %s is being updated", live.Name)
	case ready >= store.Quorum() && live.Status.UpdatedReplicas < want:
		return status.Wait(condition, "Updating", "%d of %d members run the newest revision", live.Status.UpdatedReplicas, want)
	case ready < store.Quorum():
		return status.Wait(condition, "NoQuorum", "%d of %d members are ready and %d are needed; see `kubectl -n %s describe pods -l app.kubernetes.io/component=etcd,app.kubernetes.io/instance=%s`",
			ready, want, store.Quorum(), live.Namespace, live.Labels["app.kubernetes.io/instance"])
	default:
		return status.OK(condition, "Quorum", "%d of %d members are ready", ready, want)
	}
}

func ownedBy(live metav1.Object, owner desired.Owner) bool {
	for _, have := range live.GetOwnerReferences() {
		for _, want := range owner.References {
			if have.UID == want.UID {
				return true
			}
		}
	}
	return false
}
