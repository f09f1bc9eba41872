// Package isolation proves that requests in one workspace neither reveal, change, count against nor block another. It
// does not list resources or verbs: it reads both from discovery, so that it covers a new resource as soon as a shard
// serves it, and a verb or a kind without a probe or a sample fails the test.
//
// Two workspaces, a and b, which have bound the same APIs, hold objects of the same names in namespaces of the same
// name. Every object carries a marker of its side; a request in a must never return the marker of b, nor change an
// object of b.
package isolation
