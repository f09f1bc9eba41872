package workspacelog

import (
	"fmt"
	"testing"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// check compares the counters of a ring with what it has.
func check(t *testing.T, r *ring) {
	t.Helper()
	var used int64
	for cluster, q := range r.clusters {
		bytes := int64(clusterOverhead)
		for _, record := range q.records {
			bytes += record.size()
		}
		if bytes != q.bytes || q.cluster != cluster || len(q.records) == 0 || r.largest[q.index] != q {
			t.Fatalf("%s: %d bytes are counted as %d, %d records, index %d", cluster, bytes, q.bytes, len(q.records), q.index)
		}
		used += bytes
	}
	if used != r.used || used > r.limit || len(r.clusters) != len(r.largest) {
		t.Fatalf("%d bytes are counted as %d of %d; %d logical clusters, %d in the heap", used, r.used, r.limit, len(r.clusters), len(r.largest))
	}
}

func TestRing(t *testing.T) {
	const limit = 1 << 20
	name := func(kind string, i int) logicalcluster.Name {
		return logicalcluster.MustParseName(fmt.Sprintf("%s%d", kind, i))
	}
	event := make([]byte, 500)

	t.Run("one that is noisy removes only its own events", func(t *testing.T) {
		r := newRing(limit)
		for i := range 100 {
			for at := range 3 {
				r.add(name("quiet", i), record{int64(at), event})
			}
		}
		for at := range 5000 {
			r.add(name("noisy", 0), record{int64(at), event})
		}
		check(t, r)
		for i := range 100 {
			if got := len(r.read(name("quiet", i))); got != 3 {
				t.Errorf("quiet%d has %d events, want 3", i, got)
			}
		}
		noisy := r.read(name("noisy", 0))
		if last := noisy[len(noisy)-1].at; last != 4999 || r.clusters[name("noisy", 0)].bytes > limit/clusterShare {
			t.Errorf("the noisy one has %d events until %d, in %d bytes", len(noisy), last, r.clusters[name("noisy", 0)].bytes)
		}
	})
	t.Run("many that are noisy share what there is with those that are quiet", func(t *testing.T) {
		r := newRing(limit)
		r.add(name("quiet", 0), record{0, event})
		for at := range 200 {
			for i := range 100 {
				r.add(name("noisy", i), record{int64(at), event})
			}
		}
		check(t, r)
		if len(r.read(name("quiet", 0))) != 1 {
			t.Error("the quiet one has lost its event")
		}
		least, most := limit, 0
		for i := range 100 {
			count := len(r.read(name("noisy", i)))
			least, most = min(least, count), max(most, count)
		}
		if least < 10 || most-least > 1 {
			t.Errorf("the noisy ones have %d to %d events", least, most)
		}
	})
	t.Run("more logical clusters than fit", func(t *testing.T) {
		r := newRing(limit)
		for i := range 20000 {
			r.add(name("c", i), record{int64(i), event})
		}
		check(t, r)
		if bound := limit / (clusterOverhead + recordOverhead + len(event)); len(r.clusters) > bound {
			t.Errorf("%d logical clusters have an entry, want at most %d", len(r.clusters), bound)
		}
		for _, cluster := range r.list() {
			r.remove(cluster)
		}
		check(t, r)
		if r.used != 0 || len(r.clusters) != 0 {
			t.Errorf("%d bytes of %d logical clusters are left", r.used, len(r.clusters))
		}
	})
	t.Run("an event that is larger than the ring", func(t *testing.T) {
		r := newRing(1000)
		r.add(name("c", 0), record{0, make([]byte, 2000)})
		check(t, r)
	})
}

func TestNewest(t *testing.T) {
	records := func() []record { return []record{{at: 3}, {at: 1}, {at: 2}, {at: 5}, {at: 4}} }
	for name, test := range map[string]struct {
		since int64
		limit int
		want  string
	}{
		"all, in the order of time": {0, 10, "1 2 3 4 5 "},
		"the newest":                {0, 2, "4 5 "},
		"since a time":              {4, 10, "4 5 "},
		"none":                      {6, 10, ""},
	} {
		got := ""
		for _, r := range newest(records(), test.since, test.limit) {
			got += fmt.Sprint(r.at, " ")
		}
		if got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}
