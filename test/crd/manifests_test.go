package crd_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apimachinery/pkg/runtime"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"sigs.k8s.io/yaml"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// These functions add apiVersion, kind and metadata to a spec.
func rootShard(spec string) string        { return manifest("RootShard", spec) }
func frontProxy(spec string) string       { return manifest("FrontProxy", spec) }
func kubeconfig(spec string) string       { return manifest("Kubeconfig", spec) }
func shard(spec string) string            { return manifest("Shard", spec) }
func cacheServer(spec string) string      { return manifest("CacheServer", spec) }
func backupStore(spec string) string      { return manifest("BackupStore", spec) }
func backup(spec string) string           { return manifest("Backup", spec) }
func restore(spec string) string          { return manifest("Restore", spec) }
func restoreDrill(spec string) string     { return manifest("RestoreDrill", drillBasics+spec) }
func backupSchedule(spec string) string   { return manifest("BackupSchedule", scheduleBasics+spec) }
func virtualWorkspace(spec string) string { return manifest("VirtualWorkspace", spec) }

func manifest(kind, spec string) string {
	head := "apiVersion: operator.kcp.io/v1alpha1\nkind: " + kind + "\nmetadata:\n  name: sample\n  namespace: default\n"
	if spec == "" {
		return head
	}
	return head + "spec:\n  " + strings.ReplaceAll(strings.TrimSpace(spec), "\n", "\n  ") + "\n"
}

// named gives a manifest another name.
func named(name, manifest string) string {
	return strings.Replace(manifest, "name: sample", "name: "+name, 1)
}

const (
	drillBasics    = "rootShardRef: {name: root}\nstoreRef: {name: s3}\nidentity: {name: age, key: key.txt}\n"
	storeBasics    = "bucket: backups\ns3Credentials: {accessKeyId: {name: s3, key: id}, secretAccessKey: {name: s3, key: key}}\n"
	storeAddress   = "endpointURL: https://s3.example.com\n"
	scheduleBasics = "rootShardRef: {name: root}\nstoreRef: {name: s3}\n"
	restoreBasics  = "rootShardRef: {name: root}\nstoreRef: {name: s3}\nbackupId: a\nidentity: {name: age, key: key.txt}\n"
	recipients     = "encryption: {recipients: [age1abc]}\n"
)

const external = "external: {hostname: kcp.example.com, port: 6443}\n"
const kubeconfigBasics = "username: jane\nvalidity: 8766h\nsecretRef: {name: jane}\ntarget: {frontProxyRef: {name: main}}\n"

