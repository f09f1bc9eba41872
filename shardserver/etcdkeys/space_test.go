package etcdkeys

import (
	"strings"
	"testing"
	"time"
)

func TestSpaceLevel(t *testing.T) {
	const quota = 100 << 20
	of := func(percent int64) int64 { return percent * quota / 100 }
	for name, tc := range map[string]struct {
		space    Space
		want     SpaceLevel
		shortage string
	}{
		"an empty database":                         {Space{Quota: quota, Size: 1 << 20, InUse: 1 << 20}, SpaceOK, ""},
		"below the low watermark":                   {Space{Quota: quota, Size: of(79), InUse: of(79)}, SpaceOK, ""},
		"at the low watermark":                      {Space{Quota: quota, Size: of(80), InUse: of(80)}, SpaceLow, "more than 75 percent of its quota of 100Mi"},
		"at the critical watermark":                 {Space{Quota: quota, Size: of(90), InUse: of(90)}, SpaceCritical, "more than 85 percent"},
		"a large file of free pages":                {Space{Quota: quota, Size: of(94), InUse: of(10)}, SpaceOK, ""},
		"a file of free pages close to the alarm":   {Space{Quota: quota, Size: of(95), InUse: of(10)}, SpaceLow, "defragment"},
		"the alarm, with free pages":                {Space{Quota: quota, Size: of(100), InUse: of(10), NoSpace: true}, SpaceCritical, "NOSPACE"},
		"an unknown quota":                          {Space{Size: 1 << 40, InUse: 1 << 40}, SpaceOK, ""},
		"an unknown quota, the alarm":               {Space{Size: 1 << 20, InUse: 1 << 20, NoSpace: true}, SpaceCritical, "NOSPACE"},
		"one member with the alarm, another with 0": {Space{NoSpace: true}.worse(Space{Quota: quota}), SpaceCritical, "NOSPACE"},
		"of two members, the one with less left":    {Space{Quota: quota, InUse: of(10)}.worse(Space{Quota: quota, InUse: of(85)}), SpaceLow, "75 percent"},
		"of two members, the other one":             {Space{Quota: quota, InUse: of(85)}.worse(Space{Quota: quota, InUse: of(10)}), SpaceLow, "75 percent"},
		"low before, a little became free":          {Space{Quota: quota, InUse: of(76), previous: SpaceLow}, SpaceLow, "75 percent"},
		"low before, more became free":              {Space{Quota: quota, InUse: of(74), previous: SpaceLow}, SpaceOK, ""},
		"critical before, a little became free":     {Space{Quota: quota, InUse: of(86), previous: SpaceCritical}, SpaceCritical, "85 percent"},
		"critical before, more became free":         {Space{Quota: quota, InUse: of(76), previous: SpaceCritical}, SpaceLow, "75 percent"},
	} {
		t.Run(name, func(t *testing.T) {
			shortage := tc.space.Shortage()
			if got := tc.space.Level(); got != tc.want || (shortage == "") != (tc.shortage == "") || !strings.Contains(shortage, tc.shortage) {
				t.Errorf("got level %d, %q", got, shortage)
			}
			if (tc.space.Err() != nil) != tc.space.NoSpace {
				t.Errorf("got error %v", tc.space.Err())
			}
		})
	}
}

// TestCopyShortage: a copy that stops leaves tenants able to store.
func TestCopyShortage(t *testing.T) {
	const quota = 100 << 20
	of := func(percent int64) int64 { return percent * quota / 100 }
	for name, tc := range map[string]struct {
		space    Space
		shortage string
	}{
		"below the mark":                         {Space{Quota: quota, Size: of(74), InUse: of(74)}, ""},
		"where tenants may store again":          {Space{Quota: quota, Size: of(75), InUse: of(75)}, "more than 75 percent of its quota of 100Mi"},
		"with what etcd may not have counted":    {Space{Quota: quota, Size: of(70), InUse: of(70), uncounted: of(5)}, "more than 75 percent"},
		"a large file of free pages":             {Space{Quota: quota, Size: of(89), InUse: of(10)}, ""},
		"a file that the copy must not extend":   {Space{Quota: quota, Size: of(90), InUse: of(10)}, "more than 90 percent of its quota of 100Mi: defragment"},
		"a file that keeps tenants from storing": {Space{Quota: quota, Size: of(95), InUse: of(10)}, "more than 95 percent of its quota of 100Mi: defragment"},
		"the alarm":                              {Space{Quota: quota, Size: of(10), InUse: of(10), NoSpace: true}, "NOSPACE"},
		"an unknown quota":                       {Space{Size: 1 << 40, InUse: 1 << 40}, ""},
	} {
		if got := tc.space.CopyShortage(); (got == "") != (tc.shortage == "") || !strings.Contains(got, tc.shortage) {
			t.Errorf("%s: got %q, want %q", name, got, tc.shortage)
		}
	}
}

// TestSpaceUncounted: what this process wrote just before etcd was asked counts for copies, until etcd must have it.
func TestSpaceUncounted(t *testing.T) {
	m := NewSpaceMonitor(nil, "test", func() int64 { return 0 })
	start := time.Now()
	for _, tc := range []struct {
		after           time.Duration
		written, counts int64
	}{
		{0, 100, 100}, {commitInterval / 2, 150, 150}, {commitInterval, 170, 70}, {3 * commitInterval / 2, 180, 80}, {time.Minute, 190, 20}, {2 * time.Minute, 190, 0},
	} {
		m.set(Space{}, tc.written, start.Add(tc.after))
		if m.space.uncounted != tc.counts || m.writtenAt != tc.written {
			t.Errorf("after %s: %d bytes count, want %d", tc.after, m.space.uncounted, tc.counts)
		}
	}
}

func TestSpaceBetweenRequests(t *testing.T) {
	var written int64 = 500
	m := NewSpaceMonitor(nil, "test", func() int64 { return written })
	if m.Space().Level() != SpaceOK {
		t.Error("short before etcd was asked")
	}
	m.space, m.writtenAt = Space{Quota: 10_000, InUse: 7_900}, 500
	written = 599
	if got := m.Space(); got.InUse != 7_999 || got.Level() != SpaceOK || len(m.due) != 0 {
		t.Errorf("got %+v, %d requests", got, len(m.due))
	}
	written = 700
	for range 3 {
		if got := m.Space(); got.InUse != 8_100 || got.Level() != SpaceLow {
			t.Errorf("got %+v", got)
		}
	}
	m.writtenAt = written // etcd was asked, and found less than was added
	if got := m.Space(); got.InUse != 7_900 || got.Level() != SpaceLow {
		t.Errorf("got %+v", got)
	}
	if len(m.due) != 1 {
		t.Errorf("%d requests to ask etcd, want one", len(m.due))
	}
}

func TestNextPageKeys(t *testing.T) {
	for name, tc := range map[string]struct{ keys, bytes, want int64 }{
		"small objects":                    {8, 8 << 10, maxPageKeys},
		"objects of half a mebibyte":       {8, 4 << 20, 8},
		"fewer keys after large objects":   {500, 500 << 20, 4},
		"one object larger than the pages": {1, 8 << 20, 1},
		"empty values":                     {8, 0, maxPageKeys},
	} {
		if got := nextPageKeys(tc.keys, tc.bytes); got != tc.want {
			t.Errorf("%s: got %d, want %d", name, got, tc.want)
		}
	}
}
