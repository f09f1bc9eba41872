// Package metrics has the metrics of the operator itself, under the names that dashboards of kcp-operator use. Those of
// objects are computed at each scrape from the caches of the manager: deleted objects have none. Servers of
// installations have metrics endpoints of their own.
package metrics
