// Package runner runs OpenTofu inside the pod of a Job: it holds the lease of the instance, serves the state to tofu from a Secret, and
// writes the result to another one. It decides nothing: what to run is in its options.
package runner
