// Package stockflags adds some of the flags that the option sets of the Kubernetes API server define. The others are not
// registered, so that no flag is accepted without effect.
package stockflags

import (
	"strings"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/atoll-dev/atoll/internal/embeddedetcd"
)

// Set is the flags of one option set.
type Set struct {
	Name     string // of the section in help
	AddFlags func(*pflag.FlagSet)
}

// Add adds the flags of the sets that match one of the patterns, a name or a prefix ("etcd-*"), and are not excluded.
func Add(fss *cliflag.NamedFlagSets, patterns []string, excluded map[string]bool, sets ...Set) {
	for _, set := range sets {
		all := pflag.NewFlagSet(set.Name, pflag.ContinueOnError)
		set.AddFlags(all)
		target := fss.FlagSet(set.Name)
		all.VisitAll(func(flag *pflag.Flag) {
			if !excluded[flag.Name] && matchesAny(patterns, flag.Name) {
				target.AddFlag(flag)
			}
			if flag.Name == "etcd-servers" {
				flag.Usage = embeddedetcd.ServersUsage
			}
		})
	}
}

func matchesAny(patterns []string, name string) bool {
	for _, pattern := range patterns {
		if prefix, ok := strings.CutSuffix(pattern, "*"); ok && strings.HasPrefix(name, prefix) || name == pattern {
			return true
		}
	}
	return false
}
