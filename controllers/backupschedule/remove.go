package backupschedule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/backup"
	"github.com/atoll-dev/atoll/controllers/backupstore"
	"github.com/atoll-dev/atoll/controllers/status"
	"github.com/atoll-dev/atoll/internal/backup/manifest"
	"github.com/atoll-dev/atoll/internal/backup/objectstore"
)

const (
	// retentionInterval is the time between two passes over the store, also after it has refused.
	retentionInterval = 15 * time.Minute
	// passTimeout bounds the requests of one reconcile, and maxRemoved the Backups that it removes.
	passTimeout = time.Minute
	maxRemoved  = 10
)

// retain removes what the retention does not keep.
func (s *scope) retain(ctx context.Context) error {
	const condition = operatorv1alpha1.ConditionRetentionEnforced
	out := &s.object.Status
	if s.object.Spec.Retention == nil {
		out.LastRetentionTime = nil
		s.report.RemoveCondition(condition)
		return nil
	}
	if name, err := s.unreleased(ctx); err != nil || name != "" {
		s.report.RequeueWithin(retentionInterval)
		if name != "" {
			s.report.Set(status.Warn(condition, reasonNotReleased, "nothing is removed until Restore %s of this installation is released: set its spec.release, or delete it if it has failed, or if the installation that it restored is gone", name))
		}
		return err
	}
	if last := out.LastRetentionTime; last != nil && out.ObservedGeneration == s.object.Generation && !s.now.Before(last.Time) && s.now.Sub(last.Time) < retentionInterval {
		if before := meta.FindStatusCondition(out.Conditions, condition); before != nil && before.Status != metav1.ConditionTrue {
			s.report.Set(status.Warn(condition, before.Reason, "%s", before.Message))
		}
		s.report.RequeueWithin(last.Add(retentionInterval).Sub(s.now))
		return nil
	}
	out.LastRetentionTime = nil // until a pass has ended: the next reconcile continues
	more, err := s.removePass(ctx)
	var known *objectstore.Error
	switch {
	case errors.As(err, &known):
		s.report.Set(status.Warn(condition, known.Reason, "%s", known.Message))
	case err != nil:
		return err
	case more:
		s.report.RequeueWithin(time.Second)
		return nil
	default:
		s.report.Set(status.OK(condition, reasonEnforced, "the store and the cluster have the Backups that are to be kept"))
	}
	out.LastRetentionTime = &metav1.Time{Time: s.now}
	s.report.RequeueWithin(retentionInterval)
	return nil
}

// unreleased returns the name of a Restore of the installation that no person has released yet, or "". A schedule counts every Backup that is
// completed, also of an installation that has lost its data, and would remove the good ones.
func (s *scope) unreleased(ctx context.Context) (string, error) {
	list := &operatorv1alpha1.RestoreList{}
	if err := s.config.Cluster.List(ctx, list, client.InNamespace(s.object.Namespace)); err != nil {
		return "", err
	}
	for _, restore := range list.Items {
		if restore.Spec.RootShardRef == s.object.Spec.RootShardRef && !meta.IsStatusConditionTrue(restore.Status.Conditions, operatorv1alpha1.ConditionReleased) {
			return restore.Name, nil
		}
	}
	return "", nil
}

// removePass removes some Backups, and what interrupted attempts have left. It reports whether there are more.
func (s *scope) removePass(ctx context.Context) (bool, error) {
	removals := plan(s.policy(), s.candidates(), s.now)
	if len(removals) == 0 && !slices.ContainsFunc(s.backups, s.isSettled) {
		return false, nil
	}
	spec := &s.object.Spec
	store, err := apply.Get[operatorv1alpha1.BackupStore](ctx, s.config.Cluster, s.object.Namespace, spec.StoreRef.Name)
	if err != nil {
		return false, err
	}
	if store == nil {
		return false, &objectstore.Error{Reason: operatorv1alpha1.ReasonReferenceNotFound, Message: fmt.Sprintf("BackupStore %s does not exist in namespace %s: create it", spec.StoreRef.Name, s.object.Namespace)}
	}
	bucket, err := backupstore.Open(ctx, s.config.Cluster, store, spec.RootShardRef.Name, spec.Retention.S3Credentials)
	if err != nil {
		return false, err
	}
	defer bucket.Close()
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	folders, err := bucket.List(ctx)
	if err != nil {
		return false, err
	}
	pass := &pass{cluster: s.config.Cluster, bucket: bucket, folders: folders}
	var moved error
	removed := 0
	for _, removal := range removals {
		if removed == maxRemoved {
			return true, nil
		}
		at := slices.IndexFunc(s.backups, func(b operatorv1alpha1.Backup) bool { return b.Name == removal.name })
		isRemoved, err := pass.remove(ctx, &s.backups[at], removal.onlyIncomplete)
		switch {
		case objectstore.HasReason(err, reasonMoved): // it keeps nothing else from being removed
			moved = cmp.Or(moved, err)
		case err != nil:
			return false, err
		case isRemoved:
			removed++
		}
	}
	settled := slices.DeleteFunc(slices.Clone(s.backups), func(b operatorv1alpha1.Backup) bool { return !s.isSettled(b) })
	return false, cmp.Or(pass.clean(ctx, settled), moved)
}

func (s *scope) policy() policy {
	out, retention := policy{}, s.object.Spec.Retention
	if retention.KeepLast != nil {
		out.keepLast = int(*retention.KeepLast)
	}
	if retention.KeepWithin != nil {
		out.keepWithin = retention.KeepWithin.Duration
	}
	return out
}

