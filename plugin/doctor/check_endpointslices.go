package doctor

import (
	"fmt"
	"net/http"
	"strings"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
)

// endpointSlices finds endpoints of exports that lead nowhere: to no shard, or to one that does not answer. Controllers of providers connect
// to them.
func endpointSlices(facts *Facts, limits Limits) []Finding {
	addresses := map[string]Shard{}
	for _, shard := range facts.Shards {
		addresses[shard.virtualWorkspaces()] = shard
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
		if slice.Foreign > 0 && isLate(facts, slice.Created, limits) {
			found = append(found, Finding{
				Severity: slice.errorOf(), Object: object, Message: fmt.Sprintf("%d endpoints are at no address of a shard", slice.Foreign), Detail: strings.Join(slice.ForeignHosts, ", "),
				NextStep: "If it was the address of a shard, the shard of this slice removes the endpoint: look at its log. Another one was written by a user: remove it from the status",
			})
		}
		for _, base := range slice.Bases {
			shard := addresses[base]
			switch virtual := shard.VirtualWorkspaces; {
			case virtual == nil:
			case !virtual.Reachable:
				found = append(found, Finding{
					Severity: SeverityError, Object: object, Message: "the endpoint on shard " + shard.Name + " does not answer at " + base, Detail: virtual.Unreachable,
					NextStep: "Check spec.virtualWorkspaceURL of the Shard, and whether it can be reached from here",
				})
			case virtual.Status >= http.StatusInternalServerError:
				found = append(found, Finding{
					Severity: SeverityError, Object: object, Message: fmt.Sprintf("the endpoint on shard %s is not ready: its HTTP status is %d", shard.Name, virtual.Status),
					NextStep: "Look at the server at spec.virtualWorkspaceURL of the Shard: its pods and their logs",
				})
			}
		}
	}
	return found
}
