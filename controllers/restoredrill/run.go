package restoredrill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/backupstore"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/status"
	"github.com/atoll-dev/atoll/internal/backup/archive"
	"github.com/atoll-dev/atoll/internal/backup/manifest"
)

const (
	readTimeout = time.Minute
	// checkTimeout bounds the lists of all shards of a copy. Each request has a timeout, but a server decides how many pages a list has, and
	// its image is that of a tenant.
	checkTimeout = 5 * time.Minute
	// condition of what the API server rejects; it becomes the message of the run.
	condition = operatorv1alpha1.ConditionScheduled
)

// readNamespace reads the namespace of drills.
func (s *scope) readNamespace(ctx context.Context) error {
	object, err := apply.Get[corev1.Namespace](ctx, s.config.Cluster, "", s.name)
	if err != nil || object == nil {
		return err
	}
	s.state.namespace = &namespace{
		uid: string(object.UID), owner: object.Labels[operatorv1alpha1.LabelRestoreDrill], holder: object.Annotations[operatorv1alpha1.AnnotationRestoreDrill],
		terminating: object.DeletionTimestamp != nil, foreign: isForeign(object, s.manager()),
	}
	return nil
}

// observeNamespace reads the namespace of drills and, if it belongs to the run, its objects.
func (s *scope) observeNamespace(ctx context.Context) error {
	if err := s.readNamespace(ctx); err != nil {
		return err
	}
	run := s.state.run
	if !s.state.owns() || run == nil || run.Result != "" {
		return nil
	}
	restore, err := apply.Get[operatorv1alpha1.Restore](ctx, s.config.Cluster, s.name, restoreName)
	if err != nil || restore == nil || isOfEarlierDrill(restore, run) {
		return err
	}
	s.state.restore = restore.Status.Phase
	if s.state.restore == "" {
		s.state.restore = operatorv1alpha1.RestorePhasePending
	}
	if completed := meta.FindStatusCondition(restore.Status.Conditions, operatorv1alpha1.ConditionCompleted); completed != nil {
		s.state.restoreMessage = completed.Message
	}
	return s.observeCopy(ctx)
}

// observeCopy finds the first shard of the copy that is not ready.
func (s *scope) observeCopy(ctx context.Context) (err error) {
	if s.root, err = apply.Get[operatorv1alpha1.RootShard](ctx, s.config.Cluster, s.name, s.object.Spec.RootShardRef.Name); err != nil {
		return err
	}
	list := &operatorv1alpha1.ShardList{}
	if err := s.config.Cluster.List(ctx, list, client.InNamespace(s.name)); err != nil {
		return err
	}
	run := s.state.run
	s.shards = slices.DeleteFunc(list.Items, func(shard operatorv1alpha1.Shard) bool { return isOfEarlierDrill(&shard, run) })
	slices.SortFunc(s.shards, func(a, b operatorv1alpha1.Shard) int { return strings.Compare(a.Name, b.Name) })
	if s.root == nil || isOfEarlierDrill(s.root, run) {
		s.state.waitsFor = "the copy of RootShard " + s.object.Spec.RootShardRef.Name + " does not exist"
		return nil
	}
	s.state.waitsFor = unready("RootShard", s.root.Name, s.root.Generation, s.root.Status.Conditions)
	for i := range s.shards {
		if shard := &s.shards[i]; s.state.waitsFor == "" {
			s.state.waitsFor = unready("Shard", shard.Name, shard.Generation, shard.Status.Conditions)
		}
	}
	return nil
}

// unready is why an object is not ready, or "".
func unready(kind, name string, generation int64, conditions []metav1.Condition) string {
	ready := meta.FindStatusCondition(conditions, operatorv1alpha1.ConditionReady)
	switch {
	case ready == nil:
		return fmt.Sprintf("%s %s was not reconciled yet", kind, name)
	case ready.Status != metav1.ConditionTrue || ready.ObservedGeneration != generation:
		return fmt.Sprintf("%s %s is not ready: %s", kind, name, ready.Message)
	}
	return ""
}

