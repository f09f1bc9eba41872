package migration

import (
	"fmt"
	"testing"

	"github.com/atoll-dev/atoll/test/installation"
	"github.com/atoll-dev/atoll/test/migration/moveload"
)

func (e *env) testLoad(t *testing.T) {
	workspace, c := e.workspace(t, "loaded", installation.Alpha)
	config := e.Admin(t, "root:loaded")
	moveload.Fill(t, config, 300)
	l := moveload.Start(t, config)
	for i, shard := range []string{installation.Beta, installation.Alpha} {
		e.moveTo(t, fmt.Sprint("loaded-", i), workspace, c, shard)
	}
	l.End()
	if len(l.Reads.Failures) > 0 || l.Reads.Unavailable > 0 {
		t.Errorf("of %d reads %d were refused (%s), and fail with %q", l.Reads.Served, l.Reads.Unavailable, l.Reads.Refusal, l.Reads.Failures)
	}
	// A version of the origin may be refused as a conflict at the destination, once for each move.
	if len(l.Writes.Failures) > 2 {
		t.Errorf("writes fail with %q", l.Writes.Failures)
	}
	if l.Lost > 0 || l.Repeated > 0 || l.Writes.Served == 0 || l.Writes.Unavailable == 0 {
		t.Errorf("%d writes were served, %d refused, %d lost, %d done twice", l.Writes.Served, l.Writes.Unavailable, l.Lost, l.Repeated)
	}
	t.Logf("none of %d reads and %d of %d writes were refused; the slowest read took %s", l.Reads.Served, l.Writes.Unavailable, l.Writes.Served, l.Reads.Slowest)
	if stored, err := l.Stored(t.Context()); err != nil || stored != l.Value {
		t.Errorf("stored is %d (%v), acknowledged was %d", stored, err, l.Value)
	}
}
