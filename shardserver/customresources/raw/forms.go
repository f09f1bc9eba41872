package raw

import "sync/atomic"

// identity stands for one view. Objects point at it rather than at the view, so that they keep no view alive.
type identity struct{ closed atomic.Bool }

// form is what a stored object looks like through one view. Objects keep the few forms in which they were asked for:
// verifying, converting and defaulting happen once per object and view, not per read.
type form struct {
	of *identity
	// stored is the object as a client of the view sees it; nil if that is the object as it stands.
	stored *stored
	next   *form
}