// createNamespace creates the namespace of the run. It is applied, not created, because the right to do that can be limited to one name.
func (s *scope) createNamespace(ctx context.Context) error {
	run := s.object.Status.Active
	labels, err := s.podSecurity(ctx)
	if err != nil {
		return s.retry(err)
	}
	labels[operatorv1alpha1.LabelRestoreDrill] = string(s.object.UID)
	err = s.applyNamespace(ctx, labels, map[string]any{operatorv1alpha1.AnnotationRestoreDrill: s.object.Namespace + "/" + s.object.Name})
	switch {
	case apierrors.IsForbidden(err):
		s.end(operatorv1alpha1.RestoreDrillFailed, fmt.Sprintf("the operator may not create namespace %s: give it the rights of config/restore-drill (value restoreDrills.namespace of the chart): %v", run.Namespace, err))
		return nil
	case apierrors.IsConflict(err): // another drill has created it; the next reconcile sees that
		return nil
	case err != nil:
		return s.retry(fmt.Errorf("creating namespace %s: %w", run.Namespace, err))
	}
	if err := s.readNamespace(ctx); err != nil {
		return s.retry(err)
	}
	switch decided := decide(s.state); decided.action {
	case actionRecordNamespace:
		run.NamespaceUID = s.state.namespace.uid
	case actionLeaveNamespace:
		return s.leaveNamespace(ctx, decided.message)
	}
	s.reportRun(run)
	return nil
}

// leaveNamespace removes what a drill has applied to a namespace that another client has created.
func (s *scope) leaveNamespace(ctx context.Context, message string) error {
	if err := s.applyNamespace(ctx, nil, nil); err != nil && !apierrors.IsConflict(err) { // it was deleted, and is not created here
		return fmt.Errorf("releasing namespace %s: %w", s.name, err)
	}
	if run := s.object.Status.Active; run != nil && run.Result == "" {
		s.end(operatorv1alpha1.RestoreDrillFailed, message)
	}
	s.report.Set(status.Warn(condition, reasonDeleting, "%s", message))
	return nil
}

// manager owns the fields of the namespace: the API server refuses those of another drill that has created it at the same time.
func (s *scope) manager() string { return apply.FieldManager + "-" + string(s.object.UID) }

// applyNamespace applies the namespace of drills. It forces nothing, and without labels, it creates nothing.
func (s *scope) applyNamespace(ctx context.Context, labels, annotations map[string]any) error {
	metadata := map[string]any{"name": s.name}
	if labels != nil {
		metadata["labels"], metadata["annotations"] = labels, annotations
	} else {
		metadata["uid"] = s.state.namespace.uid
	}
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}}
	return s.config.Cluster.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(s.manager()))
}

// podSecurity returns the labels of the namespace of the installation that say what its pods may do.
func (s *scope) podSecurity(ctx context.Context) (map[string]any, error) {
	out := map[string]any{}
	live, err := apply.Get[corev1.Namespace](ctx, s.config.Cluster, "", s.object.Namespace)
	if err != nil || live == nil {
		return out, err
	}
	for key, value := range live.Labels {
		if strings.HasPrefix(key, "pod-security.kubernetes.io/") {
			out[key] = value
		}
	}
	return out, nil
}

// deleteNamespace deletes the namespace of drills, which this RestoreDrill has created.
func (s *scope) deleteNamespace(ctx context.Context, message string) error {
	uid := types.UID(s.state.namespace.uid)
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
	err := s.config.Cluster.Delete(ctx, object, client.Preconditions{UID: &uid})
	switch {
	case apierrors.IsForbidden(err):
		s.report.Set(status.Warn(condition, reasonDeleting, "the operator may not delete namespace %s of a drill: give it the rights of config/restore-drill (value restoreDrills.namespace of the chart), or delete it", s.name))
		return nil
	case err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err):
		return fmt.Errorf("deleting namespace %s: %w", s.name, err)
	}
	s.report.Set(status.OK(condition, reasonDeleting, "the drill has ended: %s", message))
	return nil
}

// restore creates what is missing in the namespace. The Restore is last: when it exists, all does.
func (s *scope) restore(ctx context.Context) error {
	run := s.object.Status.Active
	if s.state.restore != "" {
		s.reportRun(run)
		return nil
	}
	problem, err := s.createCopy(ctx, run)
	return s.reportProblem(run, problem, err)
}

// readBackup records what the backup has, before anything is made of it: a run without these figures cannot be compared with anything.
func (s *scope) readBackup(ctx context.Context) error {
	run := s.object.Status.Active
	_, saved, problem, err := s.readSaved(ctx, run)
	if err == nil && problem == "" {
		recordBackup(run, saved)
	}
	return s.reportProblem(run, problem, err)
}

