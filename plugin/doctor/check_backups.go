package doctor

import (
	"fmt"
	"maps"
	"slices"
	"time"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// backups finds installations whose last Backup has failed, or whose last completed one is old. It says nothing about installations without
// a BackupStore in their namespace: they may be saved in another way.
func backups(facts *Facts, limits Limits) []Finding {
	newest, completed := map[string]Backup{}, map[string]Backup{}
	for _, backup := range facts.Backups {
		key := backup.Namespace + "/" + backup.RootShard
		if backup.Created.After(newest[key].Created) && isOver(backup) {
			newest[key] = backup
		}
		if backup.Phase == string(operatorv1alpha1.BackupPhaseCompleted) && backup.Created.After(completed[key].Created) {
			completed[key] = backup
		}
	}
	var found []Finding
	for _, root := range rootsWithStores(facts) {
		object := "RootShard " + root
		if last := newest[root]; last.Phase == string(operatorv1alpha1.BackupPhaseFailed) {
			ready := last.Conditions.Get(operatorv1alpha1.ConditionReady)
			found = append(found, Finding{
				Severity: SeverityError, Object: object, Message: "its last Backup " + last.Name + " has failed", Detail: ready.Message,
				NextStep: "Correct what the condition of the Backup says, and create another one",
			})
		}
		const next = "Create a Backup; see docs/backup.md"
		last, ok := completed[root]
		switch {
		case !ok:
			found = append(found, Finding{Severity: SeverityWarning, Object: object, Message: "has no completed Backup", NextStep: next})
		case facts.ReadAt.Sub(last.started()) > limits.BackupAge:
			found = append(found, Finding{
				Severity: SeverityError, Object: object, NextStep: next,
				Message: fmt.Sprintf("its last completed Backup %s is from %s", last.Name, last.started().UTC().Format(time.RFC3339)),
			})
		}
	}
	return append(found, schedules(facts, limits)...)
}

// schedules finds BackupSchedules that create no complete Backups, or do not remove old ones.
func schedules(facts *Facts, limits Limits) []Finding {
	var found []Finding
	for _, object := range facts.Objects {
		if object.Kind != kindBackupSchedule {
			continue
		}
		current, enforced := object.Conditions.Get(operatorv1alpha1.ConditionCurrent), object.Conditions.Get(operatorv1alpha1.ConditionRetentionEnforced)
		finding, ok := Finding{}, true
		switch {
		case object.Deleting == nil && current.Status == "False" && isLate(facts, current.Since, limits):
			finding = Finding{
				Severity: SeverityError, Message: "two Backups in a row that were due have not been completed", Detail: current.Message,
				NextStep: "Look at its condition Scheduled, and at its last Backup",
			}
		case object.Deleting == nil && enforced.Status == "False" && isLate(facts, enforced.Since, limits):
			finding = Finding{
				Severity: SeverityWarning, Message: withReason("does not remove old Backups", enforced), Detail: enforced.Message,
				NextStep: "Its condition RetentionEnforced has the refusal of the store, and what to allow",
			}
		default:
			finding, ok = operatorObject(facts, limits, object)
		}
		if ok {
			finding.Object = object.String()
			found = append(found, finding)
		}
	}
	return found
}

func isOver(backup Backup) bool {
	return backup.Phase == string(operatorv1alpha1.BackupPhaseCompleted) || backup.Phase == string(operatorv1alpha1.BackupPhaseFailed)
}

// started returns the time of the data in a backup.
func (b Backup) started() time.Time {
	if b.Started != nil {
		return *b.Started
	}
	return b.Created
}

// rootsWithStores returns namespace and name of the RootShards with a BackupStore in their namespace.
func rootsWithStores(facts *Facts) []string {
	stores := map[string]bool{}
	for _, object := range facts.Objects {
		if object.Kind == kindBackupStore {
			stores[object.Namespace] = true
		}
	}
	roots := map[string]bool{}
	for _, object := range facts.Objects {
		if object.Kind == kindRootShard && stores[object.Namespace] {
			roots[object.Namespace+"/"+object.Name] = true
		}
	}
	return slices.Sorted(maps.Keys(roots))
}

// Kinds of the operator that the check reads.
const (
	kindRootShard      = "RootShard"
	kindBackupStore    = "BackupStore"
	kindBackupSchedule = "BackupSchedule"
)
