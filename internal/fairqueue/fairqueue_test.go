package fairqueue

import (
	"slices"
	"testing"
)

func TestGroupsAreServedInTurn(t *testing.T) {
	q := New(func(item string) byte { return item[0] })
	for _, item := range []string{"a1", "a2", "a3", "b1", "c1", "b2"} {
		q.Push(item)
	}
	var got []string
	for i := 0; q.Len() > 0; i++ {
		if i == 2 {
			q.Push("d1")
		}
		got = append(got, q.Pop())
	}
	if want := []string{"a1", "b1", "c1", "a2", "b2", "d1", "a3"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if left := q.(*queue[string, byte]); len(left.items) != 0 || len(left.turns) != 0 {
		t.Errorf("an empty queue holds %v, %v", left.items, left.turns)
	}
}

func TestItemsOfOneGroupAreInOrder(t *testing.T) {
	q := New(func(int) string { return "" })
	for i := range 1000 {
		q.Push(i)
	}
	for want := range 1000 {
		if got := q.Pop(); got != want {
			t.Fatalf("got %d, want %d", got, want)
		}
	}
}
