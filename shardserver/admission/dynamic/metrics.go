package dynamic

import (
	"sync"

	"k8s.io/component-base/metrics"
)

// boundMetrics takes the names that tenants choose out of upstream's metrics, which would otherwise have a series for
// every name that was ever used in any logical cluster. The counts stay, under the name "unexpected".
var boundMetrics = sync.OnceFunc(func() {
	none := map[string]string{}
	for metric, labels := range map[string][]string{
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
	} {
		for _, label := range labels {
			none[metric+","+label] = ""
		}
	}
	metrics.SetLabelAllowList(none)
})
