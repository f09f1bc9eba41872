// Package virtual asks every virtual workspace everything: each verb, on each kind of resource, towards logical clusters
// in each state, by each sort of caller, through the front proxy of a real installation. What must come of it stands in
// matrix.txt, which is meant to be read; the tests generate all combinations and look each up there, so that none is
// left out and no line says something about nothing.
package virtual