func (s *scope) candidates() []candidate {
	var out []candidate
	for i := range s.backups {
		if b := &s.backups[i]; backup.IsFinal(b) {
			out = append(out, candidate{
				name: b.Name, created: b.CreationTimestamp.Time, ended: endOf(b), completed: b.Status.Phase == operatorv1alpha1.BackupPhaseCompleted,
				begun: metav1.HasAnnotation(b.ObjectMeta, operatorv1alpha1.AnnotationRemoveBackup),
			})
		}
	}
	return out
}

// isSettled reports whether no pod of a Backup writes any more.
func (s *scope) isSettled(b operatorv1alpha1.Backup) bool {
	return backup.IsFinal(&b) && s.now.Sub(endOf(&b)) >= attemptBound
}

// endOf returns when a Backup has ended, at the latest: it may have waited for days before. Its conditions do not change afterwards. Completed
// alone is not enough, because it is False both before and after a failure.
func endOf(b *operatorv1alpha1.Backup) time.Time {
	out := b.CreationTimestamp.Time
	for _, condition := range b.Status.Conditions {
		if condition.LastTransitionTime.After(out) {
			out = condition.LastTransitionTime.Time
		}
	}
	return out
}

// pass is one pass over a store. It touches nothing but folders and uploads whose names begin with the ID of a Backup, which has the UID of
// that object: those of other installations, and of Backups that are not of the schedule, have others.
type pass struct {
	cluster apply.Cluster
	bucket  *objectstore.Store
	folders []string
}

// attemptsOf returns the folders of a Backup.
func (p *pass) attemptsOf(b *operatorv1alpha1.Backup) []string {
	return slices.DeleteFunc(slices.Clone(p.folders), func(folder string) bool { return !strings.HasPrefix(folder, backup.ID(b)+"-") })
}

// remove removes the folders of a Backup, and then the Backup, whose status is where its manifest is known from. It reports whether it did.
func (p *pass) remove(ctx context.Context, b *operatorv1alpha1.Backup, onlyIncomplete bool) (bool, error) {
	if id := b.Status.BackupID; id != "" && (!strings.HasPrefix(id, backup.ID(b)+"-") || b.Status.DestinationPath != p.bucket.Location(id)) {
		return false, &objectstore.Error{Reason: reasonMoved, Message: fmt.Sprintf(
			"Backup %s is in %s, not in %s: set the BackupStore back, or remove the folder and the Backup by hand", b.Name, b.Status.DestinationPath, p.bucket.Location(backup.ID(b)+"-*"))}
	}
	folders := p.attemptsOf(b)
	if len(folders) > 0 && !onlyIncomplete {
		if err := p.annotate(ctx, b); err != nil {
			return false, err
		}
	}
	for _, folder := range folders {
		if removed, err := p.removeFolder(ctx, folder, onlyIncomplete); err != nil || !removed {
			return false, err
		}
	}
	err := p.cluster.Delete(ctx, b, client.Preconditions{UID: &b.UID})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) { // it was created again, or somebody else has deleted it
		return false, nil
	}
	return err == nil, err
}

// annotate records that the removal of a Backup has begun: it may be interrupted, and a change of the retention must not count as kept what
// is no backup any more.
func (p *pass) annotate(ctx context.Context, b *operatorv1alpha1.Backup) error {
	if metav1.HasAnnotation(b.ObjectMeta, operatorv1alpha1.AnnotationRemoveBackup) {
		return nil
	}
	before := b.DeepCopy()
	metav1.SetMetaDataAnnotation(&b.ObjectMeta, operatorv1alpha1.AnnotationRemoveBackup, "true")
	return p.cluster.Patch(ctx, b, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(apply.FieldManager))
}

// removeFolder removes the objects of a folder, the manifest first: an interrupted removal leaves no backup. It reports whether it did: with
// onlyIncomplete, it keeps a folder that has a manifest.
func (p *pass) removeFolder(ctx context.Context, folder string, onlyIncomplete bool) (bool, error) {
	keys, err := p.bucket.Keys(ctx, folder+"/")
	if err != nil {
		return false, err
	}
	first := manifest.Key(folder, manifest.Name)
	if slices.Contains(keys, first) {
		if onlyIncomplete {
			return false, nil
		}
		if err := p.bucket.Remove(ctx, first); err != nil {
			return false, err
		}
	}
	for _, key := range keys {
		if key == first {
			continue
		}
		if err := p.bucket.Remove(ctx, key); err != nil {
			return false, err
		}
	}
	return true, nil
}

// clean removes what interrupted attempts of Backups have left: folders without a manifest, and parts of uploads.
func (p *pass) clean(ctx context.Context, settled []operatorv1alpha1.Backup) error {
	if len(settled) == 0 {
		return nil
	}
	for i := range settled {
		for _, folder := range p.attemptsOf(&settled[i]) {
			if folder == settled[i].Status.BackupID {
				continue
			}
			if _, err := p.removeFolder(ctx, folder, true); err != nil {
				return err
			}
		}
	}
	uploads, err := p.bucket.Uploads(ctx)
	if err != nil {
		return err
	}
	for _, upload := range uploads {
		isOurs := slices.ContainsFunc(settled, func(b operatorv1alpha1.Backup) bool { return strings.HasPrefix(upload.Key, backup.ID(&b)+"-") })
		if isOurs && path.Dir(upload.Key) != "." {
			if err := p.bucket.Abort(ctx, upload); err != nil {
				return err
			}
		}
	}
	return nil
}
