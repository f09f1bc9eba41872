package schedule

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func at(text string) time.Time {
	out, err := time.Parse("2006-01-02 15:04", text)
	if err != nil {
		panic(err)
	}
	return out
}

func TestNext(t *testing.T) {
	for name, tc := range map[string]struct {
		schedule, zone, after string
		want                  []string
	}{
		"each night":                    {"0 3 * * *", "", "2030-01-02 02:59", []string{"2030-01-02 03:00", "2030-01-03 03:00"}},
		"a time is after itself":        {"0 3 * * *", "", "2030-01-02 03:00", []string{"2030-01-03 03:00"}},
		"a name":                        {"@weekly", "", "2030-01-02 03:00", []string{"2030-01-06 00:00"}},
		"another zone":                  {"0 3 * * *", "Europe/Berlin", "2030-01-01 12:00", []string{"2030-01-02 02:00"}},
		"an hour that does not exist":   {"30 2 * * *", "Europe/Berlin", "2030-03-30 12:00", []string{"2030-04-01 00:30"}},
		"an hour that occurs twice":     {"30 2 * * *", "Europe/Berlin", "2030-10-26 12:00", []string{"2030-10-27 00:30", "2030-10-27 01:30", "2030-10-28 01:30"}},
		"days of the month or the week": {"0 0 13 * 5", "", "2030-09-12 12:00", []string{"2030-09-13 00:00", "2030-09-20 00:00"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Parse(tc.schedule, tc.zone)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for now := at(tc.after); len(got) < len(tc.want); {
				now = s.Next(now)
				got = append(got, now.Format("2006-01-02 15:04"))
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestInvalidSchedules(t *testing.T) {
	for name, tc := range map[string]struct{ schedule, zone, want string }{
		"a field that is none":  {"0 25 * * *", "", "schedule is \"0 25 * * *\""},
		"a day that never is":   {"0 0 30 2 *", "", "which never occurs"},
		"an interval":           {"@every 1h", "", "names no times of the clock"},
		"a zone that is none":   {"0 3 * * *", "Europe/Atlantis", "timeZone is \"Europe/Atlantis\""},
		"the zone of a machine": {"0 3 * * *", "Local", "timeZone is \"Local\""},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Parse(tc.schedule, tc.zone); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestOverdue(t *testing.T) {
	daily, err := Parse("0 3 * * *", "")
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		now        string
		unfinished bool
		want       bool
	}{
		"one was missed":                     {"2030-01-03 23:00", false, false},
		"two were missed":                    {"2030-01-04 03:00", false, true},
		"the second has not ended":           {"2030-01-04 04:00", true, false},
		"one that does not end for too long": {"2030-01-05 03:00", true, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := daily.IsOverdue(at("2030-01-02 03:00"), tc.unfinished, at(tc.now)); got != tc.want {
				t.Errorf("got %v", got)
			}
		})
	}
}
