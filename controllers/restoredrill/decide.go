package restoredrill

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// action is what a reconcile does next. Each is one step, after which the status is written: a step that creates or deletes something in the
// cluster follows one that has recorded it.
type action string

const (
	actionIdle            action = "Idle"
	actionWait            action = "Wait"            // until something that message names has ended
	actionSkip            action = "Skip"            // nothing can be restored: the next time is announced
	actionStart           action = "Start"           // record a run
	actionPostpone        action = "Postpone"        // discard a run whose namespace another client has created: it is due again
	actionCreateNamespace action = "CreateNamespace" // of the run
	actionRecordNamespace action = "RecordNamespace" // in the run
	actionLeaveNamespace  action = "LeaveNamespace"  // that somebody else has created: an operator was killed after it had applied the label
	actionReadBackup      action = "ReadBackup"      // record what the backup has
	actionRestore         action = "Restore"         // create what is missing in the namespace
	actionCheck           action = "Check"           // read what the restored shards serve
	actionFail            action = "Fail"            // record that the run has failed
	actionSucceed         action = "Succeed"         // record that the run has succeeded
	actionDeleteNamespace action = "DeleteNamespace" // of a run that has ended, or of one that is unknown
	actionRecord          action = "Record"          // move the run into the history
	actionRelease         action = "Release"         // remove the finalizer of the RestoreDrill
)

// namespace is the namespace of drills in the cluster.
type namespace struct {
	uid         string
	owner       string // UID of the RestoreDrill that has created it, or ""
	holder      string // the same for people
	terminating bool
	foreign     bool // somebody else may have created it, whatever its label says
}

// read is what the restored shards serve.
type read struct {
	logicalClusters int64
	lacking         string // the first shard that lacks too many of those in the backup, or ""
	problem         string // why they could not be read, or ""
}

// state is what a reconcile decides on.
type state struct {
	now       time.Time
	uid       string // of the RestoreDrill
	deleting  bool
	due       bool // and neither suspended nor invalid
	hasBackup bool // one to restore
	timeout   time.Duration
	name      string // of the namespace of drills
	namespace *namespace
	run       *operatorv1alpha1.RestoreDrillRun

	restore        operatorv1alpha1.RestorePhase // "" while the Restore does not exist
	restoreMessage string
	waitsFor       string // the first shard that is not ready, and why; "" if all are
	read           *read  // nil before actionCheck
}

// decision is an action with what people have to know of it.
type decision struct {
	action  action
	message string
}

func (s *state) owns() bool { return s.namespace != nil && s.namespace.owner == s.uid }

// hasLostLabel reports whether another client has changed the label of the namespace of the run.
func (s *state) hasLostLabel() bool {
	return s.namespace != nil && !s.owns() && s.namespace.uid == s.run.NamespaceUID && !s.namespace.terminating
}

// isForeign reports whether another client may have created a namespace with the label. The UID of one that a run has created is recorded.
func (s *state) isForeign() bool {
	return s.owns() && s.namespace.foreign && (s.run == nil || s.run.NamespaceUID != s.namespace.uid)
}

func (s *state) leave() decision {
	return decision{actionLeaveNamespace, fmt.Sprintf("namespace %s was created by somebody else at the same time: it gets its labels back, and is not deleted", s.name)}
}

// decide returns what is to be done next. It is pure.
func decide(s state) decision {
	switch {
	case s.run == nil:
		return decideIdle(s)
	case s.deleting, s.run.Result != "":
		return decideEnd(s)
	case s.run.NamespaceUID == "":
		return decideNamespace(s)
	case s.hasLostLabel():
		return decision{actionFail, fmt.Sprintf("namespace %s has lost its label %s while the drill ran, and is not deleted: it has the private key and the data of the backup. Delete it", s.name, operatorv1alpha1.LabelRestoreDrill)}
	case !s.owns() || s.namespace.uid != s.run.NamespaceUID || s.namespace.terminating:
		return decision{actionFail, fmt.Sprintf("namespace %s was deleted while the drill ran: it is for drills only, and nobody else may delete it", s.name)}
	case s.restore == operatorv1alpha1.RestorePhaseFailed:
		return decision{actionFail, "the Restore has failed: " + s.restoreMessage}
	case s.isLate():
		return decision{actionFail, s.lateness()}
	case s.run.DataLoss == "": // also when a Restore exists: the status that recorded it may be lost
		return decision{actionReadBackup, "reading the manifest of the backup"}
	case s.run.SavedLogicalClusters == 0:
		return decision{actionFail, "the backup has no logical clusters: nothing shows that they are restored"}
	case s.restore != operatorv1alpha1.RestorePhaseCompleted, s.waitsFor != "":
		return decision{actionRestore, s.progress()}
	case s.read == nil, s.read.problem != "":
		return decision{actionCheck, s.progress()}
	case s.read.logicalClusters*10 < s.run.SavedLogicalClusters*9:
		// The snapshot was compared with its inventory. Workspaces that were being deleted may have gone since.
		return decision{actionFail, fmt.Sprintf("the restored shards serve %d logical clusters, and the backup has %d: more than a tenth is missing. Compare a restore with `kubectl kcp doctor --deep`",
			s.read.logicalClusters, s.run.SavedLogicalClusters)}
	case s.read.lacking != "":
		return decision{actionFail, s.read.lacking}
	}
	return decision{actionSucceed, ""}
}

