package storage

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// played is what forgetting does at a time of its own, without a watch cache.
type played struct {
	*forgetting
	clock *clocktesting.FakeClock
	begun time.Time
	// ours counts pairs of events that nobody sees.
	ours int
}

func play() *played {
	clock := clocktesting.NewFakeClock(time.Now())
	return &played{forgetting: newForgetting(nil, nil, clock), clock: clock, begun: clock.Now()}
}

// come lets events of tenants come, evenly over a time.
func (p *played) come(events int, over time.Duration) {
	for range events {
		p.count(1)
		p.pass(over / time.Duration(events))
	}
}

// pass lets time pass, and what is to be looked at in it is.
func (p *played) pass(d time.Duration) {
	for end := p.clock.Now().Add(d); ; {
		next := p.clock.Now().Sub(p.begun).Truncate(forgetEvery) + forgetEvery
		if p.begun.Add(next).After(end) {
			p.clock.SetTime(end)
			return
		}
		p.clock.SetTime(p.begun.Add(next))
		for pairs := p.wanted(); pairs > 0; pairs = p.wanted() {
			p.ours += pairs
			p.count(2 * pairs)
		}
	}
}

func (p *played) room() int { return len(p.history.times) }

func TestARushIsForgottenSoonAfterItIsOld(t *testing.T) {
	for _, events := range []int{1000, 1590, 1600, 3000, 50_000, 200_000} {
		p := play()
		p.come(events, 20*time.Second)
		p.pass(overAfter + freshFor + late + 3*forgetEvery)
		if p.room() > worthwhile {
			t.Errorf("%d events: there is room for %d after %s", events, p.room(), p.clock.Now().Sub(p.begun))
		}
		if p.ours > max(events, leastHistory) {
			t.Errorf("%d events: %d pairs of events that nobody sees", events, p.ours)
		}
	}
}

func TestARushThatGoesOnIsLeftAlone(t *testing.T) {
	p := play()
	p.come(12_000, 5*time.Minute)
	if p.ours > 0 {
		t.Errorf("there are %d pairs of events that nobody sees", p.ours)
	}
}

func TestBurstsTakeAtMostTwiceTheRoom(t *testing.T) {
	for _, pause := range []time.Duration{5 * time.Second, 15 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute} {
		with, without, most, mostWithout := play(), newHistory(), 0, 0
		for range 50 {
			with.come(1000, time.Second)
			most = max(most, with.room())
			for range 1000 {
				without.add(with.clock.Now())
			}
			mostWithout = max(mostWithout, len(without.times))
			with.pass(pause)
		}
		if most > 2*mostWithout {
			t.Errorf("bursts every %s: there was room for %d events, %d without ours", pause, most, mostWithout)
		}
		if rushes := 50; with.ours > rushes*1000 {
			t.Errorf("bursts every %s: %d pairs of events that nobody sees for %d of tenants", pause, with.ours, rushes*1000)
		}
	}
}
