package doctor

import (
	"fmt"
	"strings"
)

// shardServers finds shards that do not answer at the address of their Shard, or are not ready.
func shardServers(facts *Facts, _ Limits) []Finding {
	var found []Finding
	for _, server := range facts.Servers {
		object := "shard " + server.Name
		switch {
		case !server.Reachable:
			found = append(found, Finding{
				Severity: SeverityError, Object: object, Message: "does not answer at " + server.URL, Detail: server.Unreachable,
				NextStep: "Look at its pods; if they run, check whether spec.baseURL of the Shard can be reached from here",
			})
		case !server.Ready && !server.isRefusing():
			message := "is not ready"
			if len(server.Failing) > 0 {
				message += ": " + strings.Join(server.Failing, ", ")
			} else if server.Status != 0 {
				message += fmt.Sprintf(": its HTTP status is %d", server.Status)
			}
			found = append(found, Finding{
				Severity: SeverityError, Object: object, Message: message,
				NextStep: "The log of the shard has the reason of each check that fails",
			})
		}
	}
	return found
}
