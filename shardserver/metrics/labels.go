package metrics

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-base/metrics"
)

// Metrics of the stock libraries with API names as labels, which definitions of tenants, or merely URLs, choose. The
// label values have to be limited to the APIs of the shard.
var apiMetrics = []string{
	"apiserver_requested_deprecated_apis", "apiserver_request_total", "apiserver_longrunning_requests",
	"apiserver_request_duration_seconds", "apiserver_request_slo_duration_seconds", "apiserver_request_sli_duration_seconds",
	"apiserver_response_sizes", "apiserver_watch_events_total", "apiserver_watch_events_sizes",
	"apiserver_request_terminations_total", "apiserver_selfrequest_total", "apiserver_request_aborts_total",
	"apiserver_request_timestamp_comparison_time", "apiserver_request_body_size_bytes",
	"apiserver_cache_list_total", "apiserver_cache_list_fetched_objects_total", "apiserver_cache_list_returned_objects_total",
	"apiserver_watch_list_duration_seconds", "apiserver_init_events_total", "apiserver_watch_cache_events_received_total", "apiserver_watch_cache_events_dispatched_total",
	"apiserver_terminated_watchers_total", "apiserver_watch_cache_resource_version",
	"watch_cache_capacity_increase_total", "watch_cache_capacity_decrease_total", "watch_cache_capacity",
	"apiserver_watch_cache_initializations_total", "apiserver_watch_cache_initialization_errors_total", "apiserver_watch_cache_initialization_duration_seconds",
	"apiserver_watch_events_dispatch_duration_seconds", "apiserver_watch_cache_read_wait_seconds", "apiserver_watch_cache_consistent_read_total",
	"apiserver_storage_consistency_checks_total", "apiserver_watch_shards_total", "apiserver_watch_filtered_events_total",
	"etcd_request_duration_seconds", "etcd_requests_total", "etcd_request_errors_total",
	"apiserver_storage_objects", "apiserver_resource_size_estimate_bytes", "apiserver_resource_objects",
	"apiserver_storage_events_received_total", "etcd_bookmark_counts", "etcd_bookmark_total",
	"apiserver_storage_list_total", "apiserver_storage_list_duration_seconds", "apiserver_storage_list_fetched_objects_total", "apiserver_storage_list_evaluated_objects_total",
	"apiserver_storage_list_returned_objects_total", "apiserver_storage_decode_errors_total",
	"apiserver_storage_transformation_operations_total",
}

// Metrics with names of tenants' objects as labels, and these labels.
var objectMetrics = map[string][]string{
	"apiserver_admission_webhook_admission_duration_seconds":       {"name"},
	"apiserver_admission_webhook_rejection_count":                  {"name"},
	"apiserver_admission_webhook_fail_open_count":                  {"name"},
	"apiserver_admission_webhook_request_total":                    {"name"},
	"apiserver_admission_match_condition_evaluation_errors_total":  {"name"},
	"apiserver_admission_match_condition_exclusions_total":         {"name"},
	"apiserver_admission_match_condition_evaluation_seconds":       {"name"},
	"apiserver_validating_admission_policy_check_total":            {"policy", "policy_binding"},
	"apiserver_validating_admission_policy_check_duration_seconds": {"policy", "policy_binding"},
	"apiserver_mutating_admission_policy_check_total":              {"policy", "policy_binding"},
	"apiserver_mutating_admission_policy_check_duration_seconds":   {"policy", "policy_binding"},
	"apiserver_crd_conversion_webhook_duration_seconds":            {"crd_name", "from_version", "to_version"},
	"apiextensions_openapi_v2_regeneration_count":                  {"crd"},
	"apiextensions_openapi_v3_regeneration_count":                  {"crd", "group", "version"},
}

// restrictOnce ensures that bounds are set once: metrics read them without a lock.
var restrictOnce sync.Once

// RestrictLabels makes labels whose values tenants choose have the value "unexpected" for all names that are not in the scheme.
// It applies to the whole process and must be called before any metric is recorded: a metric reads its bounds at its
// first value. Later calls have no effect.
func RestrictLabels(scheme *runtime.Scheme) { restrictOnce.Do(func() { restrictLabels(scheme) }) }

func restrictLabels(scheme *runtime.Scheme) {
	groups, versions, resources := knownLabelValues(scheme)
	allowList := map[string]string{}
	for _, name := range apiMetrics {
		allowList[name+",group"] = groups
		allowList[name+",version"] = versions
		allowList[name+",resource"] = resources
		allowList[name+",subresource"] = subresources
	}
	for name, labels := range objectMetrics {
		for _, label := range labels {
			allowList[name+","+label] = ""
		}
	}
	metrics.SetLabelAllowList(allowList)
}

// subresources are those of the shard's resources and of custom resources.
var subresources = ",status,scale,finalize,approval,token,log,binding,eviction,exec,attach,portforward,proxy"

// knownLabelValues returns the groups, versions and plural names of all kinds, each with the empty one, separated by commas.
func knownLabelValues(scheme *runtime.Scheme) (groups, versions, resources string) {
	g, v, r := map[string]bool{"": true}, map[string]bool{"": true}, map[string]bool{"": true}
	for kind := range scheme.AllKnownTypes() {
		g[kind.Group], v[kind.Version] = true, true
		plural, _ := meta.UnsafeGuessKindToResource(kind)
		// Metrics of storage name the resource with its group.
		r[plural.Resource], r[plural.GroupResource().String()] = true, true
	}
	join := func(set map[string]bool) string { return strings.Join(slices.Sorted(maps.Keys(set)), ",") }
	return join(g), join(v), join(r)
}
