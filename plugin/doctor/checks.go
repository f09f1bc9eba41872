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
	// whole is set if a part of these facts would give wrong findings.
	whole bool
	// runbook is the page about it, with an anchor, below docs.
	runbook string
	decide  func(*Facts, Limits) []Finding
}

// checks are in the order of the output: what explains others comes first.
var checks = []check{
	{id: "front-proxy", areas: []Area{AreaProxy}, needs: 1, runbook: "doctor-checks.md#front-proxy", decide: frontProxy},
	{id: "shards", areas: []Area{AreaShards}, needs: 1, runbook: "doctor-checks.md#shards", decide: shards},
	{id: "shard-servers", areas: []Area{AreaShards, AreaServers}, needs: 2, runbook: "doctor-checks.md#shard-servers", decide: shardServers},
	{id: "versions", areas: []Area{AreaServers}, needs: 1, runbook: "doctor-checks.md#versions", decide: versions},
	{id: "clocks", areas: []Area{AreaProxy, AreaServers}, needs: 1, runbook: "doctor-checks.md#clocks", decide: clocks},
	{id: "certificates", areas: []Area{AreaProxy, AreaServers}, needs: 1, runbook: "doctor-checks.md#certificates", decide: certificates},
	{id: "etcd", areas: []Area{AreaServers}, needs: 1, runbook: "doctor-checks.md#etcd", decide: etcd},
	{id: "replication", areas: []Area{AreaServers, AreaReplication}, needs: 1, runbook: "doctor-checks.md#replication", decide: replication},
	{id: "index", areas: []Area{AreaProxy}, needs: 1, runbook: "doctor-checks.md#index", decide: index},
	{id: "moves", areas: []Area{AreaMoves, AreaServers}, needs: 1, runbook: "doctor-checks.md#moves", decide: stalledMoves},
	{id: "workspaces", areas: []Area{AreaTree}, needs: 1, runbook: "doctor-checks.md#workspaces", decide: workspaces},
	{id: "exports", areas: []Area{AreaExports}, needs: 1, runbook: "doctor-checks.md#exports", decide: exports},
	{id: "endpoint-slices", areas: []Area{AreaExports, AreaShards, AreaServers}, needs: 2, runbook: "doctor-checks.md#endpoint-slices", decide: endpointSlices},
	{id: "bindings", areas: []Area{AreaBindings}, needs: 1, runbook: "doctor-checks.md#bindings", decide: bindings},
	{id: "identities", areas: []Area{AreaDeep, AreaExports, AreaBindings}, needs: 3, runbook: "doctor-checks.md#identities", decide: identities},
	{id: "orphans", areas: []Area{AreaDeep, AreaTree}, needs: 2, runbook: "doctor-checks.md#orphans", decide: orphans, whole: true},
	{id: "operator", areas: []Area{AreaHost}, needs: 1, runbook: "doctor-checks.md#operator", decide: operatorObjects},
	{id: "host-certificates", areas: []Area{AreaHost}, needs: 1, runbook: "doctor-checks.md#host-certificates", decide: hostCertificates},
	{id: "backups", areas: []Area{AreaHost}, needs: 1, runbook: "doctor-checks.md#backups", decide: backups},
}

// isLate reports whether something has lasted longer than the grace.
func isLate(facts *Facts, since time.Time, limits Limits) bool {
	return facts.ReadAt.Sub(since) >= limits.Grace
}
