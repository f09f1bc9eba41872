package doctor

import "fmt"

// Shares of the quota from which on an etcd is almost full: those of the alert AtollEtcdSpaceLow.
const (
	inUseWarning = 0.8
	sizeWarning  = 0.95
)

// etcd finds etcds that refuse writes, or will soon.
func etcd(facts *Facts, _ Limits) []Finding {
	const next = "Follow \"When the storage of a shard is full\" in docs/operator-etcd.md"
	var found []Finding
	for _, server := range facts.Servers {
		quota, limited := server.Metrics.max(metricEtcdQuota)
		inUse, _ := server.Metrics.max(metricEtcdInUse)
		size, _ := server.Metrics.max(metricEtcdSize)
		full, _ := server.Metrics.max(metricEtcdNoSpace)
		object := "etcd of shard " + server.Name
		switch {
		case full > 0:
			found = append(found, Finding{Severity: SeverityError, Object: object, Message: "refuses all writes (alarm NOSPACE)", NextStep: next})
		case limited && quota > 0 && (inUse/quota > inUseWarning || size/quota > sizeWarning):
			found = append(found, Finding{
				Severity: SeverityError, Object: object, NextStep: next,
				Message: fmt.Sprintf("is almost full: %.0f %% of the quota are in use, the database has %.0f %% of it", inUse/quota*100, size/quota*100),
			})
		}
	}
	return found
}
