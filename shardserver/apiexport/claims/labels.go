package claims

import (
	"maps"
	"strings"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
)

// apiBindings are always visible to the provider of the bound export.
var apiBindings = apisv1alpha2.Resource("apibindings")

// HasClaimLabels reports whether an object has any claim label.
func HasClaimLabels(own map[string]string) bool {
	for key := range own {
		if isClaimLabel(key) {
			return true
		}
	}
	return false
}

func isClaimLabel(key string) bool { return strings.HasPrefix(key, apisv1alpha2.ClaimedLabelKeyPrefix) }

// LabelsMatch reports whether the claim labels among an object's labels are the wanted ones.
func LabelsMatch(own, wanted map[string]string) bool {
	found := 0
	for key, value := range own {
		if !isClaimLabel(key) {
			continue
		}
		if want, ok := wanted[key]; !ok || want != value {
			return false
		}
		found++
	}
	return found == len(wanted)
}

// ReplaceClaimLabels returns an object's labels with its claim labels replaced by the wanted ones.
func ReplaceClaimLabels(own, wanted map[string]string) map[string]string {
	corrected := make(map[string]string, len(own)+len(wanted))
	for key, value := range own {
		if !isClaimLabel(key) {
			corrected[key] = value
		}
	}
	maps.Copy(corrected, wanted)
	if len(corrected) == 0 {
		return nil
	}
	return corrected
}

// addReflexiveLabel adds the label by which the provider of an export sees the bindings to this export, unless a claim
// label has the same key. The export is taken from the binding's export label.
func addReflexiveLabel(wanted, own map[string]string) map[string]string {
	export := own[apisv1alpha2.ExportLabelKey]
	if export == "" {
		return wanted
	}
	key := apisv1alpha2.ClaimedLabelKeyPrefix + export
	if _, claimed := wanted[key]; claimed {
		return wanted
	}
	if wanted == nil {
		wanted = map[string]string{}
	}
	wanted[key] = apiindex.ReflexiveClaimValue
	return wanted
}
