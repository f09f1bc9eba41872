package claims

import (
	"maps"
	"strings"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
)

// apiBindings are objects that one provider may always see: that of the export that is bound.
var apiBindings = apisv1alpha2.Resource("apibindings")

// HasClaimLabels tells whether any of an object's labels is that of a claim.
func HasClaimLabels(own map[string]string) bool {
	for key := range own {
		if isClaimLabel(key) {
			return true
		}
	}
	return false
}

func isClaimLabel(key string) bool { return strings.HasPrefix(key, apisv1alpha2.ClaimedLabelKeyPrefix) }

// LabelsMatch tells whether the labels of claims among an object's own are those that are wanted.
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

// ReplaceClaimLabels returns an object's labels with the wanted ones of claims in the place of those that it has.
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

// addReflexiveLabel adds the label by which the provider of an export sees a binding to that very export, unless a claim
// shows it the binding anyway. The binding's own label says which export that is.
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
