package rebalance

import (
	"fmt"
	"slices"
	"time"
	_ "time/tzdata" // the image has no time zones
)

// Window is a time of the day at which moves may begin.
type Window struct {
	// Start is "15:04", Duration at most a day.
	Start    string
	Duration time.Duration
	// Days are those on which it starts, "Mon" to "Sun"; every day without any.
	Days []string
	// TimeZone is a name such as "Europe/Berlin"; UTC without one.
	TimeZone string
}

// IsOpen reports whether moves may begin: in one of the windows, or at any time without windows.
func IsOpen(windows []Window, now time.Time) (bool, error) {
	for i, window := range windows {
		open, err := window.contains(now)
		if err != nil {
			return false, fmt.Errorf("windows[%d]: %w", i, err)
		}
		if open {
			return true, nil
		}
	}
	return len(windows) == 0, nil
}

func (w Window) contains(now time.Time) (bool, error) {
	zone, err := time.LoadLocation(w.TimeZone)
	if err != nil {
		return false, fmt.Errorf("timeZone is %q, which is none: set a name such as Europe/Berlin", w.TimeZone)
	}
	start, err := time.Parse("15:04", w.Start)
	if err != nil {
		return false, fmt.Errorf("start is %q: set hours and minutes, such as 02:30", w.Start)
	}
	now = now.In(zone)
	for _, day := range []int{0, -1} { // one that has started yesterday may last until today
		begin := time.Date(now.Year(), now.Month(), now.Day()+day, start.Hour(), start.Minute(), 0, 0, zone)
		if len(w.Days) > 0 && !slices.Contains(w.Days, begin.Format("Mon")) {
			continue
		}
		if !now.Before(begin) && now.Before(begin.Add(w.Duration)) {
			return true, nil
		}
	}
	return false, nil
}
