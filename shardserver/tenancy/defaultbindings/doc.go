// Package defaultbindings creates the default APIBindings of workspace types in logical clusters: at initialization,
// and again whenever they differ if a type has lifecycle Maintain. TypeIndex maps events of types, exports and bindings
// to the logical clusters that they affect.
//
// Reconciling APIBindings belongs to their controllers, the status of logical clusters to package tenancy.
package defaultbindings
