// Package schedule computes the times of a schedule in the dialect of CronJobs: of BackupSchedules and RestoreDrills. It starts nothing.
package schedule

import (
	"fmt"
	"time"
	_ "time/tzdata" // the image has no time zones

	"github.com/robfig/cron/v3"
)

// Schedule is a sequence of times.
type Schedule struct{ spec *cron.SpecSchedule }

// Parse reads a schedule in the dialect of CronJobs. The definition of the kind refuses a time zone inside of it.
func Parse(text, timeZone string) (Schedule, error) {
	zone, err := time.LoadLocation(timeZone) // of an empty name, UTC
	if err != nil || zone == time.Local {
		return Schedule{}, fmt.Errorf("timeZone is %q, which is none: set a name such as Europe/Berlin", timeZone)
	}
	parsed, err := cron.ParseStandard(text)
	if err != nil {
		return Schedule{}, fmt.Errorf("schedule is %q: %w. Set five fields, such as \"0 3 * * *\"", text, err)
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok { // @every counts from the start of a process
		return Schedule{}, fmt.Errorf("schedule is %q, which names no times of the clock: set five fields, such as \"0 3 * * *\"", text)
	}
	spec.Location = zone
	out := Schedule{spec}
	if out.Next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return Schedule{}, fmt.Errorf("schedule is %q, which never occurs", text)
	}
	return out, nil
}

// Next returns the first time after another one.
func (s Schedule) Next(after time.Time) time.Time { return s.spec.Next(after.UTC()) }

// IsOverdue reports whether two times in a row have passed since the last success without another one. What has begun and not ended has
// until the third.
func (s Schedule) IsOverdue(success time.Time, unfinished bool, now time.Time) bool {
	times := 2
	if unfinished {
		times = 3
	}
	for range times {
		success = s.Next(success)
	}
	return !success.IsZero() && !now.Before(success)
}

// Due returns the time for which something is to be done now, and whether there is one. However many times have passed, and however far
// the clock has jumped, it is one: the one that was announced in the status. A clock that is set back repeats a time.
func Due(announced *time.Time, now time.Time) (time.Time, bool) {
	if announced == nil || now.Before(*announced) {
		return time.Time{}, false
	}
	return *announced, true
}
