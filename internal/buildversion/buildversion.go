// Package buildversion contains the versions that a binary was built from: of Atoll, and of the APIs of Kubernetes and kcp.
package buildversion

import (
	"cmp"
	"runtime/debug"
)

// linked is set by the linker flags of the Makefile.
var linked string

// Get returns the version of Atoll, for example v1.0.0. A binary that was not built by the Makefile returns the version of its module.
func Get() string {
	if linked != "" {
		return linked
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(unknown)"
}

// Long returns the version of the APIs, which /version also returns, and the version of Atoll.
func Long() string { return cmp.Or(Kubernetes(), "(unknown)") + " (Atoll " + Get() + ")" }
