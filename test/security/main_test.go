package security_test

import (
	"encoding/json"
	"flag"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/klog/v2"
)

// TestMain silences the servers, which log every attack.
func TestMain(m *testing.M) {
	flags := flag.NewFlagSet("klog", flag.PanicOnError)
	klog.InitFlags(flags)
	for name, value := range map[string]string{"logtostderr": "false", "alsologtostderr": "false", "stderrthreshold": "FATAL"} {
		if err := flags.Set(name, value); err != nil {
			panic(err)
		}
	}
	klog.SetOutput(io.Discard)
	os.Exit(m.Run())
}

// attack is an attempt of users of workspace a, and of unauthorized users, to reach workspace b or to disturb the
// installation.
type attack struct {
	name string
	run  func(*testing.T, *env)
}

// commonAttacks lists attacks that must fail whichever shard b is on.
var commonAttacks = []attack{
	{"path traversal", testPathTraversal},
	{"lists and watches", testListsAndWatches},
	{"forged cluster annotations", testForgedClusterMetadata},
	{"writes in system clusters, root and b", testForeignWrites},
	{"roles are limited to their workspace", testRoles},
	{"impersonation is limited to its workspace", testImpersonation},
	{"owner and cluster of workspaces are immutable", testWorkspaceObjects},
	{"the creator of a workspace is its administrator", testCreatorPermissions},
	{"server fields of the LogicalCluster are immutable", testLogicalClusterObject},
	{"the type of a logical cluster is immutable", testWorkspaceType},
	{"workspace issuers authenticate in their workspaces only", testWorkspaceIssuers},
	{"deletion of a workspace deletes its logical cluster", testDeletion},
	{"responses do not reveal existence", testExistence},
	{"initializing virtual workspaces do not expose the shard", testVirtualWorkspaces},
	{"virtual workspaces of other tenants are Forbidden", testForeignVirtualWorkspaces},
	{"workspace issuers cannot issue privileged identities", testForeignIssuers},
	{"tenant initializers cannot write server fields", testTenantInitializers},
}

// sameShardAttacks lists attacks on what a shard shares among its workspaces.
var sameShardAttacks = []attack{
	{"malformed objects", testMalformedObjects},
	{"expensive definitions delay only their workspace", testExpensiveDefinitions},
	{"hanging webhooks", testHangingWebhooks},
	{"unread responses delay only their user", testUnreadResponses},
	{"requests that wait for webhooks have seats of their own", testTenantServers},
	{"forged status of definitions", testDefinitionStatus},
	{"garbage collection of other workspaces is not delayed", testGarbageCollection},
	{"malformed strategic merge patches", testStrategicPatches},
	{"definitions with names of built-in resources", testBuiltinDefinitions},
	{"all readers agree on ambiguous JSON", testAmbiguousJSON},
	{"object limits are enforced", testObjectLimit},
	{"discovery and OpenAPI describe one workspace only", testDocuments},
	{"identity suffixes grant no permissions", testIdentitySuffixes},
}

// crossShardAttacks lists attacks on servers and on the data that they exchange.
var crossShardAttacks = []attack{
	{"refusals for remote logical clusters reveal nothing", testRemoteClusters},
	{"timing of refusals does not reveal existence", testTiming},
	{"forged internal annotations and labels", testForgedMetadata},
	{"remote placement drops tenant metadata", testRemotePlacement},
	{"permissions of a shard certificate", testShardCertificate},
	{"the credentials in the pod of a shard give no power over others", testShardPod},
	{"identity headers of clients are ignored", testIdentityHeaders},
	{"cache access", testCaches},
	{"shard-wide endpoints are Forbidden", testShardEndpoints},
	{"malformed requests", testMalformedRequests},
	{"the front proxy sets the user", testProxyHeaders},
	{"watches end with the initialization", testVirtualWorkspaceEnd},
	{"mounts", testMounts},
	{"home workspaces", testHomeWorkspaces},
	{"webhook errors reveal no responses", testWorkspaceWebhooks},
	{"a compromised shard cannot publish for root or other shards", testRogueShard},
}

// TestTenantIsolationOnOneShard has a and b on one shard of three.
func TestTenantIsolationOnOneShard(t *testing.T) {
	runAttacks(t, sameShard, slices.Concat(commonAttacks, sameShardAttacks))
}

// TestTenantIsolationAcrossShards has a and b on different shards.
func TestTenantIsolationAcrossShards(t *testing.T) {
	runAttacks(t, differentShards, slices.Concat(commonAttacks, crossShardAttacks))
}

// runAttacks runs attacks on one installation. None relies on the result of another, and after all of them nothing
// outside of workspace a has changed.
func runAttacks(t *testing.T, where placement, all []attack) {
	s := newEnv(t, where)
	before := s.foreignState(t)
	for _, attack := range all {
		t.Run(attack.name, func(t *testing.T) { attack.run(t, s) })
	}
	after := s.foreignState(t)
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if string(before[key]) != string(after[key]) {
			t.Errorf("%s was changed or deleted", key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(after)) {
		if _, known := before[key]; !known {
			t.Errorf("%s was created", key)
		}
	}
}

// volatileKeys matches keys that the shard itself writes all the time, replicas for other shards among them, which
// follow their originals with a delay. A namespace of b that is deleted right after its creation may leave behind its
// default objects when the machine is busy, as in Kubernetes.
var volatileKeys = regexp.MustCompile(`/quick/(default|kube-root-ca.crt)$|/leases/|/events/|:/cache/|/~elsewhere|compact_rev_key`)

// etcdContent returns the content of the etcds of all shards, by "<shard>:<key>".
func (e *env) etcdContent(t *testing.T) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for name, shard := range e.shards {
		for key, value := range shard.Stored(t) {
			all[name+":"+key] = value
		}
	}
	return all
}

// keys returns the keys of all shards that contain a text, without those of replicas.
func (e *env) keys(t *testing.T, containing string) []string {
	t.Helper()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(e.etcdContent(t))), func(key string) bool {
		return !strings.Contains(key, containing) || strings.Contains(key, "/~elsewhere/")
	})
}

// foreignState returns everything stored for workspace b, root and the system clusters.
func (e *env) foreignState(t *testing.T) map[string][]byte {
	t.Helper()
	stored := e.etcdContent(t)
	foreign := regexp.MustCompile(`/(` + e.b + `|root|system:[a-z-]+)/`)
	maps.DeleteFunc(stored, func(key string, _ []byte) bool {
		return !foreign.MatchString(key) || volatileKeys.MatchString(key)
	})
	for key, value := range stored {
		if strings.Contains(key, "/logicalclusters/") || strings.Contains(key, "/core.kcp.io/shards/") {
			stored[key] = withoutServerState(value)
		}
	}
	return stored
}

// withoutServerState returns an object as JSON without what the shard itself writes: which names definitions and
// bindings of a logical cluster reserve, the status of a Shard, and managed fields. It changes nothing else.
func withoutServerState(object []byte) []byte {
	var cluster struct {
		Kind         string
		Spec, Status any
		Metadata     struct {
			UID                 string
			Labels, Annotations map[string]string
			DeletionTimestamp   string
		}
	}
	if json.Unmarshal(object, &cluster) != nil {
		return object
	}
	switch cluster.Kind {
	case "Shard":
		cluster.Status = nil
	case "LogicalCluster":
	default:
		return object
	}
	delete(cluster.Metadata.Annotations, "internal.apis.kcp.io/resource-bindings")
	text, err := json.Marshal(cluster)
	if err != nil {
		return object
	}
	return text
}
