// Package kubeversion sets the version that /version returns, for binaries that were linked without one.
package kubeversion

import (
	"cmp"

	apimachineryversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/component-base/compatibility"

	"github.com/atoll-dev/atoll/internal/buildversion"
)

// WithLinkedVersion returns an effective version whose Info has the version of the linked modules instead of upstream's placeholder, which
// clients such as kubectl refuse.
func WithLinkedVersion(version compatibility.EffectiveVersion) compatibility.EffectiveVersion {
	return linkedVersion{version}
}

type linkedVersion struct{ compatibility.EffectiveVersion }

// Info implements compatibility.EffectiveVersion.
func (l linkedVersion) Info() *apimachineryversion.Info {
	info := l.EffectiveVersion.Info()
	if info == nil {
		return nil
	}
	version := cmp.Or(buildversion.Kubernetes(), "v"+info.Major+"."+info.Minor+".0+kcp-v"+buildversion.KCP)
	if version != info.GitVersion {
		info.GitVersion, info.GitCommit, info.GitTreeState = version, "", ""
	}
	return info
}
