package headroom

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

func TestPercentFor(t *testing.T) {
	for _, tc := range []struct {
		sentence string
		live     uint64
		percent  int
	}{
		{"a small heap grows by what is wanted", 64 << 20, 400},
		{"a heap of what is wanted doubles", 256 << 20, 100},
		{"so does a larger one", 4 << 30, 100},
		{"a process that has just begun does not grow without end", 1000, 1600},
	} {
		if got := percentFor(256<<20, tc.live); got != tc.percent {
			t.Errorf("%s: got %d %%, want %d %%", tc.sentence, got, tc.percent)
		}
	}
}

func TestTheRuleFollowsTheHeap(t *testing.T) {
	t.Setenv("GOGC", "")
	before := debug.SetGCPercent(doubling)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	k := &keeper{bounds: Room{64 << 20, 64 << 20}, now: 64 << 20, percent: doubling}
	held := make([]byte, 32<<20)
	runtime.GC()
	k.adjust(measure())
	if rule() < 150 || rule() > 200 { // the heap has a little more than what is held
		t.Errorf("the rule is %d %%", rule())
	}
	runtime.KeepAlive(held) // and no longer
	runtime.GC()
	k.adjust(measure())
	if rule() != 400 {
		t.Errorf("the rule is %d %%", rule())
	}
}

func TestRoomFollowsTheLoad(t *testing.T) {
	const mib = 1 << 20
	room := Room{Least: 256 * mib, Most: 1024 * mib}
	for _, tc := range []struct {
		sentence             string
		now, allocated, want int64
		took                 time.Duration
	}{
		{"a room that lasts long enough stays", 256 * mib, 256 * mib, 256 * mib, pause},
		{"one that is used up soon is doubled", 256 * mib, 250 * mib, 512 * mib, time.Second},
		{"one that lasts half as long as it should is doubled, too", 256 * mib, 256 * mib, 512 * mib, pause / 2},
		{"one that lasts almost as long grows as much as that needs", 400 * mib, 400 * mib, 400 * mib * 8 / 7, pause * 7 / 8},
		{"it has a bound", 1024 * mib, 1024 * mib, 1024 * mib, time.Second},
		{"what was collected before it was used says nothing", 256 * mib, 4 * mib, 256 * mib, 10 * time.Millisecond},
		{"no time at all says nothing either", 256 * mib, 4 * mib, 256 * mib, 0},
		{"when the load has ended it goes back to the least", 1024 * mib, 100 * mib, 256 * mib, 15 * pause},
		{"a smaller load gets a smaller room", 1024 * mib, 1024 * mib, 512 * mib, 2 * pause},
	} {
		if got := room.next(tc.now, tc.allocated, tc.took); max(got-tc.want, tc.want-got) > mib {
			t.Errorf("%s: got %d MiB, want %d MiB", tc.sentence, got/mib, tc.want/mib)
		}
	}
}

func TestAfterEachCollection(t *testing.T) {
	done := make(chan int, 100)
	times := 0
	afterEachCollection(func() bool {
		times++
		done <- times
		return times < 3
	})
	deadline := time.After(20 * time.Second)
	for want := 1; want <= 3; {
		runtime.GC()
		select {
		case got := <-done:
			if got != want {
				t.Fatalf("the call after a collection was number %d, want %d", got, want)
			}
			want++
		case <-deadline:
			t.Fatal("nothing happens after collections")
		case <-time.After(time.Millisecond): // the last collection came too early, or what it finalizes is not done yet
		}
	}
}

// rule returns by how many percent the heap may grow now.
func rule() uint64 {
	now := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(now)
	return now[0].Value.Uint64()
}

func TestTheMachineHasMemory(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("read from /proc")
	}
	if got := machine(); got < 64<<20 || got > unlimited {
		t.Errorf("the machine has %d bytes", got)
	}
}
