package opentofu

import (
	"testing"
	"time"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/backends/opentofu/runner"
)

var now = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// ended returns a run that ended some time ago.
func ended(operation runner.Operation, revision string, attempt int, succeeded bool, ago time.Duration) *run {
	return &run{operation: operation, revision: revision, attempt: attempt, succeeded: succeeded, finished: now.Add(-ago), image: "image"}
}

func active(operation runner.Operation, revision string, pending bool, image string) *run {
	return &run{operation: operation, revision: revision, attempt: 1, active: true, pending: pending, image: image}
}

func TestDecide(t *testing.T) {
	applied := func(revision string, ago time.Duration) runner.Result {
		return runner.Result{Revision: revision, Time: now.Add(-ago)}
	}
	for name, test := range map[string]struct {
		last   *run
		result runner.Result
		drift  time.Duration
		repair bool
		want   decision
	}{
		"a new instance is applied":                          {want: decision{start: runner.Apply, attempt: 1}},
		"an instance without drift interval stays":           {last: ended(runner.Apply, "b", 1, true, 0), result: applied("b", 0), want: decision{after: idleRecheck}},
		"changed inputs are applied":                         {last: ended(runner.Apply, "a", 3, true, 0), result: applied("a", 0), want: decision{start: runner.Apply, attempt: 1}},
		"changed inputs are applied after a failure":         {last: ended(runner.Apply, "a", 3, false, 0), want: decision{start: runner.Apply, attempt: 1}},
		"a run that runs is waited for":                      {last: active(runner.Apply, "b", false, "image"), want: decision{after: activeRecheck}},
		"a run of old inputs is waited for":                  {last: active(runner.Apply, "a", false, "old"), want: decision{after: activeRecheck}},
		"a run that does not run yet is waited for":          {last: active(runner.Apply, "b", true, "image"), want: decision{after: activeRecheck}},
		"one of old inputs is canceled":                      {last: active(runner.Apply, "a", true, "image"), want: decision{cancel: true}},
		"one of another image is canceled":                   {last: active(runner.Apply, "b", true, "old"), want: decision{cancel: true}},
		"a failure is repeated later":                        {last: ended(runner.Apply, "b", 2, false, 5*time.Second), want: decision{after: 15 * time.Second}},
		"a failure is repeated":                              {last: ended(runner.Apply, "b", 2, false, 20*time.Second), want: decision{start: runner.Apply, attempt: 3}},
		"a result that is lost is made again, but later":     {last: ended(runner.Apply, "b", 1, true, 0), want: decision{after: 10 * time.Second}},
		"differences are looked for":                         {last: ended(runner.Apply, "b", 1, true, time.Hour), result: applied("b", time.Hour), drift: time.Hour, want: decision{start: runner.Check, attempt: 1}},
		"differences are looked for later":                   {last: ended(runner.Apply, "b", 1, true, time.Hour), result: applied("b", time.Minute), drift: time.Hour, want: decision{after: 59 * time.Minute}},
		"differences are repaired":                           {last: ended(runner.Repair, "b", 1, true, time.Hour), result: applied("b", time.Hour), drift: time.Hour, repair: true, want: decision{start: runner.Repair, attempt: 1}},
		"looking for differences failed, and is repeated":    {last: ended(runner.Check, "b", 1, false, time.Minute), result: applied("b", time.Hour), drift: time.Hour, want: decision{start: runner.Check, attempt: 2}},
		"changed inputs come before looking for differences": {last: ended(runner.Check, "a", 1, false, 0), result: applied("a", time.Hour), drift: time.Hour, want: decision{start: runner.Apply, attempt: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &situation{now: now, last: test.last, result: test.result, revision: "b", image: "image", driftInterval: test.drift, repair: test.repair, retry: 10 * time.Second}
			if got := s.decide(); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestDecideDestroy(t *testing.T) {
	for name, test := range map[string]struct {
		last    *run
		result  runner.Result
		noState bool
		retain  bool
		want    decision
		gone    bool
	}{
		"one that is retained is gone":                {last: ended(runner.Apply, "b", 1, true, 0), retain: true, gone: true},
		"but not before its run has ended":            {last: active(runner.Apply, "b", false, "image"), retain: true, want: decision{after: activeRecheck}},
		"an instance is destroyed":                    {last: ended(runner.Apply, "b", 1, true, 0), want: decision{start: runner.Destroy, attempt: 1}},
		"one that was never applied has nothing":      {last: ended(runner.Apply, "b", 9, false, 0), noState: true, gone: true},
		"one that never had a run has nothing":        {noState: true, gone: true},
		"a run that runs is waited for":               {last: active(runner.Apply, "b", false, "image"), noState: true, want: decision{after: activeRecheck}},
		"a run that does not run yet is canceled":     {last: active(runner.Apply, "b", true, "image"), want: decision{cancel: true}},
		"the one that destroys is not":                {last: active(runner.Destroy, "b", true, "image"), want: decision{after: activeRecheck}},
		"unless its image was changed":                {last: active(runner.Destroy, "b", true, "old"), want: decision{cancel: true}},
		"a failure is repeated later":                 {last: ended(runner.Destroy, "b", 1, false, 0), want: decision{after: 10 * time.Second}},
		"a failure is repeated":                       {last: ended(runner.Destroy, "b", 1, false, time.Minute), want: decision{start: runner.Destroy, attempt: 2}},
		"a failure is repeated at once when repaired": {last: ended(runner.Destroy, "a", 7, false, 0), want: decision{start: runner.Destroy, attempt: 1}},
		"an instance that was destroyed is gone":      {last: ended(runner.Destroy, "b", 1, true, 0), result: runner.Result{Destroyed: true}, gone: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := &situation{now: now, last: test.last, result: test.result, revision: "b", image: "image", retry: 10 * time.Second, retain: test.retain}
			if got, gone := s.decideDestroy(!test.noState); got != test.want || gone != test.gone {
				t.Errorf("got %+v, %v, want %+v, %v", got, gone, test.want, test.gone)
			}
		})
	}
}

func TestPhase(t *testing.T) {
	for name, test := range map[string]struct {
		last   *run
		result runner.Result
		want   infrastructurev1alpha1.InstancePhase
	}{
		"while it is created":                 {last: active(runner.Apply, "b", false, ""), want: infrastructurev1alpha1.PhaseProvisioning},
		"while it is changed":                 {last: active(runner.Apply, "b", false, ""), result: runner.Result{Revision: "a"}, want: infrastructurev1alpha1.PhaseProvisioning},
		"after a failure":                     {last: ended(runner.Apply, "b", 1, false, 0), want: infrastructurev1alpha1.PhaseFailed},
		"while it is tried again":             {last: &run{operation: runner.Apply, revision: "b", attempt: 2, active: true}, want: infrastructurev1alpha1.PhaseFailed},
		"when a failure was changed":          {last: ended(runner.Apply, "a", 3, false, 0), want: infrastructurev1alpha1.PhaseProvisioning},
		"when it is applied":                  {last: ended(runner.Apply, "b", 1, true, 0), result: runner.Result{Revision: "b"}, want: infrastructurev1alpha1.PhaseReady},
		"when looking for differences failed": {last: ended(runner.Check, "b", 4, false, 0), result: runner.Result{Revision: "b"}, want: infrastructurev1alpha1.PhaseReady},
	} {
		t.Run(name, func(t *testing.T) {
			s := &situation{now: now, last: test.last, result: test.result, revision: "b"}
			if got, _ := s.phase(); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestRetryDelay(t *testing.T) {
	for attempt, want := range map[int]time.Duration{1: 10 * time.Second, 2: 20 * time.Second, 5: 160 * time.Second, 8: maxRetry, 1000: maxRetry} {
		if got := retryDelay(10*time.Second, attempt); got != want {
			t.Errorf("attempt %d: %s, want %s", attempt, got, want)
		}
	}
}

func TestRunsAreNumbered(t *testing.T) {
	last := lastRun([]*run{{name: "x-9", sequence: 9}, {name: "x-11", sequence: 11}, {name: "x-10", sequence: 10}})
	if next := nextRun("x", last, decision{start: runner.Apply, attempt: 4}, "b"); next.name != "x-12" || next.sequence != 12 || next.attempt != 4 {
		t.Errorf("the next run is %+v", next)
	}
	if last := lastRun([]*run{{sequence: 9, active: true}, {sequence: 10}}); last.sequence != 9 {
		t.Errorf("an active run is passed over for %+v", last)
	}
	if lastRun(nil) != nil || nextRun("x", nil, decision{}, "").name != "x-1" {
		t.Error("the first run is not the first")
	}
}
