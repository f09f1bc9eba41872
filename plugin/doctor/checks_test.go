package doctor

import (
	"strings"
	"testing"
	"time"
)

var now = time.Date(2030, 5, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

func pointer[T any](value T) *T { return &value }

func condition(conditionType, status, reason string) Condition {
	return Condition{Type: conditionType, Status: status, Reason: reason, Since: ago(time.Hour), Message: "the details"}
}

// samples parses a page of metrics.
func samples(t *testing.T, page string) Samples {
	t.Helper()
	out, err := readSamples(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// validity is that of a certificate of 90 days that expires after some time.
func validity(left time.Duration) *Certificate {
	const valid = 90 * 24 * time.Hour
	return &Certificate{NotBefore: now.Add(left - valid), NotAfter: now.Add(left)}
}

// healthy returns the facts of an installation in which nothing is wrong.
func healthy(t *testing.T) *Facts {
	const day = 24 * time.Hour
	metrics := `
# TYPE atoll_certificate_expiration_timestamp_seconds gauge
atoll_certificate_expiration_timestamp_seconds{flag="cache-kubeconfig"} 2e+09
# TYPE atoll_etcd_quota_bytes gauge
atoll_etcd_quota_bytes{shard="alpha"} 8e+09
# TYPE atoll_etcd_in_use_bytes gauge
atoll_etcd_in_use_bytes{shard="alpha"} 1e+09
# TYPE atoll_etcd_size_bytes gauge
atoll_etcd_size_bytes{shard="alpha"} 2e+09
# TYPE atoll_etcd_no_space gauge
atoll_etcd_no_space{shard="alpha"} 0
# TYPE atoll_replication_lag_seconds gauge
atoll_replication_lag_seconds{shard="alpha",direction="read"} 0.5
atoll_replication_lag_seconds{shard="alpha",direction="write"} 0
# TYPE atoll_logicalcluster_migrations_active gauge
atoll_logicalcluster_migrations_active{state="stalled"} 0
# TYPE other gauge
other{workspace="secret"} 1
`
	server := func(name string) Server {
		return Server{
			Name: name, URL: "https://" + name, Reachable: true, Ready: true, Version: "v1.37.0", ClockOffset: 400 * time.Millisecond, Uncertainty: time.Second,
			Certificate: validity(60 * day), Metrics: samples(t, metrics),
		}
	}
	proxy := server("front proxy")
	proxy.Metrics = samples(t, "# TYPE atoll_front_proxy_index_current gauge\natoll_front_proxy_index_current{source=\"alpha\"} 1\n")
	shard := func(name string) Shard {
		return Shard{
			Name: name, BaseURL: "https://" + name, VirtualWorkspaceURL: "https://vw-" + name, VirtualWorkspaces: &Server{Reachable: true},
			Conditions: Conditions{condition("Ready", "True", ""), condition("Schedulable", "True", ""), condition("Published", "True", "")},
		}
	}
	ready := func() Conditions { return Conditions{condition("Ready", "True", "Ready")} }
	export := Object{Cluster: "provider", Name: "cowboys", Created: ago(day)}
	return &Facts{
		ReadAt: now, Areas: map[Area]*Gap{}, Credentials: validity(60 * day), Proxy: &proxy,
		Shards: []Shard{shard("alpha"), shard("beta")}, Servers: []Server{server("alpha"), server("beta")},
		Moves: []Move{{Name: "m", Phase: "Migrating", To: "beta", Conditions: Conditions{condition("DataCopied", "False", "Copying")}}},
		Workspaces: []Workspace{
			{Object: Object{Cluster: "root", Name: "team", UID: "1", Created: ago(day)}, Phase: "Ready", LogicalCluster: "abc"},
			{Object: Object{Cluster: "root", Name: "new", UID: "2", Created: ago(time.Second)}, Phase: "Scheduling"},
			{Object: Object{Cluster: "root", Name: "off", UID: "3", Created: ago(day)}, Phase: "Inactive", LogicalCluster: "off"},
		},
		LogicalClusters: []LogicalCluster{
			{Object: Object{Cluster: "abc", Name: "cluster", Created: ago(day)}, Shard: "alpha", OwnerCluster: "root", OwnerName: "team", OwnerUID: "1"},
			{Object: Object{Cluster: "off", Name: "cluster", Created: ago(day)}, Shard: "beta", OwnerCluster: "root", OwnerName: "off", OwnerUID: "3"},
			{Object: Object{Cluster: "home", Name: "cluster", Created: ago(day)}, Shard: "beta"},
		},
		Exports:  []Export{{Object: export, IdentityHash: "h1", Conditions: Conditions{condition("IdentityValid", "True", "")}}},
		Slices:   []EndpointSlice{{Object: export, Bases: []string{"https://vw-alpha"}, Conditions: Conditions{condition("APIExportValid", "True", "")}}},
		Bindings: []Binding{{Object: Object{Cluster: "abc", Name: "cowboys", Created: ago(day)}, Phase: "Bound", ExportCluster: "provider", ExportName: "cowboys", IdentityHashes: []string{"h1"}}},
		Objects: []HostObject{
			{Kind: kindRootShard, Namespace: "kcp", Name: "root", Conditions: ready()}, {Kind: kindBackupStore, Namespace: "kcp", Name: "offsite", Conditions: ready()},
			{Kind: "FrontProxy", Namespace: "kcp", Name: "new", Conditions: Conditions{{Type: "Ready", Status: "False", Reason: "Waiting", Since: ago(time.Second)}}},
			{Kind: kindBackupSchedule, Namespace: "kcp", Name: "nightly", Conditions: ready()},
		},
		Certificates: []HostCertificate{{Namespace: "kcp", Name: "root-server", Certificate: validity(40 * day), Conditions: ready()}},
		Leases:       []OperatorLease{{Namespace: "operator", Name: "lease", Renewed: ago(10 * time.Second), Duration: 15 * time.Second}, {Namespace: "former", Name: "lease", Renewed: ago(day)}},
		Backups: []Backup{
			{Namespace: "kcp", Name: "old", RootShard: "root", Phase: "Failed", Created: ago(3 * day)}, {Namespace: "kcp", Name: "last", RootShard: "root", Phase: "Completed", Created: ago(2 * day)},
			{Namespace: "kcp", Name: "running", RootShard: "root", Phase: "Running", Created: ago(time.Minute)},
		},
	}
}

var testLimits = Limits{Grace: 5 * time.Minute, BackupAge: 7 * 24 * time.Hour}

func TestHealthy(t *testing.T) {
	report := Examine(healthy(t), testLimits)
	for _, finding := range report.Findings {
		t.Errorf("%+v", finding)
	}
	for _, check := range report.Checks {
		if check.Status != StatusComplete {
			t.Errorf("%+v", check)
		}
	}
}

// TestFindings breaks one thing at a time, and expects one finding.
func TestFindings(t *testing.T) {
	gauge := func(name, labels, value string) func(*testing.T, *Facts) {
		return func(t *testing.T, f *Facts) {
			f.Servers[0].Metrics = samples(t, "# TYPE "+name+" gauge\n"+name+labels+" "+value+"\n")
		}
	}
	const day = 24 * time.Hour
	for name, tc := range map[string]struct {
		change   func(*testing.T, *Facts)
		check    string
		severity Severity
		text     string // of object and message
	}{
		"a front proxy does not answer": {func(_ *testing.T, f *Facts) {
			f.Proxy = &Server{Name: "front proxy", URL: "https://kcp", Unreachable: "refused"}
		}, "front-proxy", SeverityError, "front proxy does not answer at https://kcp"},
		"a front proxy is not ready": {func(_ *testing.T, f *Facts) { f.Proxy.Ready = false }, "front-proxy", SeverityError, "is not ready"},
		"a shard is silent":          {func(_ *testing.T, f *Facts) { f.Shards[0].Conditions[0].Status = "Unknown" }, "shards", SeverityError, "shard alpha has not reported"},
		"a shard is not ready":       {func(_ *testing.T, f *Facts) { f.Shards[0].Conditions[0].Status = "False" }, "shards", SeverityError, "shard alpha reports that it is not ready"},
		"a shard is cordoned": {func(_ *testing.T, f *Facts) {
			f.Shards[0].Conditions[1] = condition("Schedulable", "False", "Cordoned")
		}, "shards", SeverityInfo, "shard alpha is cordoned"},
		"a shard is full": {func(_ *testing.T, f *Facts) { f.Shards[0].Conditions[1] = condition("Schedulable", "False", "Full") }, "shards", SeverityWarning, "shard alpha is full"},
		"no shard is open": {func(_ *testing.T, f *Facts) {
			for i := range f.Shards {
				f.Shards[i].Conditions[1] = condition("Schedulable", "False", "Silent")
			}
		}, "shards", SeverityError, "no shard accepts"},
		"the cache refuses objects": {func(_ *testing.T, f *Facts) {
			f.Shards[0].Conditions[2] = condition("Published", "False", "ObjectsRefused")
		}, "shards", SeverityError, "ObjectsRefused"},
		"a restored shard waits for others": {func(_ *testing.T, f *Facts) {
			f.Shards[0].Conditions = append(f.Shards[0].Conditions, condition("MovesKnown", "False", "OtherShardsNotAsked"))
		}, "shards", SeverityError, "refuses requests to its workspaces"},
		"a restored shard has old content": {func(_ *testing.T, f *Facts) {
			f.Shards[0].Conditions = append(f.Shards[0].Conditions, condition("MovesKnown", "False", "OutdatedLogicalClusters"))
		}, "shards", SeverityInfo, "old content of workspaces"},
		"limits have no effect": {func(_ *testing.T, f *Facts) {
			f.Shards[0].Conditions = append(f.Shards[0].Conditions, condition("ResourceLimitsApplied", "False", "InvalidResourceLimits"))
		}, "shards", SeverityWarning, "limits without an effect"},
		"a shard does not answer":  {func(_ *testing.T, f *Facts) { f.Servers[0].Reachable = false }, "shard-servers", SeverityError, "shard alpha does not answer at https://alpha"},
		"a shard fails its checks": {func(_ *testing.T, f *Facts) { f.Servers[0].Ready, f.Servers[0].Failing = false, []string{"etcd"} }, "shard-servers", SeverityError, "is not ready: etcd"},
		"a rollout is unfinished":  {func(_ *testing.T, f *Facts) { f.Servers[0].Version = "v1.38.0" }, "versions", SeverityWarning, "v1.37.0 (beta), v1.38.0 (alpha)"},
		"a clock is wrong":         {func(_ *testing.T, f *Facts) { f.Servers[0].ClockOffset = -time.Minute }, "clocks", SeverityError, "alpha its clock is 1m0s behind"},
		"the clock here is wrong": {func(_ *testing.T, f *Facts) {
			f.Proxy.ClockOffset, f.Servers[0].ClockOffset, f.Servers[1].ClockOffset = time.Hour, time.Hour, time.Hour
		}, "clocks", SeverityWarning, "this machine its clock differs"},
		"a serving certificate has expired":           {func(_ *testing.T, f *Facts) { f.Servers[0].Certificate = validity(-time.Hour) }, "certificates", SeverityError, "alpha its serving certificate has expired"},
		"a serving certificate expires":               {func(_ *testing.T, f *Facts) { f.Proxy.Certificate = validity(5 * day) }, "certificates", SeverityWarning, "front proxy its serving certificate expires in 120h0m0s"},
		"a kubeconfig of the shards has expired":      {func(_ *testing.T, f *Facts) { f.ShardCredentials = validity(-time.Hour) }, "certificates", SeverityError, "kubeconfig of the shards its client certificate has expired"},
		"a certificate of virtual workspaces expires": {func(_ *testing.T, f *Facts) { f.Shards[0].VirtualWorkspaces.Certificate = validity(-time.Hour) }, "certificates", SeverityError, "virtual workspaces of shard alpha their serving certificate has expired"},
		"the root shard does not answer":              {func(_ *testing.T, f *Facts) { f.ShardsUnreadable = true }, "front-proxy", SeverityError, "root shard does not answer through the front proxy"},
		"a status of a shard is unexpected":           {func(_ *testing.T, f *Facts) { f.Servers[0].Ready, f.Servers[0].Status = false, 302 }, "shard-servers", SeverityError, "is not ready: its HTTP status is 302"},
		"the only clock is wrong":                     {func(_ *testing.T, f *Facts) { f.Servers, f.Proxy.ClockOffset = nil, time.Minute }, "clocks", SeverityWarning, "the clock of this machine or of the front proxy is wrong: its clock is 1m0s ahead of that of this machine"},
		"a kubeconfig expires":                        {func(_ *testing.T, f *Facts) { f.Credentials = validity(time.Hour) }, "certificates", SeverityWarning, "kubeconfig its client certificate expires"},
		"a certificate for the cache has expired":     {gauge(metricCertificateExpiry, `{flag="cache-kubeconfig"}`, "1.8e+09"), "certificates", SeverityError, "alpha its certificate of --cache-kubeconfig has expired"},
		"etcd refuses writes":                         {gauge(metricEtcdNoSpace, `{shard="alpha"}`, "1"), "etcd", SeverityError, "refuses all writes"},
		"etcd is almost full": {func(t *testing.T, f *Facts) {
			f.Servers[0].Metrics[metricEtcdInUse] = []Sample{{Value: 7e9}}
		}, "etcd", SeverityError, "88 % of the quota"},
		"replication reads late":         {gauge(metricReplicationLag, `{direction="read"}`, "90"), "replication", SeverityError, "does not receive what other shards share: it is 1m30s late"},
		"replication writes late":        {gauge(metricReplicationLag, `{direction="write"}`, "90"), "replication", SeverityError, "they are 1m30s late"},
		"replicated objects are refused": {gauge(metricRefusedObjects, "", "3"), "replication", SeverityError, "refuses 3 of its objects"},
		"a shard is ahead of the cache":  {gauge(metricClockAhead, "", "4"), "replication", SeverityWarning, "4 s ahead"},
		"the index of a proxy is old":    {func(_ *testing.T, f *Facts) { f.Proxy.Metrics[metricIndexCurrent][0].Value = 0 }, "index", SeverityError, "does not receive the workspaces of alpha"},
		"a logical cluster is contested": {func(_ *testing.T, f *Facts) {
			f.Proxy.Metrics[metricContested] = []Sample{{Labels: map[string]string{"shard": "beta"}, Value: 2}}
		}, "index", SeverityError, "shard beta reports 2"},
		"a move makes no progress": {func(_ *testing.T, f *Facts) {
			f.Moves[0].Conditions = Conditions{condition("Progressing", "False", "NoProgress")}
		}, "moves", SeverityWarning, "no progress in phase Migrating"},
		"a move elsewhere does not": {gauge(metricMigrations, `{state="stalled"}`, "1"), "moves", SeverityWarning, "1 moves"},
		"a workspace is not scheduled": {func(_ *testing.T, f *Facts) {
			f.Workspaces[1].Created = ago(time.Hour)
			f.Workspaces[1].Conditions = Conditions{condition("WorkspaceScheduled", "False", "Unschedulable")}
		}, "workspaces", SeverityError, "root/new has no shard: Unschedulable"},
		"a workspace of a tenant is not scheduled": {func(_ *testing.T, f *Facts) {
			f.Workspaces[1].Cluster, f.Workspaces[1].Created = "abc", ago(time.Hour)
		}, "workspaces", SeverityWarning, "abc/new has no shard"},
		"a workspace of a tenant waits for bindings": {func(_ *testing.T, f *Facts) {
			f.Workspaces[0].Cluster, f.Workspaces[0].Phase, f.Workspaces[0].Initializers = "abc", "Initializing", []string{"system:apibindings"}
		}, "workspaces", SeverityWarning, "waits for system:apibindings"},
		"a workspace waits for a type": {func(_ *testing.T, f *Facts) {
			f.Workspaces[0].Phase, f.Workspaces[0].Initializers = "Initializing", []string{"root:slow"}
		}, "workspaces", SeverityWarning, "waits for root:slow"},
		"a workspace waits for bindings": {func(_ *testing.T, f *Facts) {
			f.Workspaces[0].Phase, f.Workspaces[0].Initializers = "Initializing", []string{"system:apibindings"}
		}, "workspaces", SeverityError, "waits for system:apibindings"},
		"a workspace is not deleted": {func(_ *testing.T, f *Facts) {
			f.Workspaces[0].Deleting = pointer(ago(time.Hour))
			f.Workspaces[0].Conditions = Conditions{condition("WorkspaceContentDeleted", "False", "SomeResourcesRemain")}
		}, "workspaces", SeverityWarning, "is being deleted for 1h0m0s: SomeResourcesRemain"},
		"a workspace waits to terminate": {func(_ *testing.T, f *Facts) {
			f.Workspaces[0].Deleting = pointer(ago(time.Hour))
			f.Workspaces[0].Terminators = []string{"root:slow"}
		}, "workspaces", SeverityWarning, "waits for root:slow"},
		"a workspace is unavailable": {func(_ *testing.T, f *Facts) {
			f.Workspaces[0].Phase = "Unavailable"
			f.Workspaces[0].Conditions = Conditions{condition("WorkspaceInitialized", "False", "WorkspaceDisappeared")}
		}, "workspaces", SeverityError, "is in phase Unavailable: WorkspaceDisappeared"},
		"a mount is unavailable": {func(_ *testing.T, f *Facts) { f.Workspaces[0].Phase, f.Workspaces[0].IsMount = "Unavailable", true }, "workspaces", SeverityWarning, "is in phase Unavailable"},
		"an identity is not valid": {func(_ *testing.T, f *Facts) {
			f.Exports[0].Conditions[0] = condition("IdentityValid", "False", "IdentityVerificationFailed")
		}, "exports", SeverityWarning, "provider/cowboys its identity is not valid"},
		"an identity of the system is not valid": {func(_ *testing.T, f *Facts) {
			f.Exports[0].Cluster, f.Exports[0].Conditions[0] = "system:admin", condition("IdentityValid", "False", "IdentityVerificationFailed")
		}, "exports", SeverityError, "system:admin/cowboys its identity is not valid"},
		"an export has no address": {func(_ *testing.T, f *Facts) {
			f.Exports[0].Conditions[0] = condition("VirtualWorkspaceURLsReady", "False", "ErrorGeneratingURLs")
		}, "exports", SeverityError, "have no address"},
		"an endpoint belongs to no shard":         {func(_ *testing.T, f *Facts) { f.Slices[0].Bases, f.Slices[0].Foreign = nil, 2 }, "endpoint-slices", SeverityWarning, "2 endpoints are at no address of a shard"},
		"an endpoint of root belongs to no shard": {func(_ *testing.T, f *Facts) { f.Slices[0].Cluster, f.Slices[0].Foreign = "root", 2 }, "endpoint-slices", SeverityError, "2 endpoints are at no address of a shard"},
		"virtual workspaces are not ready":        {func(_ *testing.T, f *Facts) { f.Shards[0].VirtualWorkspaces.Status = 503 }, "endpoint-slices", SeverityError, "the endpoint on shard alpha is not ready: its HTTP status is 503"},
		"an endpoint does not answer":             {func(_ *testing.T, f *Facts) { f.Shards[0].VirtualWorkspaces.Reachable = false }, "endpoint-slices", SeverityError, "the endpoint on shard alpha does not answer"},
		"a slice has no export": {func(_ *testing.T, f *Facts) {
			f.Slices[0].Conditions[0] = condition("APIExportValid", "False", "APIExportNotFound")
		}, "endpoint-slices", SeverityWarning, "is not valid: APIExportNotFound"},
		"a binding is not bound": {func(_ *testing.T, f *Facts) {
			f.Bindings[0].Phase = "Binding"
			f.Bindings[0].Conditions = Conditions{condition("InitialBindingCompleted", "False", "NamingConflicts")}
		}, "bindings", SeverityWarning, "is not bound to cowboys: NamingConflicts"},
		"a binding has lost its export": {func(_ *testing.T, f *Facts) {
			f.Bindings[0].Conditions = Conditions{condition("APIExportValid", "False", "APIExportNotFound")}
		}, "bindings", SeverityWarning, "APIExportValid is False: APIExportNotFound"},
		"a binding is not deleted":       {func(_ *testing.T, f *Facts) { f.Bindings[0].Deleting = pointer(ago(time.Hour)) }, "bindings", SeverityWarning, "is not deleted"},
		"a binding has another identity": {func(_ *testing.T, f *Facts) { f.Exports[0].IdentityHash = "h2" }, "identities", SeverityWarning, "the identity h1, but APIExport provider/cowboys has h2"},
		"a logical cluster is an orphan": {func(_ *testing.T, f *Facts) {
			f.LogicalClusters[0].OwnerUID, f.LogicalClusters[0].Recheck = "other", RecheckConfirmed
		}, "orphans", SeverityWarning, "logical cluster abc on shard alpha its Workspace root/team does not exist"},
		"a workspace has lost its content": {func(_ *testing.T, f *Facts) {
			f.LogicalClusters, f.Workspaces[0].Recheck = f.LogicalClusters[1:], RecheckConfirmed
		}, "orphans", SeverityError, "no shard has its logical cluster abc"},
		"candidates are not read again": {func(_ *testing.T, f *Facts) {
			f.LogicalClusters[0].OwnerUID, f.LogicalClusters[1].Cluster = "other", "another"
		}, "orphans", SeverityWarning, "2 more logical clusters or Workspaces may be orphans"},
		"no operator works": {func(_ *testing.T, f *Facts) {
			f.Leases = []OperatorLease{{Namespace: "new", Name: "lease", Renewed: ago(6 * time.Minute), Duration: 15 * time.Second}, {Namespace: "former", Name: "lease", Renewed: ago(time.Hour)}}
		}, "operator", SeverityError, "Lease new/lease no operator works: none has renewed it since 2030-05-01T11:54:00Z"},
		"an object is stalled": {func(_ *testing.T, f *Facts) {
			f.Objects[0].Conditions = Conditions{condition("Ready", "False", "X"), condition("Stalled", "True", "SecretNotFound")}
		}, "operator", SeverityError, "RootShard kcp/root is stalled: SecretNotFound"},
		"an object is not ready":    {func(_ *testing.T, f *Facts) { f.Objects[0].Conditions[0] = condition("Ready", "False", "Waiting") }, "operator", SeverityError, "RootShard kcp/root is not ready: Waiting"},
		"nobody has seen an object": {func(_ *testing.T, f *Facts) { f.Objects[0].Conditions = nil }, "operator", SeverityError, "the operator has not seen it"},
		"an etcd lacks a member": {func(_ *testing.T, f *Facts) {
			f.Objects[0].Conditions = append(Conditions{}, condition("Ready", "True", ""), condition("EtcdHealthy", "False", "MemberMissing"))
		}, "operator", SeverityError, "EtcdHealthy is False: MemberMissing"},
		"fields are ignored": {func(_ *testing.T, f *Facts) {
			f.Objects[0].Conditions = append(Conditions{}, condition("Ready", "True", ""), condition("SpecHonored", "False", "FieldsIgnored"))
		}, "operator", SeverityWarning, "SpecHonored is False"},
		"an object is not observed": {func(_ *testing.T, f *Facts) {
			f.Objects[0].Generation, f.Objects[0].ObservedGeneration, f.Objects[0].Changed = 2, 1, ago(time.Hour)
		}, "operator", SeverityError, "RootShard kcp/root the operator has not read its last change"},
		"no scheduled backup is completed": {func(_ *testing.T, f *Facts) {
			f.Objects[3].Conditions = Conditions{condition("Ready", "False", "Overdue"), condition("Stalled", "True", "Overdue"), condition("Current", "False", "Overdue")}
		}, "backups", SeverityError, "BackupSchedule kcp/nightly two Backups in a row"},
		"old backups stay": {func(_ *testing.T, f *Facts) {
			f.Objects[3].Conditions = append(f.Objects[3].Conditions, condition("RetentionEnforced", "False", "Refused"))
		}, "backups", SeverityWarning, "does not remove old Backups: Refused"},
		"a schedule is wrong": {func(_ *testing.T, f *Facts) {
			f.Objects[3].Conditions = Conditions{condition("Ready", "False", "InvalidSpec"), condition("Stalled", "True", "InvalidSpec")}
		}, "backups", SeverityError, "is stalled: InvalidSpec"},
		"an object is not deleted":     {func(_ *testing.T, f *Facts) { f.Objects[0].Deleting = pointer(ago(time.Hour)) }, "operator", SeverityWarning, "is not deleted"},
		"a Certificate is not renewed": {func(_ *testing.T, f *Facts) { f.Certificates[0].Certificate = validity(5 * day) }, "host-certificates", SeverityWarning, "Certificate kcp/root-server expires in 120h0m0s"},
		"a certificate authority is overdue": {func(_ *testing.T, f *Facts) {
			f.Certificates = append(f.Certificates, HostCertificate{Namespace: "kcp", Name: "root-ca", Certificate: validity(29 * day), Renewal: pointer(ago(24 * time.Hour))})
		}, "host-certificates", SeverityWarning, "Certificate kcp/root-ca has not been renewed: that was due at 2030-04-30T12:00:00Z"},
		"a Certificate is overdue": {func(_ *testing.T, f *Facts) { f.Certificates[0].Renewal = pointer(ago(time.Hour)) }, "host-certificates", SeverityWarning, "has not been renewed: that was due at 2030-05-01T11:00:00Z"},
		"an overdue Certificate has expired": {func(_ *testing.T, f *Facts) {
			f.Certificates[0].Renewal, f.Certificates[0].Certificate = pointer(ago(time.Hour)), validity(-time.Minute)
		}, "host-certificates", SeverityError, "has expired"},
		"a Certificate is not issued": {func(_ *testing.T, f *Facts) {
			f.Certificates[0].Conditions = Conditions{condition("Ready", "False", "DoesNotExist")}
			f.Certificates[0].Certificate = nil
		}, "host-certificates", SeverityError, "is not issued: DoesNotExist"},
		"the last backup has failed": {func(_ *testing.T, f *Facts) { f.Backups[2].Phase = "Failed" }, "backups", SeverityError, "its last Backup running has failed"},
		"the last backup is old":     {func(_ *testing.T, f *Facts) { f.Backups[1].Started = pointer(ago(8 * day)) }, "backups", SeverityError, "its last completed Backup last is from 2030-04-23"},
		"there is no backup":         {func(_ *testing.T, f *Facts) { f.Backups = nil }, "backups", SeverityWarning, "has no completed Backup"},
	} {
		t.Run(name, func(t *testing.T) {
			facts := healthy(t)
			tc.change(t, facts)
			got := Examine(facts, testLimits)
			if len(got.Findings) != 1 {
				t.Fatalf("got %+v", got.Findings)
			}
			finding := got.Findings[0]
			if finding.Check != tc.check || finding.Severity != tc.severity || !strings.Contains(finding.Object+" "+finding.Message, tc.text) || finding.NextStep == "" {
				t.Errorf("got %+v", finding)
			}
		})
	}
}

// TestNoFindings has what is on its way, or is no evidence.
func TestNoFindings(t *testing.T) {
	const day = 24 * time.Hour
	recent := func(conditionType, status string) Condition {
		return Condition{Type: conditionType, Status: status, Since: ago(time.Second)}
	}
	for name, change := range map[string]func(*Facts){
		"a certificate of a year that is renewed in its last week": func(f *Facts) {
			f.Proxy.Certificate = &Certificate{NotBefore: now.Add(-345 * day), NotAfter: now.Add(20 * day)}
			f.Certificates[0] = HostCertificate{Certificate: f.Proxy.Certificate, Renewal: pointer(now.Add(13 * day))}
		},
		"a certificate whose renewal is due now": func(f *Facts) {
			f.Certificates[0].Renewal, f.Certificates[0].Certificate = pointer(ago(time.Second)), validity(7*day)
		},
		"a proxy that refuses the credentials": func(f *Facts) { f.Proxy.Ready, f.Proxy.Status = false, 401 },
		"a shard that refuses the credentials": func(f *Facts) { f.Servers[0].Ready, f.Servers[0].Status = false, 403 },
		"virtual workspaces that refuse the anonymous": func(f *Facts) {
			f.Shards[0].VirtualWorkspaces.Status = 401
		},
		"a new shard": func(f *Facts) {
			f.Shards[0].Conditions, f.Shards[0].Created = f.Shards[0].Conditions[1:], ago(time.Second)
		},
		"a shard that restarts":       func(f *Facts) { f.Shards[0].Conditions[0] = recent("Ready", "Unknown") },
		"an object stalled right now": func(f *Facts) { f.Objects[2].Conditions = append(f.Objects[2].Conditions, recent("Stalled", "True")) },
		"an object just created":      func(f *Facts) { f.Objects[0].Conditions, f.Objects[0].Created = nil, ago(time.Second) },
		"an object just changed": func(f *Facts) {
			f.Objects[0].Generation, f.Objects[0].ObservedGeneration, f.Objects[0].Changed = 2, 1, ago(time.Second)
		},
		"a new slice":                func(f *Facts) { f.Slices[0].Foreign, f.Slices[0].Created = 1, ago(time.Second) },
		"an orphan that is none now": func(f *Facts) { f.LogicalClusters[0].OwnerUID, f.LogicalClusters[0].Recheck = "other", RecheckChanged },
		"a workspace that is moved":  func(f *Facts) { f.LogicalClusters, f.Workspaces[0].Recheck = f.LogicalClusters[1:], RecheckChanged },
	} {
		t.Run(name, func(t *testing.T) {
			facts := healthy(t)
			change(facts)
			for _, finding := range Examine(facts, testLimits).Findings {
				t.Errorf("%+v", finding)
			}
		})
	}
}

func TestSamplesKeepOnlyWhatIsRead(t *testing.T) {
	if got := healthy(t).Servers[0].Metrics["other"]; got != nil {
		t.Errorf("kept %v", got)
	}
}
