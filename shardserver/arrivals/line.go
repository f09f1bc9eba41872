package arrivals

// line is who waits, the oldest first. The oldest and the newest go in turn: who comes after a burst need not wait for all
// of it, and nobody in it waits for ever.
type line struct {
	waiting []chan struct{}
	newest  bool // is next
}

func (l *line) empty() bool { return len(l.waiting) == 0 }

// join returns a channel that is closed when it is the caller's turn.
func (l *line) join() <-chan struct{} {
	turn := make(chan struct{})
	l.waiting = append(l.waiting, turn)
	return turn
}

// next takes one out of a line that is not empty.
func (l *line) next() chan struct{} {
	at := 0
	if l.newest {
		at = len(l.waiting) - 1
	}
	l.newest = !l.newest
	turn := l.waiting[at]
	l.waiting[at] = nil
	if at == 0 {
		l.waiting = l.waiting[1:]
	} else {
		l.waiting = l.waiting[:at]
	}
	return turn
}
