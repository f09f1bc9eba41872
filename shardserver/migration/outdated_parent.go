package migration

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/internal/movestate"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/sharding/placement"
)

// awaitParent returns the LogicalCluster when nobody needs it any more to find the shard that has the logical cluster: the shard of the Workspace and front
// proxies learn that from the one that had it before. It may have moved on meanwhile, and so may its parent: the shard that has it knows where the Workspace is.
func (o *outdatedService) awaitParent(ctx context.Context, name logicalcluster.Name, stored *storedCluster, holder *claim) (*storedCluster, error) {
	others, err := o.others(ctx)
	if err != nil {
		return nil, apierrors.NewServiceUnavailable(err.Error())
	}
	stored, err = o.stored.update(ctx, name, func(current *storedCluster, annotations map[string]string) error {
		if current.uid() != stored.uid() || annotations[corev1alpha1.OutdatedAnnotationKey] == "" {
			return errConflict
		}
		noteHolder(annotations, holder.Holder, time.Now())
		noteParentShard(annotations, o.cfg.Shard, holder.ParentShard, others)
		return nil
	})
	if err != nil {
		return nil, err
	}
	cluster, err := o.cluster(ctx, name)
	if err != nil {
		return nil, err
	}
	knows, written := false, stored.annotations()
	if cluster != nil && hasSame(cluster.Annotations, written, corev1alpha1.MovedToAnnotationKey, corev1alpha1.OwnerShardAnnotationKey) {
		if knows, err = o.parentHasLearned(ctx, name, cluster, others); err != nil {
			return nil, err
		}
	}
	if !knows || time.Since(outdatedSince(written)) < cleanDelay {
		return nil, apierrors.NewTooManyRequests(fmt.Sprintf("shard %q, which has the Workspace, and front proxies have not learned yet that shard %q has the logical cluster: repeat the request", o.parentShard(written), holder.Holder), int(cleanDelay/time.Second))
	}
	return stored, nil
}

// hasSame reports whether some annotations have the same values.
func hasSame(a, b map[string]string, keys ...string) bool {
	return !slices.ContainsFunc(keys, func(key string) bool { return a[key] != b[key] })
}

// parentShard returns the shard of the Workspace of a logical cluster.
func (o *outdatedService) parentShard(annotations map[string]string) string {
	return cmp.Or(annotations[corev1alpha1.OwnerShardAnnotationKey], o.cfg.Shard)
}

// parentHasLearned is parentKnows for a restored shard, where nobody may ever learn it: the shard of the Workspace may be gone, and the logical cluster of the
// Workspace outdated like this one.
func (o *outdatedService) parentHasLearned(ctx context.Context, name logicalcluster.Name, cluster *corev1alpha1.LogicalCluster, others []string) (bool, error) {
	var parent *storedCluster
	shard, remote := placement.Remote(cluster)
	if owner := cluster.Spec.Owner; !remote && owner != nil {
		parentName, err := logicalcluster.ParseName(owner.Cluster)
		if err != nil {
			return true, nil //nolint:nilerr // no Workspace can be there
		}
		if parent, err = o.stored.get(ctx, parentName); err != nil {
			return false, err
		}
	}
	switch placeOfParent(remote, shard == o.cfg.Shard || slices.Contains(others, shard), parent) {
	case parentGone:
		return true, nil
	case parentMoves:
		return false, nil
	case parentOutdated:
		return false, refuse(name, "its Workspace is in logical cluster %q, which is outdated, too: delete that first", cluster.Spec.Owner.Cluster)
	}
	return o.parentKnows(ctx, cluster)
}

// parentPlace is where the Workspace of an outdated logical cluster is.
type parentPlace string

const (
	// parentServed is that of a shard that serves the Workspace, or can say that there is none.
	parentServed parentPlace = "Served"
	// parentGone is that of a shard which the installation does not have any more: it reads no report.
	parentGone parentPlace = "Gone"
	// parentMoves is that of this shard, from or to which the parent moves: the Workspace does not change here.
	parentMoves parentPlace = "Moves"
	// parentOutdated is that of this shard, whose content of the parent is outdated: the Workspace never changes here.
	parentOutdated parentPlace = "Outdated"
)

// placeOfParent decides it for a Workspace on another shard, which exists or not, or on this one, in a logical cluster that may not exist.
func placeOfParent(remote, exists bool, local *storedCluster) parentPlace {
	switch {
	case remote && !exists:
		return parentGone
	case remote, local == nil:
		return parentServed
	}
	annotations := local.annotations()
	if _, outdated := annotations[corev1alpha1.OutdatedAnnotationKey]; outdated {
		return parentOutdated
	}
	if movestate.Of(annotations).IsHidden() {
		return parentMoves
	}
	return parentServed
}

// noteHolder writes which shard has an outdated logical cluster. The time counts from when others can learn that from this shard. One in the future is of a
// clock that was set back since, which does not have to get there again.
func noteHolder(annotations map[string]string, holder string, now time.Time) {
	since := outdatedSince(annotations)
	if annotations[corev1alpha1.MovedToAnnotationKey] == holder && !since.IsZero() && !since.After(now) {
		return
	}
	annotations[corev1alpha1.MovedToAnnotationKey], annotations[corev1alpha1.ShardAnnotationKey] = holder, holder
	annotations[corev1alpha1.OutdatedAnnotationKey] = now.UTC().Format(time.RFC3339)
}

// noteParentShard writes which shard has the Workspace of an outdated logical cluster, so that it gets the report of this one. The parent may have moved since
// the backup. What is no shard of the installation is not written: another shard has chosen the text.
func noteParentShard(annotations map[string]string, own, parentShard string, others []string) {
	switch {
	case parentShard == own:
		delete(annotations, corev1alpha1.OwnerShardAnnotationKey)
	case slices.Contains(others, parentShard):
		annotations[corev1alpha1.OwnerShardAnnotationKey] = parentShard
	}
}

// outdatedSince returns the time of OutdatedAnnotationKey; zero if that is none.
func outdatedSince(annotations map[string]string) time.Time {
	since, err := time.Parse(time.RFC3339, annotations[corev1alpha1.OutdatedAnnotationKey])
	if err != nil {
		return time.Time{}
	}
	return since
}
