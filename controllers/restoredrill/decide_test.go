package restoredrill

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

func TestDecide(t *testing.T) {
	start := time.Date(2030, 1, 2, 3, 0, 0, 0, time.UTC)
	ours := func() *namespace { return &namespace{uid: "n", owner: "d"} }
	run := func(change func(*operatorv1alpha1.RestoreDrillRun)) *operatorv1alpha1.RestoreDrillRun {
		out := &operatorv1alpha1.RestoreDrillRun{StartedAt: metav1.NewTime(start), Namespace: "drills", NamespaceUID: "n", SavedLogicalClusters: 100, DataLoss: "1h0m0s"}
		if change != nil {
			change(out)
		}
		return out
	}
	begun := func(r *operatorv1alpha1.RestoreDrillRun) { r.NamespaceUID = "" }
	unread := func(r *operatorv1alpha1.RestoreDrillRun) { r.SavedLogicalClusters, r.DataLoss = 0, "" }
	empty := func(r *operatorv1alpha1.RestoreDrillRun) { r.SavedLogicalClusters = 0 }
	waiting := func(message string) func(*operatorv1alpha1.RestoreDrillRun) {
		return func(r *operatorv1alpha1.RestoreDrillRun) { r.Message = message }
	}
	ended := func(r *operatorv1alpha1.RestoreDrillRun) { r.Result = operatorv1alpha1.RestoreDrillSucceeded }
	foreign := func(uid string) *namespace { return &namespace{uid: uid, owner: "d", foreign: true} }
	const completed = operatorv1alpha1.RestorePhaseCompleted
	for name, tc := range map[string]struct {
		state   state
		after   time.Duration // of the start
		want    action
		message string
	}{
		"nothing is due":                            {state{hasBackup: true}, 0, actionIdle, ""},
		"a drill is due":                            {state{due: true, hasBackup: true}, 0, actionStart, ""},
		"a drill is due, and there is no backup":    {state{due: true}, 0, actionSkip, "no Backup is completed"},
		"the namespace is that of another drill":    {state{due: true, hasBackup: true, namespace: &namespace{owner: "e", holder: "kcp/other"}}, 0, actionWait, "RestoreDrill kcp/other uses namespace drills"},
		"the namespace is that of somebody else":    {state{due: true, hasBackup: true, namespace: &namespace{}}, 0, actionWait, "no drill has created it"},
		"another namespace stays when nothing runs": {state{namespace: &namespace{}}, 0, actionIdle, ""},
		"a drill that is not known any more":        {state{namespace: ours()}, 0, actionDeleteNamespace, "not known any more"},
		"and its namespace is being deleted":        {state{due: true, hasBackup: true, namespace: &namespace{owner: "d", terminating: true}}, 0, actionWait, "is being deleted"},
		"the RestoreDrill is deleted":               {state{deleting: true}, 0, actionRelease, ""},
		"it is deleted while a drill runs":          {state{deleting: true, run: run(nil), namespace: ours()}, 0, actionDeleteNamespace, ""},
		"it is deleted, and the namespace later":    {state{deleting: true, run: run(nil), namespace: &namespace{owner: "d", terminating: true}}, 0, actionWait, ""},
		"it is deleted, and the namespace is gone":  {state{deleting: true, run: run(nil)}, 0, actionRelease, ""},
		"it is deleted beside another drill":        {state{deleting: true, run: run(nil), namespace: &namespace{owner: "e"}}, 0, actionRelease, ""},

		"a run begins": {state{run: run(begun)}, 0, actionCreateNamespace, ""},
		"it cannot create its namespace for too long": {state{run: run(begun)}, time.Hour, actionFail, "did not end within 1h0m0s"},
		"its namespace was created":                   {state{run: run(begun), namespace: ours()}, 0, actionRecordNamespace, ""},
		"another drill was faster":                    {state{run: run(begun), namespace: &namespace{owner: "e", holder: "kcp/other"}}, 0, actionPostpone, "RestoreDrill kcp/other"},
		"somebody else was faster":                    {state{run: run(begun), namespace: &namespace{}}, 0, actionPostpone, "no drill has created it"},
		"its namespace was deleted":                   {state{run: run(nil)}, 0, actionFail, "was deleted while the drill ran"},
		"its namespace is being deleted":              {state{run: run(nil), namespace: &namespace{uid: "n", owner: "d", terminating: true}}, 0, actionFail, "was deleted while the drill ran"},
		"its namespace was replaced":                  {state{run: run(nil), namespace: &namespace{uid: "m", owner: "d"}}, 0, actionFail, "was deleted while the drill ran"},
		"its namespace has lost the label":            {state{run: run(nil), namespace: &namespace{uid: "n"}}, 0, actionFail, "has lost its label operator.kcp.io/restore-drill"},
		"it has lost it, and is being deleted":        {state{run: run(nil), namespace: &namespace{uid: "n", terminating: true}}, 0, actionFail, "was deleted while the drill ran"},

		"somebody has created it before our label":    {state{run: run(begun), namespace: foreign("n")}, 0, actionLeaveNamespace, "created by somebody else"},
		"and the run is not known any more":           {state{namespace: foreign("n")}, 0, actionLeaveNamespace, ""},
		"and the RestoreDrill is deleted":             {state{deleting: true, run: run(begun), namespace: foreign("n")}, 0, actionLeaveNamespace, ""},
		"and the run has ended":                       {state{run: run(ended), namespace: foreign("m")}, 0, actionLeaveNamespace, ""},
		"somebody writes the namespace that we made":  {state{run: run(nil), namespace: foreign("n")}, 0, actionRestore, ""},
		"it is deleted when the run has ended anyway": {state{run: run(ended), namespace: foreign("n")}, 0, actionDeleteNamespace, ""},

		"nothing is known of the backup":        {state{run: run(unread), namespace: ours()}, 0, actionReadBackup, ""},
		"what was known of it is lost":          {state{run: run(unread), namespace: ours(), restore: completed, read: &read{}}, 0, actionReadBackup, ""},
		"it has nothing":                        {state{run: run(empty), namespace: ours(), restore: completed, read: &read{}}, 0, actionFail, "no logical clusters"},
		"nothing is restored yet":               {state{run: run(nil), namespace: ours()}, 0, actionRestore, "does not exist yet"},
		"the Restore runs":                      {state{run: run(nil), namespace: ours(), restore: "Running", restoreMessage: "0 of 1 members"}, time.Minute, actionRestore, "Restore: 0 of 1 members"},
		"the Restore runs for too long":         {state{run: run(nil), namespace: ours(), restore: "Running", restoreMessage: "0 of 1 members"}, time.Hour, actionFail, "1h0m0s: Restore: 0 of 1 members. Raise timeout"},
		"a Secret is missing for too long":      {state{run: run(waiting("Secret age does not exist")), namespace: ours()}, time.Hour, actionFail, "it did not end within 1h0m0s: Secret age does not exist"},
		"shards could not be read for too long": {state{run: run(waiting("they cannot be read")), namespace: ours(), restore: completed}, time.Hour, actionFail, "it did not end within 1h0m0s: they cannot be read"},
		"the Restore has failed":                {state{run: run(nil), namespace: ours(), restore: "Failed", restoreMessage: "it is damaged"}, 2 * time.Hour, actionFail, "the Restore has failed: it is damaged"},
		"a shard is not ready":                  {state{run: run(nil), namespace: ours(), restore: completed, waitsFor: "Shard a is not ready"}, 0, actionRestore, "Shard a is not ready"},
		"a shard is not ready for too long":     {state{run: run(nil), namespace: ours(), restore: completed, waitsFor: "Shard a is not ready"}, time.Hour, actionFail, "Shard a is not ready. Raise timeout"},
		"all shards are ready":                  {state{run: run(nil), namespace: ours(), restore: completed}, 0, actionCheck, ""},
		"a shard cannot be read":                {state{run: run(nil), namespace: ours(), restore: completed, read: &read{problem: "refused"}}, 0, actionCheck, "cannot be read: refused"},
		"a shard cannot be read for too long":   {state{run: run(nil), namespace: ours(), restore: completed, read: &read{problem: "refused"}}, time.Hour, actionFail, "cannot be read: refused"},
		"everything is served":                  {state{run: run(nil), namespace: ours(), restore: completed, read: &read{logicalClusters: 100}}, 0, actionSucceed, ""},
		"some that were being deleted are not":  {state{run: run(nil), namespace: ours(), restore: completed, read: &read{logicalClusters: 90}}, 0, actionSucceed, ""},
		"too much is missing":                   {state{run: run(nil), namespace: ours(), restore: completed, read: &read{logicalClusters: 89}}, 0, actionFail, "serve 89 logical clusters, and the backup has 100"},
		"a shard lacks too many":                {state{run: run(nil), namespace: ours(), restore: completed, read: &read{logicalClusters: 95, lacking: "shard a"}}, 0, actionFail, "shard a"},
		"a run has ended":                       {state{run: run(ended), namespace: ours()}, 2 * time.Hour, actionDeleteNamespace, ""},
		"and its namespace is being deleted, too": {
			state{run: run(ended), namespace: &namespace{owner: "d", terminating: true}}, 0, actionWait, "its conditions say what is left in it",
		},
		"and its namespace is gone":                {state{run: run(ended)}, 0, actionRecord, ""},
		"and another namespace of the name exists": {state{run: run(ended), namespace: &namespace{owner: "e"}}, 0, actionRecord, ""},
	} {
		t.Run(name, func(t *testing.T) {
			tc.state.now, tc.state.uid, tc.state.timeout, tc.state.name = start.Add(tc.after), "d", time.Hour, "drills"
			if got := decide(tc.state); got.action != tc.want || !strings.Contains(got.message, tc.message) {
				t.Errorf("got %s %q, want %s %q", got.action, got.message, tc.want, tc.message)
			} else if advice := "Raise timeout"; strings.Contains(got.message, advice) && !strings.Contains(tc.message, advice) {
				t.Errorf("got %q, which does not help", got.message)
			}
		})
	}
}

// TestLacking compares each shard, so that an empty one is not hidden by others.
func TestLacking(t *testing.T) {
	for name, tc := range map[string]struct {
		served int64
		saved  string
		want   string
	}{
		"all":                   {100, "100", ""},
		"a tenth is missing":    {90, "100", ""},
		"more is missing":       {89, "100", "the restored shard a serves 89 logical clusters, and the backup has 100 of it"},
		"one of a few":          {2, "3", ""},
		"two of a few":          {1, "3", "more than a tenth"},
		"the only one":          {0, "1", "more than a tenth"},
		"none was saved":        {0, "0", ""},
		"more than were saved":  {5, "3", ""},
		"the number is unknown": {5, "", "has lost annotation"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := lacking("a", tc.served, tc.saved); !strings.Contains(got, tc.want) || (got != "") != (tc.want != "") {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
