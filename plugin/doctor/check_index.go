package doctor

import "fmt"

// index finds a front proxy whose index of workspaces is old, and logical clusters that two shards report.
func index(facts *Facts, _ Limits) []Finding {
	if facts.Proxy == nil {
		return nil
	}
	var found []Finding
	for _, sample := range facts.Proxy.Metrics[metricIndexCurrent] {
		if sample.Value == 0 {
			found = append(found, Finding{
				Severity: SeverityError, Object: "front proxy", Message: "does not receive the workspaces of " + sample.Labels["source"] + ": new ones there are not found",
				NextStep: "See the log of the front proxy, and whether its certificate for shards is valid",
			})
		}
	}
	for _, sample := range facts.Proxy.Metrics[metricContested] {
		if sample.Value > 0 {
			found = append(found, Finding{
				Severity: SeverityError, Object: "shard " + sample.Labels["shard"], Message: fmt.Sprintf("reports %.0f logical clusters that another shard has", sample.Value),
				NextStep: "Investigate: one of the two is restored from a backup of the other, or compromised",
			})
		}
	}
	return found
}
