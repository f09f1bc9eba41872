// Package runner runs OpenTofu in the pod of a Job: it acquires the lease of the instance, serves the state to tofu from a Secret, and writes
// the result to another Secret. It makes no decisions: its options specify what to run.
package runner
