// Package isolation proves that what happens in one workspace neither shows in, changes, counts against nor blocks
// another. It does not list resources or verbs: both are read from discovery, so a new resource is covered on the day
// it is served, and a verb or a kind that the test does not know how to try fails it.
//
// Two workspaces, a and b, which have bound the same APIs, hold objects of the same names in namespaces of the same name. Every object carries a marker of its
// side; a request in a must never bring the marker of b to light, nor change what b has.
package isolation
