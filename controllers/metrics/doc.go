// Package metrics is what the operator tells about itself on its metrics page, in the words that dashboards of
// kcp-operator know. The series of objects are computed when they are asked for, from what the manager has in memory:
// those of an object that is gone are gone with it. Nothing here is about what happens inside installations; their
// servers have pages of their own.
package metrics
