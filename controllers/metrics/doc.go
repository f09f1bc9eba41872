// Package metrics contains the metrics of the operator itself, under the names that dashboards of kcp-operator use. It computes the
// metrics of objects at each scrape from the caches of the manager, so deleted objects have none. Servers of installations have their own
// metrics endpoints.
package metrics
