package instances

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/internal/endpoints"
	"github.com/atoll-dev/atoll/logicalcluster"
)

const (
	// maxCandidates bounds what is kept between two sweeps, maxPurges what one sweep deletes. Others have their turn later.
	maxCandidates, maxPurges = 1000, 50
)

// sweepRegularly removes what is left of workspaces that are gone: their instances have had no chance to be finalized.
func (r *runner) sweepRegularly(ctx context.Context) {
	missed := sets.New[logicalcluster.Name]()
	wait.JitterUntilWithContext(ctx, func(ctx context.Context) { missed = r.sweep(ctx, missed) }, r.SweepInterval, 0.1, true)
}

// sweep purges logical clusters that were missed by the last sweep, too, and of which every server says that it does not serve them. It
// returns those that it misses. While any kind is not known completely, nothing is missed: absence is no evidence then.
func (r *runner) sweep(ctx context.Context, missedBefore sets.Set[logicalcluster.Name]) sets.Set[logicalcluster.Name] {
	present, complete := r.present()
	if !complete {
		sweeps.WithLabelValues(r.Backend, resultIncomplete).Inc()
		return nil
	}
	missed, err := r.sweepMissing(ctx, present, missedBefore)
	if err != nil {
		r.Log.Error(err, "Could not look for workspaces that are gone")
		sweeps.WithLabelValues(r.Backend, resultError).Inc()
		return nil
	}
	sweeps.WithLabelValues(r.Backend, resultSuccess).Inc()
	candidates.WithLabelValues(r.Backend).Set(float64(len(missed)))
	return missed
}

func (r *runner) sweepMissing(ctx context.Context, present sets.Set[string], missedBefore sets.Set[logicalcluster.Name]) (sets.Set[logicalcluster.Name], error) {
	tenants, err := r.Handler.Tenants(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing the tenants that have anything: %w", err)
	}
	views, err := r.views(ctx)
	if err != nil {
		return nil, err
	}
	missed := missing(tenants, present, missedBefore)
	for _, tenant := range due(missed, missedBefore) {
		if !isGone(ctx, tenant, views) {
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
	return missed, nil
}

// missing returns the tenants without instances, those that were missed before first, where there are too many.
func missing(tenants []logicalcluster.Name, present sets.Set[string], missedBefore sets.Set[logicalcluster.Name]) sets.Set[logicalcluster.Name] {
	tenants = slices.DeleteFunc(slices.Clone(tenants), func(tenant logicalcluster.Name) bool { return present.Has(tenant.String()) })
	slices.SortFunc(tenants, func(a, b logicalcluster.Name) int {
		if missedBefore.Has(a) != missedBefore.Has(b) {
			return map[bool]int{true: -1, false: 1}[missedBefore.Has(a)]
		}
		return cmp.Compare(a.String(), b.String())
	})
	return sets.New(tenants[:min(len(tenants), maxCandidates)]...)
}

// due returns the tenants that two sweeps have missed, in an arbitrary order, so that those that cannot be purged do not keep others from it.
func due(missed, missedBefore sets.Set[logicalcluster.Name]) []logicalcluster.Name {
	both := missed.Intersection(missedBefore).UnsortedList()
	return both[:min(len(both), maxPurges)]
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

// remembered are the URLs that the provider has ever used.
func (r *runner) remembered() *endpoints.Remembered {
	return &endpoints.Remembered{Client: r.provider, Key: client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "endpoints-" + r.Export}}
}

// views returns the bindings behind all URLs that were ever used: that a slice has lost one does not mean that its workspaces are gone.
// Those of exports that do not exist any more say nothing.
func (r *runner) views(ctx context.Context) ([]dynamic.ResourceInterface, error) {
	urls, err := r.remembered().All(ctx)
	if err != nil {
		return nil, err
	}
	var views []dynamic.ResourceInterface
	for _, url := range urls {
		err := r.provider.Get(ctx, client.ObjectKey{Name: path.Base(url)}, &apisv1alpha2.APIExport{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading the export of %s: %w", url, err)
		}
		at, err := endpointAt(r.Workspace, url)
		if err != nil {
			return nil, err
		}
		c, err := at.Dynamic()
		if err != nil {
			return nil, fmt.Errorf("connecting to %s: %w", url, err)
		}
		views = append(views, c.Resource(bindings))
	}
	return views, nil
}

// isGone asks the servers whether one logical cluster has bound an export: each says that it does not serve it, although it answers for
// all, and one of them serves others. Servers that refuse everything, or show nothing at all, say nothing about this one.
func isGone(ctx context.Context, tenant logicalcluster.Name, views []dynamic.ResourceInterface) bool {
	one, servesOthers := metav1.ListOptions{Limit: 1}, false
	for _, view := range views {
		_, err := view.List(logicalcluster.With(ctx, tenant), one)
		if !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
			return false
		}
		others, err := view.List(ctx, one)
		if err != nil {
			return false
		}
		servesOthers = servesOthers || len(others.Items) > 0
	}
	return servesOthers
}
