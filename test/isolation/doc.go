// Package isolation proves that requests in one workspace neither reveal, change, count against nor block another. It
// does not list resources or verbs: both are read from discovery, so that a new resource is covered as soon as it is
// served, and a verb or a kind without a probe or a sample fails the test.
//
// Two workspaces, a and b, which have bound the same APIs, hold objects of the same names in namespaces of the same
// name. Every object carries a marker of its side; a request in a must never return the marker of b, nor change an
// object of b.
package isolation
