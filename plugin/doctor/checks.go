package doctor

import (
	"time"
)

// runbooks is the address of the documentation.
const runbooks = "https://github.com/atoll-dev/atoll/blob/main/docs/"

// Limits are from when on something is a finding.
type Limits struct {
	// Grace is how long something may be on its way.
	Grace time.Duration
	// BackupAge is how old the last backup may be.
	BackupAge time.Duration
}

// check decides about one subject.
type check struct {
	id string
	// areas are the facts that it reads. If one of the first ones, as many as needs says, is skipped, so is the check.
	areas []Area
	needs int
	// runbook is the page about it, with an anchor, below docs.
	runbook string
	decide  func(*Facts, Limits) []Finding
}

// checks are in the order of the output: what explains others comes first.
var checks = []check{
	{"front-proxy", []Area{AreaProxy}, 1, "doctor.md#front-proxy", frontProxy},
	{"shards", []Area{AreaShards}, 1, "doctor.md#shards", shards},
	{"shard-servers", []Area{AreaShards, AreaServers}, 2, "doctor.md#shard-servers", shardServers},
	{"versions", []Area{AreaServers}, 1, "doctor.md#versions", versions},
	{"clocks", []Area{AreaProxy, AreaServers}, 1, "doctor.md#clocks", clocks},
	{"certificates", []Area{AreaProxy, AreaServers}, 1, "doctor.md#certificates", certificates},
	{"etcd", []Area{AreaServers}, 1, "doctor.md#etcd", etcd},
	{"replication", []Area{AreaServers}, 1, "doctor.md#replication", replication},
	{"index", []Area{AreaProxy}, 1, "doctor.md#index", index},
	{"moves", []Area{AreaMoves, AreaServers}, 1, "doctor.md#moves", stalledMoves},
	{"workspaces", []Area{AreaTree}, 1, "doctor.md#workspaces", workspaces},
	{"exports", []Area{AreaExports}, 1, "doctor.md#exports", exports},
	{"endpoint-slices", []Area{AreaExports, AreaShards}, 2, "doctor.md#endpoint-slices", endpointSlices},
	{"bindings", []Area{AreaBindings}, 1, "doctor.md#bindings", bindings},
	{"identities", []Area{AreaDeep, AreaExports, AreaBindings}, 3, "doctor.md#identities", identities},
	{"orphans", []Area{AreaDeep, AreaTree}, 2, "doctor.md#orphans", orphans},
	{"operator", []Area{AreaHost}, 1, "doctor.md#operator", operatorObjects},
	{"host-certificates", []Area{AreaHost}, 1, "doctor.md#host-certificates", hostCertificates},
	{"backups", []Area{AreaHost}, 1, "doctor.md#backups", backups},
}

// isLate reports whether something has lasted longer than the grace.
func isLate(facts *Facts, since time.Time, limits Limits) bool {
	return facts.ReadAt.Sub(since) >= limits.Grace
}