func TestManifests(t *testing.T) {
	definitions := load(t)
	for _, tc := range []struct {
		name     string
		manifest string
		refused  string // part of the error message; empty means accepted
	}{
		// Required fields.
		{"accepts a RootShard without spec", rootShard(""), ""},
		{"accepts a FrontProxy without spec", frontProxy(""), ""},
		{"accepts a Kubeconfig without spec", kubeconfig(""), ""},
		{"accepts a RootShard with only an external address", rootShard(external), ""},
		{"refuses a RootShard without external address", rootShard("replicas: 1"), "spec.external"},
		{"refuses an external address without port", rootShard("external: {hostname: kcp.example.com}"), "spec.external.port"},
		{"accepts a FrontProxy whose rootShard is empty, for compatibility", frontProxy("rootShard: {}"), ""},
		{"refuses a FrontProxy without rootShard", frontProxy("replicas: 1"), "spec.rootShard"},

		// etcd: an existing one, or one that the operator runs.
		{"accepts an etcd by its endpoints", rootShard(external + "etcd: {endpoints: ['https://etcd:2379'], tlsConfig: {secretRef: {name: etcd}}}"), ""},
		{"accepts an empty list of endpoints, for compatibility", rootShard(external + "etcd: {endpoints: []}"), ""},
		{"accepts a managed etcd without further settings", rootShard(external + "etcd: {managed: {}}"), ""},
		{"accepts a managed etcd with prefix, three members and a storage class", rootShard(external + "etcd: {prefix: /a, managed: {replicas: 3, storage: {size: 20Gi, storageClassName: fast}}}"), ""},
		{"accepts a managed etcd on an empty directory", rootShard(external + "etcd: {managed: {storage: {emptyDir: {medium: Memory, sizeLimit: 1Gi}}}}"), ""},
		{"refuses an etcd without endpoints and managed", rootShard(external + "etcd: {prefix: /a}"), "exactly one of endpoints and managed"},
		{"refuses an etcd with endpoints and managed", rootShard(external + "etcd: {endpoints: ['https://a'], managed: {}}"), "exactly one of endpoints and managed"},
		{"refuses client credentials for a managed etcd", rootShard(external + "etcd: {managed: {}, tlsConfig: {secretRef: {name: a}}}"), "tlsConfig goes with endpoints"},
		{"refuses a managed etcd of two members", rootShard(external + "etcd: {managed: {replicas: 2}}"), "spec.etcd.managed.replicas"},
		{"refuses an empty directory with a storage class", rootShard(external + "etcd: {managed: {storage: {emptyDir: {}, storageClassName: fast}}}"), "emptyDir excludes"},
		{"refuses an empty directory with a size", rootShard(external + "etcd: {managed: {storage: {emptyDir: {}, size: 1Gi}}}"), "emptyDir excludes"},

		// Backups.
		{"accepts a BackupStore", backupStore(storeBasics + storeAddress + recipients), ""},
		{"accepts a BackupStore with all settings", backupStore(storeBasics + storeAddress + recipients + "prefix: a/b\nregion: eu\naddressingStyle: VirtualHosted\nmaxUploadRate: 1Mi\nendpointCA: {name: ca, key: ca.crt}"), ""},
		{"accepts an upload rate as a number", backupStore(storeBasics + storeAddress + recipients + "maxUploadRate: 1000000"), ""},
		{"refuses a BackupStore without recipients: nothing is stored in the clear", backupStore(storeBasics + storeAddress), "spec.encryption"},
		{"refuses no recipients", backupStore(storeBasics + storeAddress + "encryption: {recipients: []}"), "spec.encryption.recipients"},
		{"refuses a private key as a recipient", backupStore(storeBasics + storeAddress + "encryption: {recipients: [AGE-SECRET-KEY-1A]}"), "spec.encryption.recipients[0]"},
		{"refuses an endpoint with a path", backupStore(storeBasics + recipients + "endpointURL: https://s3.example.com/bucket"), "spec.endpointURL"},
		{"refuses an endpoint with a password", backupStore(storeBasics + recipients + "endpointURL: https://a:b@s3.example.com"), "spec.endpointURL"},
		{"refuses a prefix that leaves the bucket", backupStore(storeBasics + storeAddress + recipients + "prefix: a/../b"), "prefix has no parts . and .."},
		{"refuses an upload rate that never ends", backupStore(storeBasics + storeAddress + recipients + "maxUploadRate: 1Ki"), "maxUploadRate is at least 64Ki"},
		{"refuses an unknown addressing style", backupStore(storeBasics + storeAddress + recipients + "addressingStyle: Other"), "spec.addressingStyle"},
		{"accepts a lock", backupStore(storeBasics + storeAddress + recipients + "objectLock: {mode: Compliance, retainFor: 720h}"), ""},
		{"refuses an unknown lock", backupStore(storeBasics + storeAddress + recipients + "objectLock: {mode: Forever, retainFor: 720h}"), "spec.objectLock.mode"},
		{"refuses a lock of a century", backupStore(storeBasics + storeAddress + recipients + "objectLock: {mode: Compliance, retainFor: 876000h}"), "retainFor is from 1h to 87600h"},
		{"accepts a Backup", backup("rootShardRef: {name: root}\nstoreRef: {name: s3}"), ""},
		{"refuses a Backup of nothing", backup("storeRef: {name: s3}"), "spec.rootShardRef"},
		{"refuses a reference without a name", backup("rootShardRef: {}\nstoreRef: {name: s3}"), "name must be set"},
		{"refuses a Backup whose name has a dot", named("a.b", backup("rootShardRef: {name: root}\nstoreRef: {name: s3}")), "must not contain a dot"},
		{"accepts a Restore", restore(restoreBasics), ""},
		{"accepts a Restore with all settings", restore(restoreBasics + "manifestDigest: " + strings.Repeat("0a", 32) + "\nsource: {namespace: kcp}\ntakeOver: true\nrelease: true"), ""},
		{"accepts a Restore of a workspace", restore(restoreBasics + "workspace: {path: 'root:acme:team'}"), ""},
		{"refuses a Restore of the workspace root", restore(restoreBasics + "workspace: {path: root}"), "spec.workspace.path"},
		{"refuses a Restore of a workspace into another installation", restore(restoreBasics + "workspace: {path: 'root:acme:team'}\ntakeOver: true"), "cannot be set with workspace"},
		{"refuses a Restore of a shard and of a workspace", restore(restoreBasics + "workspace: {path: 'root:acme:team'}\nshard: {name: alpha}"), "shard and workspace cannot both be set"},
		{"refuses a Restore without a private key", restore("rootShardRef: {name: root}\nstoreRef: {name: s3}\nbackupId: a"), "spec.identity"},
		{"refuses a Restore of no backup", restore("rootShardRef: {name: root}\nstoreRef: {name: s3}\nidentity: {name: age, key: key.txt}"), "spec.backupId"},
		{"refuses the backup of another installation", restore(strings.Replace(restoreBasics, "backupId: a", "backupId: ../a", 1)), "spec.backupId"},
		{"refuses what is no digest", restore(restoreBasics + "manifestDigest: latest"), "spec.manifestDigest"},
		{"refuses a source that leaves the store", restore(restoreBasics + "source: {namespace: ..}"), "spec.source.namespace"},
		{"refuses a Restore whose name is too long for those of its pods", named(strings.Repeat("a", 41), restore(restoreBasics)), "at most 40 characters"},
		{"accepts a RestoreDrill", restoreDrill("schedule: '@weekly'"), ""},
		{"accepts a RestoreDrill with all settings", restoreDrill("schedule: 0 5 * * 0\ntimeZone: Europe/Berlin\nbackupScheduleRef: {name: nightly}\ntimeout: 30m\nsuspend: true\nimmediate: true\nsuccessfulDrillsHistoryLimit: 0\nfailedDrillsHistoryLimit: 20"), ""},
		{"refuses a RestoreDrill without a private key", manifest("RestoreDrill", "schedule: '@weekly'\nrootShardRef: {name: root}\nstoreRef: {name: s3}"), "spec.identity"},
		{"refuses a RestoreDrill without times", restoreDrill(""), "spec.schedule"},
		{"refuses a zone in the schedule of drills", restoreDrill("schedule: TZ=UTC 3 * * *"), "set timeZone"},
		{"refuses a drill without time", restoreDrill("schedule: '@weekly'\ntimeout: 10s"), "timeout is from 1m to 24h"},
		{"refuses a drill that may last for days", restoreDrill("schedule: '@weekly'\ntimeout: 25h"), "timeout is from 1m to 24h"},
		{"refuses a long history", restoreDrill("schedule: '@weekly'\nfailedDrillsHistoryLimit: 21"), "spec.failedDrillsHistoryLimit"},
		{"refuses no BackupSchedule", restoreDrill("schedule: '@weekly'\nbackupScheduleRef: {}"), "name must be set"},
		{"accepts a BackupSchedule", backupSchedule("schedule: 0 3 * * *\ntimeZone: Europe/Berlin\nimmediate: true\nretention: {keepLast: 7, keepWithin: 720h}"), ""},
		{"accepts a schedule by name", backupSchedule("schedule: '@daily'"), ""},
		{"refuses an interval: it does not name times", backupSchedule("schedule: '@every 1h'"), "spec.schedule"},
		{"refuses six fields", backupSchedule("schedule: 0 0 3 * * *"), "spec.schedule"},
		{"refuses a zone in the schedule", backupSchedule("schedule: TZ=UTC 3 * * *"), "set timeZone"},
		{"refuses the zone of a machine", backupSchedule("schedule: 0 3 * * *\ntimeZone: Local"), "timeZone is a name"},
		{"refuses a retention without a rule", backupSchedule("schedule: 0 3 * * *\nretention: {}"), "set keepLast, keepWithin, or both"},
		{"refuses to keep nothing", backupSchedule("schedule: 0 3 * * *\nretention: {keepLast: 0}"), "spec.retention.keepLast"},
		{"refuses to keep days: durations have none", backupSchedule("schedule: 0 3 * * *\nretention: {keepWithin: 30d}"), "spec.retention.keepWithin"},
		{"refuses to keep minutes", backupSchedule("schedule: 0 3 * * *\nretention: {keepWithin: 5m}"), "keepWithin is at least 1h"},
		{"refuses a schedule of nothing", manifest("BackupSchedule", "schedule: 0 3 * * *\nstoreRef: {name: s3}"), "spec.rootShardRef"},
		{"refuses a BackupSchedule whose name is too long for those of its Backups", named(strings.Repeat("a", 36), backupSchedule("schedule: 0 3 * * *")), "at most 35 characters"},

		// Values with bounds.
		{"accepts logging level 10", rootShard(external + "logging: {level: 10}"), ""},
		{"refuses logging level 11", rootShard(external + "logging: {level: 11}"), "spec.logging.level"},
		{"accepts an audit webhook with an empty mode", rootShard(external + "audit: {webhook: {mode: ''}}"), ""},
		{"refuses an audit webhook of an unknown mode", rootShard(external + "audit: {webhook: {mode: loose}}"), "spec.audit.webhook.mode"},
		{"refuses an unknown key algorithm", rootShard(external + "certificateTemplates: {server: {spec: {privateKey: {algorithm: DSA}}}}"), "algorithm"},
		{"accepts unknown names of certificate templates", rootShard(external + "certificateTemplates: {nonsense: {}}"), ""},
		{"refuses one volume mounted twice", rootShard(external + "extraVolumeMounts: [{name: a, mountPath: /a}, {name: a, mountPath: /b}]"), "Duplicate value"},

		// Durations: an invalid one would prevent the operator from decoding any object of the kind.
		{"accepts a duration of several units", kubeconfig(strings.Replace(kubeconfigBasics, "8766h", "1h30m.5s", 1)), ""},
		{"refuses a duration in days", kubeconfig(strings.Replace(kubeconfigBasics, "8766h", "30d", 1)), "spec.validity"},
		{"refuses a duration without unit", rootShard(external + "certificateTemplates: {server: {spec: {duration: '8760'}}}"), "duration"},

		// FrontProxy rules.
		{"accepts the deprecated external name alone", frontProxy("rootShard: {ref: {name: root}}\nexternalHostname: kcp.example.com:443"), ""},
		{"accepts an external address alone", frontProxy("rootShard: {ref: {name: root}}\n" + external), ""},
		{"refuses external address and deprecated name together", frontProxy("rootShard: {ref: {name: root}}\nexternalHostname: a\n" + external), "exclude each other"},
		{"accepts OIDC with service accounts", frontProxy("rootShard: {}\nauth: {oidc: {issuerURL: a, clientID: b}, serviceAccount: {enabled: true}}"), ""},
		{"refuses OIDC without service accounts", frontProxy("rootShard: {}\nauth: {oidc: {issuerURL: a, clientID: b}}"), "oidc needs serviceAccount.enabled"},
		{"refuses OIDC with service accounts switched off", frontProxy("rootShard: {}\nauth: {oidc: {issuerURL: a, clientID: b}, serviceAccount: {enabled: false}}"), "oidc needs serviceAccount.enabled"},
		{"accepts OIDC alone on a shard", rootShard(external + "auth: {oidc: {issuerURL: a, clientID: b}}"), ""},
		{"accepts a list of one empty group to drop", frontProxy("rootShard: {}\nauth: {dropGroups: ['']}"), ""},
		{"refuses a path mapping without client key", frontProxy("rootShard: {}\nadditionalPathMappings: [{path: /a, backend: b, backend_server_ca: c, proxy_client_cert: d}]"), "proxy_client_key"},

		// Shards, cache servers, virtual workspace servers.
		{"accepts a Shard without spec", shard(""), ""},
		{"accepts a Shard whose rootShard is empty, for compatibility", shard("rootShard: {}\netcd: {endpoints: ['https://a']}"), ""},
		{"accepts a Shard without etcd", shard("rootShard: {ref: {name: root}}"), ""},
		{"refuses a Shard without rootShard", shard("etcd: {endpoints: ['https://a']}"), "spec.rootShard"},
		{"accepts a Shard with a cache of its own", shard("rootShard: {ref: {name: root}}\ncache: {ref: {name: europe}}"), ""},
		{"accepts a CacheServer without spec", cacheServer(""), ""},
		{"accepts a CacheServer with an empty spec", cacheServer("replicas: 1"), ""},
		{"refuses several replicas of a CacheServer without etcd", cacheServer("replicas: 2"), "more than one replica needs etcd"},
		{"accepts several replicas of a CacheServer with etcd", cacheServer("replicas: 2\netcd: {endpoints: ['https://a']}"), ""},
		{"accepts a CacheServer whose etcd is managed", cacheServer("replicas: 2\netcd: {managed: {replicas: 3}}"), ""},
		{"refuses a VirtualWorkspace without a target", virtualWorkspace(external + "target: {}"), "exactly one of"},
		{"refuses a VirtualWorkspace with two targets", virtualWorkspace(external + "target: {rootShardRef: {name: a}, shardRef: {name: b}}"), "exactly one of"},
		{"accepts a VirtualWorkspace of a shard", virtualWorkspace(external + "target: {shardRef: {name: b}}"), ""},
		{"refuses a VirtualWorkspace without address", virtualWorkspace("target: {shardRef: {name: b}}"), "spec.external"},
		{"refuses an init container without name", virtualWorkspace(external + "target: {shardRef: {name: b}}\ninitContainers: [{name: ''}]"), "initContainers"},

		// Kubeconfig rules.
		{"accepts a target workspace", kubeconfig(kubeconfigBasics + "targetWorkspace: root:a-1:b"), ""},
		{"refuses a target workspace with an empty segment", kubeconfig(kubeconfigBasics + "targetWorkspace: 'root::b'"), "spec.targetWorkspace"},
		{"refuses a target workspace in capitals", kubeconfig(kubeconfigBasics + "targetWorkspace: Root"), "spec.targetWorkspace"},
		{"accepts roles in the target workspace", kubeconfig(kubeconfigBasics + "targetWorkspace: root:a\nauthorization: {clusterRoleBindings: {clusterRoles: [cluster-admin]}}"), ""},
		{"accepts roles in the deprecated cluster", kubeconfig(kubeconfigBasics + "authorization: {clusterRoleBindings: {cluster: root:a, clusterRoles: [cluster-admin]}}"), ""},
		{"refuses target workspace and deprecated cluster together", kubeconfig(kubeconfigBasics + "targetWorkspace: root:a\nauthorization: {clusterRoleBindings: {cluster: root:a, clusterRoles: [a]}}"), "exclude each other"},
		{"refuses authorization without roles", kubeconfig(kubeconfigBasics + "authorization: {clusterRoleBindings: {}}"), "clusterRoles"},
		{"refuses two targets", kubeconfig(strings.Replace(kubeconfigBasics, "target: {", "target: {rootShardRef: {name: root}, ", 1)), "exactly one of rootShardRef, shardRef and frontProxyRef"},
		{"refuses three targets", kubeconfig(strings.Replace(kubeconfigBasics, "target: {", "target: {rootShardRef: {name: root}, shardRef: {name: a}, ", 1)), "exactly one of"},
		{"refuses no target", kubeconfig(strings.Replace(kubeconfigBasics, "frontProxyRef: {name: main}", "", 1)), "exactly one of"},
		{"accepts groups", kubeconfig(kubeconfigBasics + "groups: ['system:kcp:admin', a]"), ""},
		{"refuses an empty group", kubeconfig(kubeconfigBasics + "groups: ['']"), "spec.groups[0]"},
		{"refuses an empty user", kubeconfig(strings.Replace(kubeconfigBasics, "jane", "''", 1)), "spec.username"},
		{"accepts a validity of an hour", kubeconfig(strings.Replace(kubeconfigBasics, "8766h", "60m", 1)), ""},
		{"refuses a validity below an hour", kubeconfig(strings.Replace(kubeconfigBasics, "8766h", "59m59s", 1)), "validity is at least 1h"},
		{"refuses a negative validity", kubeconfig(strings.Replace(kubeconfigBasics, "8766h", "-2h", 1)), "validity is at least 1h"},
		{"refuses a validity beyond what fits", kubeconfig(strings.Replace(kubeconfigBasics, "8766h", "99999999999h", 1)), "spec.validity"},

		// Addresses.
		{"accepts an IPv6 address", rootShard("external: {hostname: '2001:db8::443', port: 6443}"), ""},
		{"accepts an IPv4 address", virtualWorkspace("external: {hostname: 192.0.2.7, port: 6443}\ntarget: {shardRef: {name: b}}"), ""},
		{"accepts an empty external name of a FrontProxy, for compatibility", frontProxy("rootShard: {}\nexternalHostname: ''"), ""},
		{"refuses a scheme in the name of a RootShard", rootShard("external: {hostname: 'https://kcp.example.com', port: 6443}"), "spec.external.hostname"},
		{"refuses a path in the name of a RootShard", rootShard("external: {hostname: kcp.example.com/a, port: 6443}"), "without scheme, port and path"},
		{"refuses a port in the name of a RootShard", rootShard("external: {hostname: 'kcp.example.com:443', port: 6443}"), "without scheme, port and path"},
		{"refuses a scheme in a private name", rootShard("external: {hostname: a, port: 1, privateHostname: 'https://b'}"), "spec.external.privateHostname"},
		{"refuses a path in the name of a VirtualWorkspace", virtualWorkspace("external: {hostname: a/b, port: 6443}\ntarget: {shardRef: {name: b}}"), "spec.external.hostname"},
		{"refuses a scheme in the name of a FrontProxy", frontProxy("rootShard: {}\nexternal: {hostname: 'https://a', port: 443}"), "spec.external.hostname"},
		{"refuses a scheme in the deprecated name of a FrontProxy", frontProxy("rootShard: {}\nexternalHostname: 'https://a'"), "spec.externalHostname"},
		{"refuses a path in the deprecated name of a FrontProxy", frontProxy("rootShard: {}\nexternalHostname: a/b"), "spec.externalHostname"},
		{"refuses the port 0 of a RootShard", rootShard("external: {hostname: a, port: 0}"), "spec.external.port: Invalid value"},
		{"accepts the last port", rootShard("external: {hostname: a, port: 65535, privatePort: 65535}"), ""},
		{"refuses a port of a RootShard beyond the last", rootShard("external: {hostname: a, port: 65536}"), "must be from 1 to 65535"},
		{"refuses the private port 0", rootShard("external: {hostname: a, port: 1, privatePort: 0}"), "spec.external.privatePort: Invalid value"},
		{"refuses a private port beyond the last", rootShard("external: {hostname: a, port: 1, privatePort: 65536}"), "must be from 1 to 65535"},
		{"refuses a port of a VirtualWorkspace beyond the last", virtualWorkspace("external: {hostname: a, port: 65536}\ntarget: {shardRef: {name: b}}"), "spec.external.port"},
		{"refuses a negative port of a FrontProxy", frontProxy("rootShard: {}\nexternal: {hostname: a, port: -1}"), "spec.external.port"},
		{"accepts an empty address of a FrontProxy, for compatibility", frontProxy("rootShard: {}\nexternal: {hostname: '', port: 0}"), ""},
		{"accepts an empty base URL", shard("rootShard: {}\nshardBaseURL: ''"), ""},
		{"refuses a base URL without TLS", shard("rootShard: {}\nshardBaseURL: 'http://a'"), "shardBaseURL is an https URL"},
		{"accepts an etcd without TLS", shard("rootShard: {}\netcd: {endpoints: ['http://etcd:2379']}"), ""},
		{"refuses an endpoint of etcd without scheme", shard("rootShard: {}\netcd: {endpoints: ['https://a:2379', 'etcd:2379']}"), "spec.etcd.endpoints[1]"},
		{"refuses it on a RootShard", rootShard(external + "etcd: {endpoints: ['etcd:2379']}"), "spec.etcd.endpoints[0]"},

		{"accepts rebalancing", rootShard(external + "rebalance: {mode: Auto, threshold: 30, maxConcurrent: 2, windows: [{start: '22:00', duration: 6h30m, days: [Mon, Sun], timeZone: Europe/Berlin}]}"), ""},
		{"refuses another mode", rootShard(external + "rebalance: {mode: On}"), "spec.rebalance.mode"},
		{"refuses a low threshold", rootShard(external + "rebalance: {threshold: 5}"), "spec.rebalance.threshold"},
		{"refuses a window without an end", rootShard(external + "rebalance: {windows: [{start: '22:00'}]}"), "spec.rebalance.windows[0].duration"},
		{"refuses a window of no time", rootShard(external + "rebalance: {windows: [{start: '22:00', duration: 0s}]}"), "more than 0s, and at most 24h"},
		{"refuses a window of more than a day", rootShard(external + "rebalance: {windows: [{start: '22:00', duration: 25h}]}"), "more than 0s, and at most 24h"},
		{"refuses a time that no day has", rootShard(external + "rebalance: {windows: [{start: '24:00', duration: 1h}]}"), "spec.rebalance.windows[0].start"},
		{"refuses a day that no week has", rootShard(external + "rebalance: {windows: [{start: '22:00', duration: 1h, days: [Monday]}]}"), "spec.rebalance.windows[0].days[0]"},
		{"refuses it on a CacheServer", cacheServer("etcd: {endpoints: ['etcd:2379']}"), "spec.etcd.endpoints[0]"},

		// Replicas.
		{"accepts no replicas", shard("rootShard: {}\nreplicas: 0"), ""},
		{"refuses negative replicas of a RootShard", rootShard(external + "replicas: -1"), "spec.replicas"},
		{"refuses negative replicas of the internal proxy", rootShard(external + "proxy: {replicas: -1}"), "spec.proxy.replicas"},
		{"refuses negative replicas of a Shard", shard("rootShard: {}\nreplicas: -1"), "spec.replicas"},
		{"refuses negative replicas of a CacheServer", cacheServer("replicas: -1"), "spec.replicas"},
		{"refuses negative replicas of a FrontProxy", frontProxy("rootShard: {}\nreplicas: -1"), "spec.replicas"},
		{"refuses negative replicas of a VirtualWorkspace", virtualWorkspace(external + "target: {shardRef: {name: b}}\nreplicas: -1"), "spec.replicas"},

		// Names.
		{"refuses a RootShard with a dot in its name", named("a.b", rootShard(external)), "must not contain a dot"},
		{"accepts the longest name of a RootShard", named(strings.Repeat("a", 40), rootShard(external)), ""},
		{"refuses a longer name of a RootShard", named(strings.Repeat("a", 41), rootShard(external)), "at most 40 characters"},
		{"refuses a Shard with a dot in its name", named("a.b", shard("rootShard: {}")), "must not contain a dot"},
		{"accepts the longest name of a Shard", named(strings.Repeat("a", 27), shard("rootShard: {}")), ""},
		{"refuses a longer name of a Shard", named(strings.Repeat("a", 28), shard("rootShard: {}")), "at most 27 characters"},
		{"refuses a Shard named root", named("root", shard("rootShard: {ref: {name: main}}")), "the name root is that of the shard of the RootShard"},
		{"refuses a Shard with the name of its RootShard", named("main", shard("rootShard: {ref: {name: main}}")), "must not have the name of its RootShard"},
		{"refuses a long name of a Shard without spec", named(strings.Repeat("a", 28), shard("")), "at most 27 characters"},
		{"refuses a CacheServer with a dot in its name", named("a.b", cacheServer("")), "must not contain a dot"},
		{"accepts the longest name of a CacheServer", named(strings.Repeat("a", 50), cacheServer("")), ""},
		{"refuses a longer name of a CacheServer", named(strings.Repeat("a", 51), cacheServer("")), "at most 50 characters"},
		{"refuses a VirtualWorkspace with a dot in its name", named("a.b", virtualWorkspace(external+"target: {shardRef: {name: b}}")), "must not contain a dot"},
		{"refuses a longer name of a VirtualWorkspace", named(strings.Repeat("a", 46), virtualWorkspace(external+"target: {shardRef: {name: b}}")), "at most 45 characters"},
		{"refuses a FrontProxy with a dot in its name", named("a.b", frontProxy("rootShard: {}")), "must not contain a dot"},
		{"refuses a FrontProxy named proxy", named("proxy", frontProxy("rootShard: {}")), "the name proxy is that of the internal proxy"},
		{"accepts the longest name of a FrontProxy", named(strings.Repeat("a", 39), frontProxy("rootShard: {ref: {name: root}}")), ""},
		{"refuses a longer name of a FrontProxy", named(strings.Repeat("a", 40), frontProxy("rootShard: {ref: {name: root}}")), "at most 43 characters together"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, errs := definitions[manifestKind(t, tc.manifest)].admit(t.Context(), tc.manifest)
			switch {
			case tc.refused == "" && len(errs) > 0:
				t.Errorf("refused: %v\n%s", errs.ToAggregate(), tc.manifest)
			case tc.refused != "" && len(errs) == 0:
				t.Errorf("accepted:\n%s", tc.manifest)
			case tc.refused != "" && !strings.Contains(errs.ToAggregate().Error(), tc.refused):
				t.Errorf("refused for another reason than %q: %v", tc.refused, errs.ToAggregate())
			}
		})
	}
}

