package backupschedule

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// TestEndOf finds the end of a Backup that was False before it failed, too.
func TestEndOf(t *testing.T) {
	b := newBackup("a", "2030-01-01 03:00", failed)
	if got := endOf(b); !got.Equal(at("2030-01-01 03:00")) {
		t.Errorf("got %s", got)
	}
	for conditionType, since := range map[string]string{operatorv1alpha1.ConditionCompleted: "2030-01-01 03:01", operatorv1alpha1.ConditionStalled: "2030-01-03 09:00"} {
		b.Status.Conditions = append(b.Status.Conditions, metav1.Condition{Type: conditionType, LastTransitionTime: metav1.NewTime(at(since))})
	}
	if got := endOf(b); !got.Equal(at("2030-01-03 09:00")) {
		t.Errorf("got %s", got)
	}
}

func TestPlan(t *testing.T) {
	now := at("2030-01-31 12:00")
	const day = 24 * time.Hour
	// backups are days before now; a failed one has an F, one whose removal has begun an R.
	backups := func(text string) []candidate {
		var out []candidate
		for _, word := range strings.Fields(text) {
			var days int
			if _, err := fmt.Sscanf(word, "%d", &days); err != nil {
				t.Fatal(err)
			}
			created := now.Add(-time.Duration(days) * day)
			out = append(out, candidate{name: word, created: created, ended: created, completed: !strings.HasSuffix(word, "F"), begun: strings.HasSuffix(word, "R")})
		}
		return out
	}
	for name, tc := range map[string]struct {
		policy  policy
		backups string
		want    string // an i: only what is incomplete
	}{
		"nothing":                          {policy{keepLast: 1}, "", ""},
		"the last ones":                    {policy{keepLast: 2}, "1 2 3 4", "4 3"},
		"in any order":                     {policy{keepLast: 2}, "4 1 3 2", "4 3"},
		"within a time of the last":        {policy{keepWithin: 2 * day}, "1 2 3 4 5", "5 4"},
		"of the same moment":               {policy{keepLast: 1}, "1 1 1", "1 1"},
		"what either rule keeps":           {policy{keepLast: 2, keepWithin: 3 * day}, "1 2 4 5 6", "6 5"},
		"the last one, however old":        {policy{keepWithin: time.Hour}, "20", ""},
		"nothing ages without a success":   {policy{keepWithin: 2 * day}, "20 21 1F 2F", ""},
		"failed ones do not count as kept": {policy{keepLast: 1}, "2 3 0F", "3"},
		"a failed one that a success ends": {policy{keepLast: 5}, "1 2 3F", "3F"},
		"a failed one of today":            {policy{keepLast: 5}, "0 0F", ""},
		"one that failed after the last":   {policy{keepLast: 5}, "3 2F", ""},
		"a removal that has begun":         {policy{keepLast: 2}, "1 2R 3", "2R"},
		"only a removal that has begun":    {policy{keepLast: 2, keepWithin: 9 * day}, "1R", "1R"},
		"a failure counts from no removal": {policy{keepLast: 2}, "1R 2F", "1R"},
		"too many that failed":             {policy{keepLast: 1}, "1F 2F 3F 4F 5F 6F 7F 8F 9F 10F 11F 12F", "12Fi 11Fi"},
		"too many after a success":         {policy{keepLast: 1}, "1F 2F 3F 4F 5F 6F 7F 8F 9F 10F 11F 12", "11Fi"},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, removal := range plan(tc.policy, backups(tc.backups), now) {
				if removal.onlyIncomplete {
					removal.name += "i"
				}
				got = append(got, removal.name)
			}
			if !slices.Equal(got, strings.Fields(tc.want)) {
				t.Errorf("got %v, want %s", got, tc.want)
			}
		})
	}
	t.Run("one that waited for days before it failed today", func(t *testing.T) {
		waited := backups("1 9F")
		waited[1].ended = now
		if got := plan(policy{keepLast: 5}, waited, now); len(got) > 0 {
			t.Errorf("got %v", got)
		}
	})
	t.Run("a clock that is years ahead removes no completed one", func(t *testing.T) {
		if got := plan(policy{keepWithin: 5 * day}, backups("1 2 3 4"), now.AddDate(5, 0, 0)); len(got) > 0 {
			t.Errorf("got %v", got)
		}
	})
}
