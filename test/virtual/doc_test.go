// Package virtual sends every kind of request to every virtual workspace: each verb, on each kind of resource, for
// logical clusters in each state, as each kind of caller, through the front proxy of a real installation. The expected
// results are in matrix.txt; the tests generate all combinations and look each up there, so that none is omitted and no
// line is unused.
package virtual