// TestExistingObjects: an object with a name or an address that is refused for new ones can still be changed, or its status
// could not be written and the finalizer of a Shard not be removed.
func TestExistingObjects(t *testing.T) {
	definitions := load(t)
	for _, manifest := range []string{
		rootShard(external), shard("rootShard: {ref: {name: a.b}}"), cacheServer(""), frontProxy("rootShard: {}"),
		virtualWorkspace(external + "target: {shardRef: {name: b}}"), rootShard("external: {hostname: a, port: 0, privatePort: 65536}"),
	} {
		kind := manifestKind(t, manifest)
		t.Run(kind, func(t *testing.T) {
			existing, err := decode(named("a.b", manifest))
			if err != nil {
				t.Fatal(err)
			}
			changed := runtime.DeepCopyJSON(existing)
			changed["metadata"].(map[string]any)["finalizers"] = []any{"example.com/a"}
			d := definitions[kind]
			ratcheting := cel.WithRatcheting(common.NewCorrelatedObject(changed, existing, &model.Structural{Structural: d.structural}))
			errs, _ := d.rules.Validate(t.Context(), nil, d.structural, changed, existing, celconfig.RuntimeCELCostBudget, ratcheting)
			if len(errs) > 0 {
				t.Error(errs.ToAggregate())
			}
		})
	}
}

func manifestKind(t *testing.T, manifest string) string {
	t.Helper()
	var meta struct {
		Kind string `json:"kind"`
	}
	if err := yaml.Unmarshal([]byte(manifest), &meta); err != nil {
		t.Fatalf("%v in\n%s", err, manifest)
	}
	return meta.Kind
}

// checkRoundTrip checks that the Go types hold an admitted object without loss.
func checkRoundTrip(t *testing.T, object map[string]any) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := operatorv1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	typed, err := scheme.New(operatorv1alpha1.SchemeGroupVersion.WithKind(object["kind"].(string)))
	if err != nil {
		t.Fatal(err)
	}
	want, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(bytes.NewReader(want))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(typed); err != nil {
		t.Errorf("the Go type cannot hold %s: %v", want, err)
	}
}
