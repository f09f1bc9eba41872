package instance

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
	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/logicalcluster"
)

const (
	// maxCandidates bounds the candidates that a sweep remembers and checks; maxPurges bounds its purges. Later sweeps handle the others.
	maxCandidates, maxPurges = 1000, 50
	// idleSweeps is the number of consecutive sweeps without any binding after which the export counts as unbound.
	idleSweeps = 3
)

// candidacy is the state that one sweep passes to the next.
type candidacy struct {
	// missed are tenants without known instances, for whom no server has reported a binding.
	missed sets.Set[logicalcluster.Name]
	// after is the last tenant that became a candidate.
	after string
	// idle is the number of consecutive sweeps in which all servers answered and none served any workspace.
	idle int
}

// sweepRegularly removes the remains of deleted workspaces, whose instances could not be finalized, and of instances that disappeared
// without finalization while no provider was running.
func (r *runner) sweepRegularly(ctx context.Context) {
	var before candidacy
	wait.JitterUntilWithContext(ctx, func(ctx context.Context) { before = r.sweep(ctx, before) }, r.SweepInterval, 0.1, true)
}

// sweep purges logical clusters that the previous sweep missed, too, and that every server reports not to serve. It returns those that it
// misses. While the cache of any kind is incomplete, it misses none, because an instance that is not in the cache may exist.
func (r *runner) sweep(ctx context.Context, before candidacy) candidacy {
	present, complete := r.present()
	if !complete {
		sweeps.WithLabelValues(r.Backend, resultIncomplete).Inc()
		return candidacy{after: before.after}
	}
	now, err := r.sweepMissing(ctx, present, before)
	if err == nil {
		err = r.enqueueUnknown(ctx)
	}
	if err != nil {
		r.Log.Error(err, "Failed to look for workspaces and instances that are gone")
		sweeps.WithLabelValues(r.Backend, resultError).Inc()
		return candidacy{after: before.after}
	}
	sweeps.WithLabelValues(r.Backend, resultSuccess).Inc()
	candidates.WithLabelValues(r.Backend).Set(float64(len(now.missed)))
	return now
}

func (r *runner) sweepMissing(ctx context.Context, present sets.Set[string], before candidacy) (candidacy, error) {
	tenants, err := r.Handler.Tenants(ctx)
	if err != nil {
		return candidacy{}, fmt.Errorf("listing the tenants that have anything: %w", err)
	}
	views, err := r.views(ctx)
	if err != nil {
		return candidacy{}, err
	}
	now := missing(tenants, present, before)
	if len(present) == 0 && workspaces.IsUnbound(ctx, views) {
		now.idle = before.idle + 1
	}
	attempts := 0
	// The order is arbitrary, so that tenants that cannot be purged do not block others.
	for tenant := range now.missed.Intersection(before.missed) {
		if attempts == maxPurges || ctx.Err() != nil {
			break
		}
		isGone, isBound := workspaces.IsGone(ctx, tenant, views, now.idle >= idleSweeps)
		if isBound {
			now.missed.Delete(tenant)
			continue
		}
		attempts++ // a server that does not answer takes time, too
		if isGone {
			r.purge(ctx, tenant)
		}
	}
	return now, nil
}

// enqueueUnknown enqueues the instances of which the backend has objects and that are in no cache. Reconciliation removes the objects only
// after the server of the workspace reports that the instance does not exist.
func (r *runner) enqueueUnknown(ctx context.Context) error {
	found, err := r.Handler.Instances(ctx)
	if err != nil {
		return fmt.Errorf("listing the instances that there is anything of: %w", err)
	}
	kinds := map[string][]*kind{} // by Template
	for _, k := range r.kinds.All() {
		kinds[k.template().Name] = append(kinds[k.template().Name], k)
	}
	for _, i := range found {
		cluster := i.Cluster.String()
		if slices.ContainsFunc(kinds[i.Template], func(k *kind) bool { return k.get(cluster, i.Name) != nil }) {
			continue
		}
		for _, k := range kinds[i.Template] {
			r.controller.Add(request{k.url, k.gvr, cluster, i.Name})
		}
	}
	return nil
}

func (r *runner) purge(ctx context.Context, tenant logicalcluster.Name) {
	if err := r.Handler.Purge(ctx, tenant); err != nil {
		r.Log.Error(err, "Failed to purge a workspace that is gone", "cluster", tenant)
		purges.WithLabelValues(r.Backend, resultError).Inc()
		return
	}
	r.Log.Info("Purged what was left of a workspace that is gone", "cluster", tenant)
	purges.WithLabelValues(r.Backend, resultSuccess).Inc()
	r.recordPurge(ctx, tenant)
}

// missing returns tenants without instances: those that were missed before, and others up to the limit, in rotation.
func missing(tenants []logicalcluster.Name, present sets.Set[string], before candidacy) candidacy {
	now := candidacy{missed: sets.New[logicalcluster.Name](), after: before.after}
	var others []logicalcluster.Name
	for _, tenant := range tenants {
		switch {
		case present.Has(tenant.String()):
		case before.missed.Has(tenant):
			now.missed.Insert(tenant)
		default:
			others = append(others, tenant)
		}
	}
	slices.SortFunc(others, func(a, b logicalcluster.Name) int { return cmp.Compare(a.String(), b.String()) })
	next := slices.IndexFunc(others, func(tenant logicalcluster.Name) bool { return tenant.String() > before.after })
	if next > 0 {
		others = slices.Concat(others[next:], others[:next])
	}
	for _, tenant := range others[:min(len(others), maxCandidates-len(now.missed))] {
		now.missed.Insert(tenant)
		now.after = tenant.String()
	}
	return now
}

// present returns the logical clusters with instances, and whether it is complete. A backend without kinds has no instances; the sweep
// checks for deleted workspaces at all URLs that the provider has ever used.
func (r *runner) present() (clusters sets.Set[string], complete bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	clusters = sets.New[string]()
	for _, k := range r.kinds.All() {
		if synced, err := k.informer.Status(); !synced || err != nil {
			return nil, false
		}
		for _, found := range k.informer.Keys() {
			clusters.Insert(found.Cluster)
		}
	}
	return clusters, r.complete
}

// remembered returns the stored URLs that the provider has ever used.
func (r *runner) remembered() *workspaces.Remembered {
	return &workspaces.Remembered{Client: r.provider, Key: client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "endpoints-" + r.Export}}
}

// views returns clients of bindings at all URLs that were ever used: workspaces behind a URL may exist although the slice has stopped
// listing it. It omits URLs of exports that do not exist.
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
