package buildversion

import (
	"runtime/debug"
	"slices"
	"strings"

	"k8s.io/component-base/version"
)

// KCP is the API level of kcp that Atoll is compatible with. The Makefile and the documentation name it, too.
const KCP = "0.33.0"

const (
	// placeholder is the prefix of upstream's version in a binary that was linked without one.
	placeholder = "v0.0.0-"
	// stagingModule is a module of Kubernetes that all servers have. v0.x.y is that of Kubernetes v1.x.y.
	stagingModule, stagingMajor = "k8s.io/component-base", "v0."
)

// Kubernetes returns the version of the APIs, of Kubernetes and of kcp, for example v1.37.2+kcp-v0.33.0. Clients such as kubectl refuse
// upstream's placeholder, which a binary that was not built by the Makefile would have. It is empty if the version cannot be known.
func Kubernetes() string {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		build = &debug.BuildInfo{}
	}
	return kubernetes(version.Get().GitVersion, build.Deps)
}

// kubernetes returns the version of a binary with a linked version and modules.
func kubernetes(linked string, modules []*debug.Module) string {
	if !strings.HasPrefix(linked, placeholder) {
		return linked
	}
	i := slices.IndexFunc(modules, func(module *debug.Module) bool { return module.Path == stagingModule })
	if i < 0 {
		return ""
	}
	minor, ok := strings.CutPrefix(modules[i].Version, stagingMajor)
	if !ok {
		return ""
	}
	return "v1." + minor + "+kcp-v" + KCP
}
