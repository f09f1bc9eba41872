// Package buildversion has the version of Atoll that a binary was built from.
package buildversion

import (
	"runtime/debug"

	"k8s.io/component-base/version"
)

// linked is set by the Makefile when it links.
var linked string

// Get returns the version of Atoll, as in v1.0.0. A binary that was not built by the Makefile has that of its module.
func Get() string {
	if linked != "" {
		return linked
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(unknown)"
}

// Long returns the version that /version has, which is that of the APIs, and that of Atoll.
func Long() string { return version.Get().GitVersion + " (Atoll " + Get() + ")" }
