package backupschedule

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestPlan(t *testing.T) {
	now := at("2030-01-31 12:00")
	const day = 24 * time.Hour
	// backups are days before now; a failed one has an F.
	backups := func(text string) []candidate {
		var out []candidate
		for _, word := range strings.Fields(text) {
			var days int
			if _, err := fmt.Sscanf(word, "%d", &days); err != nil {
				t.Fatal(err)
			}
			out = append(out, candidate{word, now.Add(-time.Duration(days) * day), !strings.HasSuffix(word, "F")})
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
	t.Run("a clock that is years ahead removes no completed one", func(t *testing.T) {
		if got := plan(policy{keepWithin: 5 * day}, backups("1 2 3 4"), now.AddDate(5, 0, 0)); len(got) > 0 {
			t.Errorf("got %v", got)
		}
	})
}
