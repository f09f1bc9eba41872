package shardserver

import (
	"runtime/debug"
	"slices"
	"strings"

	apimachineryversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/component-base/compatibility"
)

const (
	// unset is how upstream's version begins in a binary that was linked without one, as by a plain `go build`.
	unset = "v0.0.0-"
	// kubernetesModule is where the registries come from, hence the version that clients must think of.
	kubernetesModule = "k8s.io/kubernetes"
)

// linked is the version of a server whose binary may lack one: clients such as kubectl refuse upstream's placeholder.
type linked struct{ compatibility.EffectiveVersion }

// Info returns what /version says.
func (l linked) Info() *apimachineryversion.Info {
	info := l.EffectiveVersion.Info()
	if info == nil || !strings.HasPrefix(info.GitVersion, unset) {
		return info
	}
	info.GitVersion = "v" + info.Major + "." + info.Minor + ".0+kcp"
	if build, ok := debug.ReadBuildInfo(); ok {
		i := slices.IndexFunc(build.Deps, func(module *debug.Module) bool { return module.Path == kubernetesModule })
		if i >= 0 {
			info.GitVersion = build.Deps[i].Version + "+kcp"
		}
	}
	info.GitCommit, info.GitTreeState = "", ""
	return info
}
