// Package defaultbindings gives logical clusters the APIBindings that their types ask for: once when they are
// initialized, and again whenever they differ where a type says Maintain. It also knows which logical clusters a changed
// type, export or binding concerns.
//
// It makes bindings and looks at how far they are; what a binding brings is for the controllers of bindings. The status of
// logical clusters is written by the controllers of package tenancy, which ask this one what to say there.
package defaultbindings