// lacking is why a shard serves too few logical clusters: it lacks more than a tenth, rounded up, of those in the backup, or all. It is "" if it does not.
func lacking(name string, served int64, saved string) string {
	want, err := strconv.ParseInt(saved, 10, 64)
	switch {
	case err != nil:
		return fmt.Sprintf("the copy of shard %s has lost annotation %s, the number of its logical clusters in the backup", name, annotationSaved)
	case want > 0 && served == 0, want-served > (want+9)/10:
		return fmt.Sprintf("the restored shard %s serves %d logical clusters, and the backup has %d of it: more than a tenth is missing. Compare a restore with `kubectl kcp doctor --deep`", name, served, want)
	}
	return ""
}

// decideIdle is decide without a run.
func decideIdle(s state) decision {
	switch {
	case s.owns() && s.namespace.terminating:
		return decision{actionWait, fmt.Sprintf("namespace %s is being deleted", s.name)}
	case s.isForeign():
		return s.leave()
	case s.owns(): // its run is not known any more
		return decision{actionDeleteNamespace, fmt.Sprintf("namespace %s is of a drill that is not known any more, and is deleted", s.name)}
	case s.deleting:
		return decision{actionRelease, ""}
	case !s.due:
		return decision{actionIdle, ""}
	case !s.hasBackup:
		return decision{actionSkip, "no Backup is completed: nothing can be restored. Create a Backup or a BackupSchedule with the same rootShardRef and storeRef"}
	case s.namespace != nil:
		return decision{actionWait, s.taken()}
	}
	return decision{actionStart, ""}
}

// taken is why the namespace of drills cannot be used.
func (s *state) taken() string {
	if s.namespace.owner == "" {
		return fmt.Sprintf("namespace %s exists, and no drill has created it: delete it if nobody needs it, or give the operator another name by --restore-drill-namespace", s.name)
	}
	return fmt.Sprintf("RestoreDrill %s uses namespace %s: drills run one after another", s.namespace.holder, s.name)
}

// decideNamespace is decide for a run whose namespace is not recorded.
func decideNamespace(s state) decision {
	switch {
	case s.namespace == nil && s.isLate():
		return decision{actionFail, s.lateness()}
	case s.namespace == nil:
		return decision{actionCreateNamespace, fmt.Sprintf("creating namespace %s", s.name)}
	case !s.owns():
		return decision{actionPostpone, s.taken()}
	case s.isForeign():
		return s.leave()
	}
	return decision{actionRecordNamespace, fmt.Sprintf("namespace %s exists", s.name)}
}

// decideEnd is decide for a run that has ended, or whose RestoreDrill is being deleted.
func decideEnd(s state) decision {
	switch {
	case s.owns() && s.namespace.terminating:
		return decision{actionWait, fmt.Sprintf("namespace %s is being deleted; if that lasts, its conditions say what is left in it", s.name)}
	case s.isForeign():
		return s.leave()
	case s.owns():
		return decision{actionDeleteNamespace, fmt.Sprintf("namespace %s is deleted", s.name)}
	case s.deleting:
		return decision{actionRelease, ""}
	}
	return decision{actionRecord, ""}
}

func (s *state) isLate() bool { return !s.now.Before(s.run.StartedAt.Add(s.timeout)) }

// lateness is what a run that is late has waited for. The message of the run has what was found after the last decision, such as a Secret
// that does not exist. More time helps only a Restore or shards that make progress.
func (s *state) lateness() string {
	out := fmt.Sprintf("it did not end within %s: %s", s.timeout, cmp.Or(s.run.Message, s.progress()))
	if s.restore == operatorv1alpha1.RestorePhaseRunning || s.restore == operatorv1alpha1.RestorePhaseCompleted && s.waitsFor != "" {
		return out + ". Raise timeout if the installation needs longer"
	}
	return out
}

// progress is what a run waits for.
func (s *state) progress() string {
	switch {
	case s.restore == "":
		if s.restoreMessage != "" {
			return s.restoreMessage
		}
		return "the Restore does not exist yet"
	case s.restore != operatorv1alpha1.RestorePhaseCompleted:
		return "Restore: " + s.restoreMessage
	case s.waitsFor != "":
		return s.waitsFor
	case s.read != nil && s.read.problem != "":
		return "the restored shards cannot be read: " + s.read.problem
	}
	return "the restored shards are read"
}
