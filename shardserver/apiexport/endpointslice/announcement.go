package endpointslice

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	"github.com/atoll-dev/atoll/shardserver/sharding/endpoints"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

const (
	// announcementTimeout bounds how long a move waits for the shards of endpoint slices. One that is away for longer cannot keep
	// a logical cluster where it is; its slices get the address when it is back.
	announcementTimeout = time.Minute
	announcementPoll    = 250 * time.Millisecond
)

// Announcement makes sure that providers find this shard before a logical cluster that moves to it is served here.
type Announcement struct {
	cfg      Config
	bindings *storage.Reader[*apisv1alpha2.APIBinding]
	slices   *storage.Reader[*apisv1alpha1.APIExportEndpointSlice]
	shards   endpoints.ShardLister
}

// NewAnnouncement returns an Announcement of this shard.
func NewAnnouncement(cfg Config) *Announcement {
	return &Announcement{
		cfg: cfg, bindings: newBindingReader(cfg), shards: endpoints.NewShardLister(cfg.Registry),
		slices: storage.NewReader[*apisv1alpha1.APIExportEndpointSlice](cfg.Registry, slices).Global(),
	}
}

// Await returns when all endpoint slices of the exports that a logical cluster has bound have the address of this shard, those of
// partitions without this shard excepted, or after announcementTimeout.
func (a *Announcement) Await(ctx context.Context, cluster logicalcluster.Name) error {
	missing := ""
	err := wait.PollUntilContextTimeout(ctx, announcementPoll, announcementTimeout, true, func(ctx context.Context) (done bool, err error) {
		missing, err = a.missing(ctx, cluster)
		if err != nil && ctx.Err() == nil { // exports of a shard are not synced, or the tenant's reference cannot be resolved
			missing, err = err.Error(), nil
		}
		return missing == "", err
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		klog.FromContext(ctx).Info("An endpoint slice does not have the address of this shard; going on without", "cluster", cluster, "missing", missing)
		return nil
	}
	return err
}

// missing describes an endpoint slice that does not have the address of this shard; "" if there is none.
func (a *Announcement) missing(ctx context.Context, cluster logicalcluster.Name) (string, error) {
	bound, err := a.bindings.ListMoving(logicalcluster.With(ctx, cluster), "", nil)
	if err != nil {
		return "", fmt.Errorf("listing the bindings of logical cluster %q: %w", cluster, err)
	}
	if len(bound) == 0 {
		return "", nil
	}
	shard, err := a.shards.Get(ctx, a.cfg.ShardName)
	if err != nil {
		return "", fmt.Errorf("reading the Shard: %w", err)
	}
	all, err := a.slices.List(logicalcluster.With(ctx, logicalcluster.Wildcard), "", nil)
	if err != nil {
		return "", fmt.Errorf("listing endpoint slices: %w", err)
	}
	for _, binding := range bound {
		reference, err := apiindex.ReferenceOf(binding)
		if err != nil {
			continue // bound to nothing
		}
		export, err := a.cfg.Exports.Resolve(ctx, reference)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("reading the export of binding %q: %w", binding.Name, err)
		}
		for _, slice := range all {
			if isMissingIn(slice, export, shard) {
				return fmt.Sprintf("slice %q of %q", slice.Name, logicalcluster.Of(slice)), nil
			}
		}
	}
	return "", nil
}

// isMissingIn reports whether an endpoint slice of an export lacks the address of a shard that it is for.
func isMissingIn(slice *apisv1alpha1.APIExportEndpointSlice, export *apisv1alpha2.APIExport, shard *corev1alpha1.Shard) bool {
	reference, err := apiindex.ReferenceOfSlice(slice)
	if err != nil || !reference.RefersTo(export) || shard.Spec.VirtualWorkspaceURL == "" || slice.DeletionTimestamp != nil {
		return false
	}
	if !conditionsv1alpha1.IsTrue(slice, apisv1alpha1.APIExportValid) || !conditionsv1alpha1.IsTrue(slice, apisv1alpha1.PartitionValid) {
		return false
	}
	selector, err := labels.Parse(slice.Status.ShardSelector)
	if err != nil || !selector.Matches(labels.Set(shard.Labels)) {
		return false
	}
	address := apiindex.VirtualWorkspaceURL(shard, apiindex.ExportKeyOf(export))
	for _, endpoint := range slice.Status.APIExportEndpoints {
		if endpoint.URL == address {
			return false
		}
	}
	return true
}
