// Package kdp converts PublishedResources of services.kdp.k8c.io, the older dialect, to publications. It does no I/O.
package kdp
