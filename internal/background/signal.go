package background

// Signal wakes a goroutine that receives from it. Several calls of Set before that are one.
type Signal chan struct{}

// NewSignal returns a signal that is not set.
func NewSignal() Signal { return make(Signal, 1) }

// Set sets the signal. It does not block.
func (s Signal) Set() {
	select {
	case s <- struct{}{}:
	default: // it is set already
	}
}