// recordBackup records what is compared with a restore. A write after the first snapshot may be in none.
func recordBackup(run *operatorv1alpha1.RestoreDrillRun, saved *manifest.Manifest) {
	run.SavedLogicalClusters, run.DataLoss = 0, rounded(run.StartedAt.Sub(saved.CutStartedAt))
	for _, shard := range saved.Shards {
		run.SavedLogicalClusters += shard.LogicalClusters
	}
}

// reportProblem reports a run with what it waits for, if anything, or ends it if the API server rejects what it needs.
func (s *scope) reportProblem(run *operatorv1alpha1.RestoreDrillRun, problem string, err error) error {
	var rejected *status.Error
	switch {
	case errors.As(err, &rejected):
		s.end(operatorv1alpha1.RestoreDrillFailed, rejected.Result.Message)
		return nil
	case err != nil:
		return s.retry(err)
	case problem != "":
		run.Message = shortened(problem)
	}
	s.reportRun(run)
	return nil
}

// retry records the error of an attempt, so that it is known when the time of the run is over.
func (s *scope) retry(err error) error {
	s.object.Status.Active.Message = shortened(err.Error())
	return err
}

// createCopy creates the objects of a drill, or returns what is missing for that.
func (s *scope) createCopy(ctx context.Context, run *operatorv1alpha1.RestoreDrillRun) (string, error) {
	spec, source, cluster := &s.object.Spec, s.object.Namespace, s.config.Cluster
	root, err := apply.Get[operatorv1alpha1.RootShard](ctx, cluster, source, spec.RootShardRef.Name)
	if err != nil || root == nil {
		return fmt.Sprintf("RootShard %s does not exist in namespace %s: a drill copies its settings", spec.RootShardRef.Name, source), err
	}
	store, saved, problem, err := s.readSaved(ctx, run)
	if err != nil || problem != "" {
		return problem, err
	}
	list := &operatorv1alpha1.ShardList{}
	if err := cluster.List(ctx, list, client.InNamespace(source)); err != nil {
		return "", err
	}
	shards := newShards(run.Namespace, root, ofInstallation(list.Items, root.Name), saved)
	copied := newRootShard(run.Namespace, root, saved)
	for _, policy := range newNetworkPolicies(run.Namespace) { // before any pod
		if err := apply.CreateMissing(ctx, cluster, condition, policy); err != nil {
			return "", err
		}
	}
	needed := secretsOf(s.object, store, copied, shards)
	for _, name := range slices.Sorted(maps.Keys(needed)) {
		if problem, err := s.copySecret(ctx, name, needed[name]); err != nil || problem != "" {
			return problem, err
		}
	}
	if problem, err := createMissing(ctx, s, newStore(run.Namespace, store)); err != nil || problem != "" {
		return problem, err
	}
	if problem, err := createMissing(ctx, s, copied); err != nil || problem != "" {
		return problem, err
	}
	for _, shard := range shards {
		if problem, err := createMissing(ctx, s, shard); err != nil || problem != "" {
			return problem, err
		}
	}
	return createMissing(ctx, s, newRestore(s.object, run))
}

// createMissing creates an object of a kind that is cached, or returns why that has to be tried again.
func createMissing[T any, P interface {
	*T
	client.Object
}](ctx context.Context, s *scope, object P) (string, error) {
	run, kind := s.object.Status.Active, object.GetObjectKind().GroupVersionKind().Kind
	annotations := object.GetAnnotations()
	annotations[annotationNamespaceUID] = run.NamespaceUID
	object.SetAnnotations(annotations)
	if err := apply.CreateMissing(ctx, s.config.Cluster, condition, object); err != nil {
		return "", err
	}
	if isOfEarlierDrill(object, run) {
		return fmt.Sprintf("%s %s is that of an earlier drill", kind, object.GetName()), nil
	}
	return "", nil
}

// isOfEarlierDrill reports whether an object belongs to a previous namespace of the same name, which a cache may still contain.
func isOfEarlierDrill(object client.Object, run *operatorv1alpha1.RestoreDrillRun) bool {
	return object.GetAnnotations()[annotationNamespaceUID] != run.NamespaceUID
}

// ofInstallation returns the Shards of a RootShard.
func ofInstallation(shards []operatorv1alpha1.Shard, root string) []operatorv1alpha1.Shard {
	return slices.DeleteFunc(slices.Clone(shards), func(shard operatorv1alpha1.Shard) bool {
		ref := shard.Spec.RootShard.Reference
		return ref == nil || ref.Name != root
	})
}

