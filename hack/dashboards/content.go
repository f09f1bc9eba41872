package main

import "strings"

// of selects the series of the servers that a dashboard shows: "@" in a query is the selector.
func of(job, expr string) string {
	return strings.ReplaceAll(expr, "@", `job="`+job+`",instance=~"$instance"`)
}

const (
	shard, proxy, cache, operator = "atoll-shard", "atoll-front-proxy", "atoll-cache-server", "atoll-operator"
)

var dashboards = []dashboard{
	{"shards", "Atoll / Shards", shard, []row{
		{"Requests", []panel{
			{"Requests", "reqps", "By verb, without watches.", []query{{of(shard, `sum by (verb) (rate(apiserver_request_total{@,verb!~"WATCH|CONNECT"}[5m]))`), "{{verb}}"}}},
			{"Errors", "reqps", "Answers that are the server's fault (5xx), or refused because too many requests wait (429).", []query{{of(shard, `sum by (code) (rate(apiserver_request_total{@,code=~"5..|429"}[5m])) or vector(0)`), "{{code}}"}}},
			{"Latency", "s", "Of reads and writes, without the time in webhooks and queues.", []query{
				{of(shard, `histogram_quantile(0.99, sum by (le) (rate(apiserver_request_sli_duration_seconds_bucket{@,verb=~"GET|LIST"}[5m])))`), "reads p99"},
				{of(shard, `histogram_quantile(0.5, sum by (le) (rate(apiserver_request_sli_duration_seconds_bucket{@,verb=~"GET|LIST"}[5m])))`), "reads p50"},
				{of(shard, `histogram_quantile(0.99, sum by (le) (rate(apiserver_request_sli_duration_seconds_bucket{@,verb=~"POST|PUT|PATCH|DELETE"}[5m])))`), "writes p99"},
			}},
			{"In progress", "short", "Requests that are being served.", []query{{of(shard, `sum by (request_kind) (apiserver_current_inflight_requests{@})`), "{{request_kind}}"}}},
			{"Watches", "short", "Connections that are open.", []query{{of(shard, `sum by (instance) (apiserver_longrunning_requests{@})`), "{{instance}}"}}},
			{"Waiting in queues", "s", "How long requests of tenants wait for their turn.", []query{{of(shard, `histogram_quantile(0.99, sum by (le) (rate(apiserver_flowcontrol_request_wait_duration_seconds_bucket{@}[5m])))`), "p99"}}},
		}},
		{"Tenants", []panel{
			{"Logical clusters", "short", "By phase and shard.", []query{{of(shard, `sum by (shard, phase) (kcp_logicalcluster_count{@})`), "{{shard}} {{phase}}"}}},
			{"Workspaces", "short", "By phase.", []query{{of(shard, `sum by (phase) (kcp_workspace_count{@})`), "{{phase}}"}}},
			{"Bindings", "short", "By phase. Bindings that stay in Binding lack an export or a permission.", []query{{of(shard, `sum by (phase) (kcp_apibinding_phase{@})`), "{{phase}}"}}},
			{"Reconciles", "ops", "Of the shard's controllers, by outcome.", []query{{of(shard, `sum by (outcome) (rate(atoll_controller_reconciles_total{@}[5m]))`), "{{outcome}}"}}},
		}},
		{"Etcd", []panel{
			{"Size", "bytes", "At its quota, etcd refuses writes.", []query{
				{of(shard, `max by (shard) (atoll_etcd_in_use_bytes{@})`), "{{shard}} in use"}, {of(shard, `max by (shard) (atoll_etcd_size_bytes{@})`), "{{shard}} file"}, {of(shard, `max by (shard) (atoll_etcd_quota_bytes{@})`), "{{shard}} quota"},
			}},
			{"Latency", "s", "Of requests of the shard to etcd. Creations of several objects that are stored together include up to a second of waiting for each other.", []query{{of(shard, `histogram_quantile(0.99, sum by (le, operation) (rate(etcd_request_duration_seconds_bucket{@}[5m])))`), "{{operation}} p99"}}},
			{"Refuses writes", "short", "1 while etcd is full.", []query{{of(shard, `max by (shard) (atoll_etcd_no_space{@})`), "{{shard}}"}}},
		}},
		{"Replication", []panel{
			{"Lag", "s", "Between a write on another shard and its arrival here, by direction.", []query{{of(shard, `max by (shard, direction) (atoll_replication_lag_seconds{@})`), "{{shard}} {{direction}}"}}},
			{"Replicated objects", "short", "Of other shards.", []query{{of(shard, `sum by (shard, resource) (atoll_replica_informer_objects{@})`), "{{shard}} {{resource}}"}}},
			{"Refused objects", "short", "That the cache server did not accept.", []query{{of(shard, `sum by (shard) (atoll_replication_refused_objects{@})`), "{{shard}}"}}},
			{"Clocks", "s", "How far the clock of the shard is ahead of the cache server's.", []query{{of(shard, `max by (shard) (atoll_clock_ahead_seconds{@})`), "{{shard}}"}}},
		}},
		{"Moves of workspaces", []panel{
			{"In progress", "short", "Stalled: nothing has changed for ten minutes; a condition has the reason.", []query{{of(shard, `sum by (state) (atoll_logicalcluster_migrations_active{@}) or vector(0)`), "{{state}}"}}},
			{"Ended", "short", "In the last hour, by result.", []query{{of(shard, `sum by (result) (increase(atoll_logicalcluster_migrations_total{@}[1h])) or vector(0)`), "{{result}}"}}},
			{"Refused writes", "s", "How long workspaces that moved to a shard have refused writes.", []query{{of(shard, `histogram_quantile(0.99, sum by (le, instance) (rate(atoll_logicalcluster_migration_refused_writes_seconds_bucket{@}[1h])))`), "{{instance}} p99"}}},
			{"Copied", "Bps", "From other shards.", []query{{of(shard, `sum by (instance) (rate(atoll_logicalcluster_migration_copied_bytes_total{@}[5m]))`), "{{instance}}"}}},
		}},
		process(shard),
	}},
	{"front-proxies", "Atoll / Front proxies", proxy, []row{
		{"Requests", []panel{
			{"Requests", "reqps", "By method.", []query{{of(proxy, `sum by (method) (rate(proxy_request_duration_seconds_count{@}[5m]))`), "{{method}}"}}},
			{"Errors", "reqps", "5xx: a shard does not answer; 429: the limit of a user.", []query{{of(proxy, `sum by (code) (rate(proxy_request_duration_seconds_count{@,code=~"5..|429"}[5m])) or vector(0)`), "{{code}}"}}},
			{"Latency", "s", "With the answer of the shard.", []query{
				{of(proxy, `histogram_quantile(0.99, sum by (le) (rate(proxy_request_duration_seconds_bucket{@}[5m])))`), "p99"}, {of(proxy, `histogram_quantile(0.5, sum by (le) (rate(proxy_request_duration_seconds_bucket{@}[5m])))`), "p50"},
			}},
			{"To shards", "Bps", "Bodies of requests.", []query{{of(proxy, `sum by (shard) (rate(kcp_backend_rq_body_bytes{@}[5m]))`), "{{shard}}"}}},
			{"From shards", "Bps", "Bodies of answers.", []query{{of(proxy, `sum by (shard) (rate(kcp_backend_rs_body_bytes{@}[5m]))`), "{{shard}}"}}},
		}},
		{"Index", []panel{
			{"Logical clusters", "short", "That the proxy can route to.", []query{{of(proxy, `sum by (instance, shard) (kcp_indexed_logicalclusters{@})`), "{{instance}} {{shard}}"}}},
			{"Sources", "short", "1 while the index of a shard is up to date.", []query{{of(proxy, `min by (source) (atoll_front_proxy_index_current{@})`), "{{source}}"}}},
			{"Contested", "short", "Logical clusters that two shards say they have.", []query{{of(proxy, `max by (shard) (atoll_front_proxy_contested_logicalclusters{@})`), "{{shard}}"}}},
		}},
		process(proxy),
	}},
	{"cache-servers", "Atoll / Cache servers", cache, []row{
		{"Requests", []panel{
			{"Requests", "reqps", "Of shards, by verb.", []query{{of(cache, `sum by (verb) (rate(apiserver_request_total{@,verb!~"WATCH|CONNECT"}[5m]))`), "{{verb}}"}}},
			{"Latency", "s", "Without watches.", []query{{of(cache, `histogram_quantile(0.99, sum by (le, verb) (rate(apiserver_request_sli_duration_seconds_bucket{@,verb!~"WATCH|CONNECT"}[5m])))`), "{{verb}} p99"}}},
			{"Watches", "short", "One for each shard and resource.", []query{{of(cache, `sum by (instance) (apiserver_longrunning_requests{@})`), "{{instance}}"}}},
		}},
		{"Store", []panel{
			{"Size", "bytes", "Of the store.", []query{{of(cache, `max by (instance) (apiserver_storage_size_bytes{@})`), "{{instance}}"}}},
			{"Parent", "short", "1 while a cache server with a parent is connected to it.", []query{{of(cache, `max by (instance) (atoll_cache_parent_connected{@})`), "{{instance}}"}}},
			{"Pending", "short", "Objects that the parent does not have yet.", []query{{of(cache, `max by (instance) (atoll_cache_parent_pending{@})`), "{{instance}}"}}},
			{"Removed shards", "short", "Whose objects were deleted, because they are gone.", []query{{of(cache, `sum by (instance) (increase(atoll_cache_removed_shards_total{@}[1h]))`), "{{instance}}"}}},
		}},
		process(cache),
	}},
	{"operator", "Atoll / Operator", operator, []row{
		{"Objects", []panel{
			{"Not ready", "short", "Objects whose condition Ready is not True.", []query{{of(operator, `count by (resource_type) (kcp_operator_condition_status{@,condition_type="Ready"} != 1) or vector(0)`), "{{resource_type}}"}}},
			{"Stalled", "short", "Objects that stay as they are until a user changes something.", []query{{of(operator, `count by (resource_type) (kcp_operator_condition_status{@,condition_type="Stalled"} == 1) or vector(0)`), "{{resource_type}}"}}},
			{"Rollouts", "short", "1 while pods of an object are as its spec wants them, 0 while they are replaced or wait for it.", []query{{of(operator, `min by (resource_type, namespace, resource_name) (kcp_operator_condition_status{@,condition_type="RolledOut"}) or vector(1)`), "{{resource_type}} {{namespace}}/{{resource_name}}"}}},
			{"Shards", "short", "By phase.", []query{{of(operator, `sum by (phase) (kcp_operator_shard_count{@})`), "{{phase}}"}}},
			{"Backups", "short", "By phase. Failed ones stay until the retention of their schedule removes them.", []query{{of(operator, `sum by (phase) (kcp_operator_backup_count{@}) or vector(0)`), "{{phase}}"}}},
			{"Age of the last backup", "s", "Time since the last Backup of each installation that was completed.", []query{{of(operator, `time() - max by (namespace, rootshard) (kcp_operator_backup_last_success_timestamp_seconds{@}) or vector(0)`), "{{namespace}}/{{rootshard}}"}}},
			{"Restore drills", "s", "Of the last drill that succeeded: how long the restore took, and how old the data was. Failed drills are in the row of stalled objects.", []query{
				{of(operator, `max by (namespace, restoredrill) (kcp_operator_restore_drill_recovery_seconds{@}) or vector(0)`), "{{namespace}}/{{restoredrill}} recovery"},
				{of(operator, `max by (namespace, restoredrill) (kcp_operator_restore_drill_data_loss_seconds{@}) or vector(0)`), "{{namespace}}/{{restoredrill}} loss"},
			}},
		}},
		{"Reconciles", []panel{
			{"Duration", "s", "By controller.", []query{{of(operator, `histogram_quantile(0.99, sum by (le, controller) (rate(kcp_operator_reconciliation_duration_seconds_bucket{@}[5m])))`), "{{controller}} p99"}}},
			{"Failures", "ops", "That are retried.", []query{{of(operator, `sum by (controller) (rate(kcp_operator_reconciliation_errors_total{@}[5m]))`), "{{controller}}"}}},
		}},
		process(operator),
	}},
}

// process is the row that all servers have.
func process(job string) row {
	return row{"Process", []panel{
		{"Memory", "bytes", "Resident.", []query{{of(job, `process_resident_memory_bytes{@}`), "{{instance}}"}}},
		{"Processors", "short", "In use.", []query{{of(job, `rate(process_cpu_seconds_total{@}[5m])`), "{{instance}}"}}},
		{"Goroutines", "short", "They grow with watches and connections, not with workspaces.", []query{{of(job, `go_goroutines{@}`), "{{instance}}"}}},
	}}
}
