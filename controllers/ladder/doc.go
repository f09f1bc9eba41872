// Package ladder is what all reconcilers have in common: they read one object, take steps of which each stands on those
// before it, and write the status once at the end, whatever the steps came to; and they wake for what they made and for
// what a spec can name. What the steps are, and what they find, is a matter of the packages of the kinds.
package ladder
