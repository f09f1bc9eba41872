package workspaces

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

func newTestQueue(limit int) *fairQueue[string, byte] {
	return newFairQueue("", func(item string) byte { return item[0] }, limit)
}

func add(q *fairQueue[string, byte], items ...string) {
	for _, item := range items {
		q.Add(item)
	}
}

func get(t *testing.T, q *fairQueue[string, byte], want string) {
	t.Helper()
	if got, ended := q.Get(); got != want || ended {
		t.Fatalf("got %q, %t, want %q", got, ended, want)
	}
}

// expectEmpty checks that the queue retains nothing about groups without items.
func expectEmpty(t *testing.T, q *fairQueue[string, byte]) {
	t.Helper()
	if o := q.order; len(o.groups) != 0 || len(o.turns) != 0 || o.len != 0 {
		t.Errorf("an empty queue holds %v, %v, %d", o.groups, o.turns, o.len)
	}
}

func TestGroupsAreServedInTurn(t *testing.T) {
	q := newTestQueue(1)
	add(q, "a1", "a2", "a3", "b1", "c1", "b2")
	var got []string
	for i := 0; q.Len() > 0; i++ {
		if i == 2 {
			q.Add("d1")
		}
		item, _ := q.Get()
		got = append(got, item)
		q.Done(item)
	}
	if want := []string{"a1", "b1", "c1", "a2", "b2", "d1", "a3"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	expectEmpty(t, q)
}

func TestItemsOfOneGroupAreInOrder(t *testing.T) {
	q := newFairQueue("", func(int) string { return "" }, 1)
	for i := range 1000 {
		q.Add(i)
	}
	for want := range 1000 {
		got, _ := q.Get()
		if got != want {
			t.Fatalf("got %d, want %d", got, want)
		}
		q.Done(got)
	}
}

func TestGroupAtItsLimitLeavesWorkersToOthers(t *testing.T) {
	q := newTestQueue(2)
	add(q, "a1", "a2", "a3", "a4")
	get(t, q, "a1")
	get(t, q, "a2")
	if q.order.Len() != 0 || q.Len() != 2 || q.LenOf('a') != 2 || q.LenOf('b') != 0 {
		t.Errorf("at the limit, %d can be processed, %d wait, %d of the group, %d of another", q.order.Len(), q.Len(), q.LenOf('a'), q.LenOf('b'))
	}
	add(q, "b1")
	get(t, q, "b1")
	q.Done("a1")
	get(t, q, "a3")
	add(q, "a2") // it is processed again after Done, when others of its group have had their turn
	q.Done("a2")
	get(t, q, "a4")
	q.Done("a3")
	get(t, q, "a2")
	for _, item := range []string{"a4", "a2", "b1"} {
		q.Done(item)
	}
	expectEmpty(t, q)
}

// Workers process all items, never more of a group than its limit, and items of others while a group is at its limit.
func TestWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit, workers, items = 2, 6, 200
		q := newTestQueue(limit)
		blocked := make(chan struct{})
		var running, most, processed [256]atomic.Int64
		var all sync.WaitGroup
		for range workers {
			all.Go(func() {
				for {
					item, ended := q.Get()
					if ended {
						return
					}
					group := item[0]
					if now := running[group].Add(1); now > most[group].Load() {
						most[group].Store(now)
					}
					if group == 'a' {
						<-blocked
					}
					running[group].Add(-1)
					processed[group].Add(1)
					q.Done(item)
				}
			})
		}
		for _, group := range "abcd" {
			for i := range items {
				q.Add(fmt.Sprint(string(group), i))
			}
		}
		synctest.Wait()
		for _, group := range "bcd" {
			if got := processed[group].Load(); got != items {
				t.Errorf("while another group is at its limit, %d of %c are processed", got, group)
			}
		}
		if got := running['a'].Load(); got != limit {
			t.Errorf("%d are processed of the group whose items take long", got)
		}
		close(blocked)
		synctest.Wait()
		for _, group := range "abcd" {
			if got := processed[group].Load(); got != items || most[group].Load() > limit {
				t.Errorf("%d of %c are processed, at most %d at once", got, group, most[group].Load())
			}
		}
		expectEmpty(t, q)
		q.ShutDown()
		all.Wait()
	})
}
