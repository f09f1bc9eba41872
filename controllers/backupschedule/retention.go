package backupschedule

import (
	"cmp"
	"slices"
	"time"
)

const (
	// attemptBound is how long after the end of a Backup what its attempts have left in the store is removed: a pod on a node that does not
	// answer may write for a while.
	attemptBound = 24 * time.Hour
	// maxFailed bounds the Backups of a schedule that keeps failing.
	maxFailed = 10
)

// policy is what is kept. A zero value is a rule that keeps nothing.
type policy struct {
	keepLast   int
	keepWithin time.Duration
}

// candidate is a Backup of a schedule that has ended.
type candidate struct {
	name      string
	created   time.Time
	ended     time.Time
	completed bool
	begun     bool // its removal has begun: it is no backup any more
}

// removal is a Backup to remove.
type removal struct {
	name string
	// onlyIncomplete keeps what has a manifest, and the Backup with it: a failed Backup may have one, whose result was lost.
	onlyIncomplete bool
}

// plan returns what to remove, oldest first. It never returns the completed Backup that is newest. Ages are counted from that one, so that
// nothing becomes too old while no Backup is completed, or because a clock jumps.
func plan(policy policy, candidates []candidate, now time.Time) []removal {
	candidates = slices.SortedFunc(slices.Values(candidates), func(a, b candidate) int { // newest first
		return cmp.Or(b.created.Compare(a.created), cmp.Compare(b.name, a.name))
	})
	var out []removal
	var newest time.Time
	completed, failed := 0, 0
	for _, c := range candidates {
		if c.begun {
			out = append(out, removal{name: c.name})
			continue
		}
		if c.completed {
			if completed++; completed == 1 {
				newest = c.created
				continue
			}
			isWithin := policy.keepWithin > 0 && newest.Sub(c.created) <= policy.keepWithin
			if completed > policy.keepLast && !isWithin {
				out = append(out, removal{name: c.name})
			}
			continue
		}
		failed++
		switch {
		case now.Sub(c.ended) < attemptBound:
		case completed > 0:
			out = append(out, removal{name: c.name})
		case failed > maxFailed:
			out = append(out, removal{name: c.name, onlyIncomplete: true})
		}
	}
	slices.Reverse(out)
	return out
}
