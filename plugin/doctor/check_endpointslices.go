package doctor

import (
	"strings"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
)

// endpointSlices finds endpoints of exports that lead nowhere: to no shard, or to one that does not answer. Controllers of providers connect
// to them.
func endpointSlices(facts *Facts, limits Limits) []Finding {
	addresses := map[string]Shard{}
	for _, shard := range facts.Shards {
		addresses[strings.TrimSuffix(shard.VirtualWorkspaceURL, "/")] = shard
	}
	var found []Finding
	for _, slice := range facts.Slices {
		object := "APIExportEndpointSlice " + slice.String()
		if condition, ok := slice.Conditions.firstFalse(string(apisv1alpha1.APIExportValid), string(apisv1alpha1.PartitionValid)); ok && slice.Deleting == nil && isLate(facts, condition.Since, limits) {
			found = append(found, Finding{
				Severity: SeverityWarning, Object: object, Message: withReason("is not valid", condition), Detail: condition.Message,
				NextStep: "Its owner corrects the reference to the export or the partition",
			})
		}
		for _, base := range slice.Bases {
			shard, known := addresses[base]
			switch {
			case !known:
				found = append(found, Finding{
					Severity: SeverityError, Object: object, Message: "the endpoint " + base + " belongs to no shard",
					NextStep: "If a shard was removed, or has another address now, look at the log of the shard of this slice; it removes the endpoint",
				})
			case shard.VirtualWorkspaces != nil && !shard.VirtualWorkspaces.Reachable:
				found = append(found, Finding{
					Severity: SeverityError, Object: object, Message: "the endpoint on shard " + shard.Name + " does not answer at " + base, Detail: shard.VirtualWorkspaces.Unreachable,
					NextStep: "Check spec.virtualWorkspaceURL of the Shard, and whether it can be reached from here",
				})
			}
		}
	}
	return found
}
