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
func HasClaimLabels(objectLabels map[string]string) bool {
	for key := range objectLabels {
		if isClaimLabel(key) {
			return true
		}
	}
	return false
}

func isClaimLabel(key string) bool { return strings.HasPrefix(key, apisv1alpha2.ClaimedLabelKeyPrefix) }

// LabelsMatch reports whether the claim labels among an object's labels are the wanted ones.
func LabelsMatch(objectLabels, desired map[string]string) bool {
	found := 0
	for key, value := range objectLabels {
		if !isClaimLabel(key) {
			continue
		}
		if want, ok := desired[key]; !ok || want != value {
			return false
		}
		found++
	}
	return found == len(desired)
}

// ReplaceClaimLabels returns an object's labels with its claim labels replaced by the wanted ones.
func ReplaceClaimLabels(objectLabels, desired map[string]string) map[string]string {
	updated := make(map[string]string, len(objectLabels)+len(desired))
	for key, value := range objectLabels {
		if !isClaimLabel(key) {
			updated[key] = value
		}
	}
	maps.Copy(updated, desired)
	if len(updated) == 0 {
		return nil
	}
	return updated
}

// addReflexiveLabel adds the label by which the provider of an export sees the bindings to this export, unless a claim
// label has the same key. The export is taken from the binding's export label.
func addReflexiveLabel(desired, objectLabels map[string]string) map[string]string {
	export := objectLabels[apisv1alpha2.ExportLabelKey]
	if export == "" {
		return desired
	}
	key := apisv1alpha2.ClaimedLabelKeyPrefix + export
	if _, claimed := desired[key]; claimed {
		return desired
	}
	if desired == nil {
		desired = map[string]string{}
	}
	desired[key] = apiindex.ReflexiveClaimValue
	return desired
}