// readSaved reads the store and the manifest of the backup, or returns why that has to be tried again.
func (s *scope) readSaved(ctx context.Context, run *operatorv1alpha1.RestoreDrillRun) (*operatorv1alpha1.BackupStore, *manifest.Manifest, string, error) {
	source, name := s.object.Namespace, s.object.Spec.StoreRef.Name
	store, err := apply.Get[operatorv1alpha1.BackupStore](ctx, s.config.Cluster, source, name)
	if err != nil || store == nil {
		return nil, nil, fmt.Sprintf("BackupStore %s does not exist in namespace %s: create it", name, source), err
	}
	saved, problem, err := s.readManifest(ctx, store, run)
	return store, saved, problem, err
}

// readManifest reads the manifest of the backup, or returns why that has to be tried again.
func (s *scope) readManifest(ctx context.Context, store *operatorv1alpha1.BackupStore, run *operatorv1alpha1.RestoreDrillRun) (*manifest.Manifest, string, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	bucket, err := backupstore.Open(ctx, s.config.Cluster, store, s.object.Spec.RootShardRef.Name, nil)
	if err == nil {
		var opened *archive.Backup
		if opened, err = archive.OpenIn(ctx, bucket, run.BackupID, run.ManifestDigest, archive.MaxOperatorManifestBytes, nil); err == nil {
			opened.Close()
			return opened.Manifest, "", nil
		}
	}
	if status := apierrors.APIStatus(nil); errors.As(err, &status) { // of the API server: it says nothing of the backup
		return nil, "", err
	}
	return nil, fmt.Sprintf("the manifest of backup %s cannot be read: %v", run.BackupID, err), nil
}

// copySecret copies keys of a Secret into the namespace of the drill; without keys, a pull secret. It returns what is missing.
func (s *scope) copySecret(ctx context.Context, name string, keys []string) (string, error) {
	live, err := apply.Get[corev1.Secret](ctx, s.config.Cluster, s.object.Namespace, name)
	if err != nil {
		return "", err
	}
	if live == nil {
		return fmt.Sprintf("Secret %s does not exist in namespace %s: create it", name, s.object.Namespace), nil
	}
	out := &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.name}, Type: corev1.SecretTypeOpaque, Data: map[string][]byte{},
	}
	if keys == nil {
		if live.Type != corev1.SecretTypeDockerConfigJson && live.Type != corev1.SecretTypeDockercfg {
			return fmt.Sprintf("Secret %s has the type %s, and imagePullSecrets names it: it is not copied into a drill", name, live.Type), nil
		}
		out.Type, out.Data = live.Type, live.Data
	}
	for _, key := range keys {
		if len(live.Data[key]) == 0 {
			return fmt.Sprintf("Secret %s in namespace %s has no key %s: add it", name, s.object.Namespace, key), nil
		}
		out.Data[key] = live.Data[key]
	}
	return "", apply.CreateMissing(ctx, s.config.Cluster, condition, out)
}

// check reads what the restored shards serve, and decides again.
func (s *scope) check(ctx context.Context) error {
	run, found := s.object.Status.Active, &read{}
	servers, saved := []desired.Shard{desired.NewRootShard(s.root)}, []string{s.root.Annotations[annotationSaved]}
	for i := range s.shards {
		servers, saved = append(servers, desired.NewShard(&s.shards[i], s.root)), append(saved, s.shards[i].Annotations[annotationSaved])
	}
	timeout := min(checkTimeout, run.StartedAt.Add(s.state.timeout).Sub(s.now))
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for i, server := range servers {
		count, err := s.reader.CountLogicalClusters(ctx, server)
		if err != nil && ctx.Err() != nil {
			found.problem = fmt.Sprintf("shard %s: the lists of logical clusters did not end within %s", server.Name(), timeout)
			break
		}
		if err != nil {
			found.problem = fmt.Sprintf("shard %s: %v", server.Name(), err)
			break
		}
		found.logicalClusters += count
		found.lacking = cmp.Or(found.lacking, lacking(server.Name(), count, saved[i]))
	}
	run.LogicalClusters, s.state.read = found.logicalClusters, found
	run.Message = shortened(s.state.progress()) // the cause, if the time of the run is over now
	s.state.now = s.config.Now()
	s.now = s.state.now
	switch decided := decide(s.state); decided.action {
	case actionSucceed:
		s.end(operatorv1alpha1.RestoreDrillSucceeded, "")
	case actionFail:
		s.end(operatorv1alpha1.RestoreDrillFailed, decided.message)
	default:
		run.Message = shortened(decided.message)
		s.reportRun(run)
	}
	return nil
}
