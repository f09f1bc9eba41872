// Package kubeversion sets the version that /version returns, for binaries that were linked without one.
package kubeversion

import (
	"runtime/debug"
	"slices"
	"strings"

	apimachineryversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/component-base/compatibility"
)

const (
	// placeholder is the prefix of upstream's version in a binary built by a plain `go build`.
	placeholder = "v0.0.0-"
	// kubernetesModule is the module of the registries, whose version is relevant to clients.
	kubernetesModule = "k8s.io/kubernetes"
)

// WithLinkedVersion returns an effective version whose Info has the version of the linked Kubernetes module instead of upstream's
// placeholder, which clients such as kubectl refuse.
func WithLinkedVersion(version compatibility.EffectiveVersion) compatibility.EffectiveVersion {
	return linkedVersion{version}
}

type linkedVersion struct{ compatibility.EffectiveVersion }

// Info implements compatibility.EffectiveVersion.
func (l linkedVersion) Info() *apimachineryversion.Info {
	info := l.EffectiveVersion.Info()
	if info == nil || !strings.HasPrefix(info.GitVersion, placeholder) {
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
