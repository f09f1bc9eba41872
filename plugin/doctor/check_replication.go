package doctor

import (
	"fmt"
	"time"
)

// Limits of the alerts AtollReplicationLate and AtollClockWrong.
const (
	lagLimit   = 60.0
	aheadLimit = 1.0
)

// replication finds shards that do not receive what others share, or whose own objects do not reach others.
func replication(facts *Facts, _ Limits) []Finding {
	directions := map[string]string{
		"read":  "does not receive what other shards share: it is %s late",
		"write": "does not share its objects with other shards: they are %s late",
	}
	var found []Finding
	for _, server := range facts.Servers {
		object := "shard " + server.Name
		for _, sample := range server.Metrics[metricReplicationLag] {
			if text := directions[sample.Labels["direction"]]; sample.Value > lagLimit && text != "" {
				found = append(found, Finding{
					Severity: SeverityError, Object: object, Message: fmt.Sprintf(text, time.Duration(sample.Value*float64(time.Second)).Round(time.Second)),
					NextStep: "See the log of the cache server, and whether the shard reaches it",
				})
			}
		}
		if refused, _ := server.Metrics.max(metricRefusedObjects); refused > 0 {
			found = append(found, Finding{
				Severity: SeverityError, Object: object, Message: fmt.Sprintf("the cache server refuses %.0f of its objects", refused),
				NextStep: "The condition Published of the Shard in root names an object: make it smaller, or raise the limit of the cache server's etcd",
			})
		}
		if ahead, _ := server.Metrics.max(metricClockAhead); ahead > aheadLimit {
			found = append(found, Finding{
				Severity: SeverityWarning, Object: object, Message: fmt.Sprintf("its clock is %.0f s ahead of that of the cache server", ahead),
				NextStep: "Repair time synchronization on its node: the lag of replication is computed with both clocks",
			})
		}
	}
	return found
}
