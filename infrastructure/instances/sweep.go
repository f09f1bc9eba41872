package instances

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// sweepRegularly removes what is left of workspaces that are gone: their instances have had no chance to be finalized.
func (r *runner) sweepRegularly(ctx context.Context) {
	missed := sets.New[logicalcluster.Name]()
	wait.JitterUntilWithContext(ctx, func(ctx context.Context) { missed = r.sweep(ctx, missed) }, r.SweepInterval, 0.1, true)
}

// sweep purges logical clusters that were missed by the last sweep, too, and of which every server says that nothing is there. It returns
// those that it misses. While any kind is not known completely, nothing is missed: absence is no evidence then.
func (r *runner) sweep(ctx context.Context, missedBefore sets.Set[logicalcluster.Name]) sets.Set[logicalcluster.Name] {
	missed := sets.New[logicalcluster.Name]()
	present, complete := r.present()
	if !complete {
		sweeps.WithLabelValues(r.Backend, resultIncomplete).Inc()
		return missed
	}
	tenants, err := r.Handler.Tenants(ctx)
	if err != nil {
		sweeps.WithLabelValues(r.Backend, resultError).Inc()
		r.Log.Error(err, "Could not list the tenants that have anything")
		return missed
	}
	for _, tenant := range tenants {
		if present.Has(tenant.String()) {
			continue
		}
		missed.Insert(tenant)
		if !missedBefore.Has(tenant) || !r.isGone(ctx, tenant) {
			continue
		}
		if err := r.Handler.Purge(ctx, tenant); err != nil {
			r.Log.Error(err, "Could not purge a workspace that is gone", "cluster", tenant)
			purges.WithLabelValues(r.Backend, resultError).Inc()
			continue
		}
		r.Log.Info("Purged what was left of a workspace that is gone", "cluster", tenant)
		purges.WithLabelValues(r.Backend, resultSuccess).Inc()
		r.recordPurge(ctx, tenant)
	}
	sweeps.WithLabelValues(r.Backend, resultSuccess).Inc()
	candidates.WithLabelValues(r.Backend).Set(float64(len(missed)))
	return missed
}

// present returns the logical clusters with instances, and whether all are known. A workspace of the provider without kinds or endpoints
// shows nothing: it may be another one than that in which the tenants of the runtime cluster were served.
func (r *runner) present() (clusters sets.Set[string], complete bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	clusters = sets.New[string]()
	for _, k := range r.kinds {
		if synced, err := k.informer.Status(); !synced || err != nil {
			return nil, false
		}
		for _, found := range k.informer.Keys() {
			clusters.Insert(found.Cluster)
		}
	}
	return clusters, r.complete && len(r.kinds) > 0
}

// isGone asks the servers for the instances of one logical cluster: each says that it has none, or that it does not serve it.
func (r *runner) isGone(ctx context.Context, tenant logicalcluster.Name) bool {
	r.mu.Lock()
	kinds := make([]*kind, 0, len(r.kinds))
	for _, k := range r.kinds {
		kinds = append(kinds, k)
	}
	r.mu.Unlock()
	ctx = logicalcluster.With(ctx, tenant)
	for _, k := range kinds {
		list, err := k.client.List(ctx, metav1.ListOptions{Limit: 1})
		switch {
		case err == nil && len(list.Items) == 0:
		case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		default:
			return false
		}
	}
	return true
}
