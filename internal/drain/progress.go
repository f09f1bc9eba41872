package drain

import (
	"fmt"
	"time"
)

// Progress is what a drain has achieved.
type Progress struct {
	// Moved is the number of logical clusters that are on other shards, Left that of those on the shard without those of the
	// system, and Moving that of the migrations that are under way.
	Moved, Left, Moving int
	// Busy is set if as many migrations run as may, so that nothing but Moving, Moved and Waiting is known.
	Busy bool
	// System is the number of logical clusters that belong to the shard, root included.
	System int
	// Refused are those that cannot be moved; of those that have been examined, without Situation.Examine.
	Refused []Refused
	// Failed are those whose last migration has failed. They are tried again.
	Failed []Failed
	// Waiting are messages of migrations that wait for another shard, and of those that somebody else has created.
	Waiting []string
	// Unread are messages about what could not be read, so that more may be on the shard, or be moved.
	Unread []string
}

// Refused is a logical cluster that cannot be moved as things are.
type Refused struct{ LogicalCluster, Reason string }

// Failed is a logical cluster whose last migration has failed.
type Failed struct {
	Refused
	Attempts int
	RetryAt  time.Time
}

// IsDone reports whether nothing but what belongs to the shard is left on it.
func (p Progress) IsDone() bool { return !p.Busy && p.Left == 0 && p.Moving == 0 && len(p.Unread) == 0 }

// IsIdle reports whether nothing moves, and nothing is worth waiting for.
func (p Progress) IsIdle() bool {
	if p.Moving > 0 || len(p.Waiting) > 0 {
		return false
	}
	for _, failed := range p.Failed {
		if failed.Attempts < MaxAttempts {
			return false
		}
	}
	return true
}

// Total returns the number of logical clusters that the drain is about.
func (p Progress) Total() int { return p.Moved + p.Left }

// Reasons returns a line for each logical cluster that does not move now, and for what could not be read.
func (p Progress) Reasons() []string {
	var reasons []string
	for _, refused := range p.Refused {
		reasons = append(reasons, refused.LogicalCluster+": "+refused.Reason)
	}
	for _, failed := range p.Failed {
		reasons = append(reasons, fmt.Sprintf("%s: %s (attempt %d, the next follows at %s)", failed.LogicalCluster, failed.Reason, failed.Attempts, failed.RetryAt.UTC().Format(time.RFC3339)))
	}
	for _, unread := range p.Unread {
		reasons = append(reasons, "not read: "+unread)
	}
	return append(reasons, p.Waiting...)
}

// String returns the numbers: "12 of 200 moved, 2 moving, 1 refused".
func (p Progress) String() string {
	text := fmt.Sprintf("%d of %d moved", p.Moved, p.Total())
	if p.Busy {
		text = fmt.Sprintf("%d moved", p.Moved) // what is left has not been counted
	}
	for _, part := range []struct {
		count int
		what  string
	}{{p.Moving, "moving"}, {len(p.Refused), "refused"}, {len(p.Failed), "failed"}} {
		if part.count > 0 {
			text += fmt.Sprintf(", %d %s", part.count, part.what)
		}
	}
	return text
}
