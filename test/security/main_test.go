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
	{"odd paths lead nowhere else", testPathTraversal},
	{"lists and watches show one workspace", testListsAndWatches},
	{"objects cannot claim another workspace", testForgedClusterMetadata},
	{"writes below system clusters, root and b are refused", testForeignWrites},
	{"roles of one workspace give nothing elsewhere", testRoles},
	{"impersonation stays inside", testImpersonation},
	{"workspaces keep their owner and place", testWorkspaceObjects},
	{"who creates a workspace is its administrator", testCreatorPermissions},
	{"a logical cluster belongs to its workspace", testLogicalClusterObject},
	{"a logical cluster is of the type that it was made with", testWorkspaceType},
	{"issuers of a workspace are believed inside alone", testWorkspaceIssuers},
	{"a deleted workspace leaves no way in", testDeletion},
	{"strangers cannot tell what exists", testExistence},
	{"views of initializers show what waits and nothing of the shard", testVirtualWorkspaces},
	{"views of others stay closed", testForeignVirtualWorkspaces},
	{"issuers of a workspace make nobody else", testForeignIssuers},
	{"initializers of tenants are tenants", testTenantInitializers},
}

// sameShardAttacks lists attacks on what a shard shares among its workspaces.
var sameShardAttacks = []attack{
	{"odd objects stop nobody else", testMalformedObjects},
	{"heavy definitions are a burden to their own workspace", testExpensiveDefinitions},
	{"webhooks that hang delay their own workspace", testHangingConversions},
	{"webhooks that hang keep no other namespaces", testHangingNamespaces},
	{"webhooks that hang keep no other workspaces", testHangingWorkspaces},
	{"the status of definitions hides nothing", testDefinitionStatus},
	{"garbage of one workspace is no burden to another", testGarbageCollection},
	{"patches of many kinds do no harm", testStrategicPatches},
	{"definitions take nothing that is compiled in", testBuiltinDefinitions},
	{"odd JSON reads the same everywhere", testAmbiguousJSON},
	{"a limit of objects cannot be lifted", testObjectLimit},
	{"documents about the API tell nothing of another's definitions", testDocuments},
	{"another name of a resource gives no more rights", testIdentitySuffixes},
}

// crossShardAttacks lists attacks on servers and on the data that they exchange.
var crossShardAttacks = []attack{
	{"logical clusters elsewhere are refused without a word", testRemoteClusters},
	{"refusals take as long for what does not exist", testTiming},
	{"marks of servers are none of a tenant's", testForgedMetadata},
	{"workspaces that another shard is asked for say nothing of themselves", testRemotePlacement},
	{"a shard holds its own registration and nothing else", testShardCertificate},
	{"headers make nobody anybody", testIdentityHeaders},
	{"caches are for shards", testCaches},
	{"endpoints of the whole shard are closed", testShardEndpoints},
	{"odd requests do no harm", testMalformedRequests},
	{"the front proxy names the user", testProxyHeaders},
	{"views end with the wait", testVirtualWorkspaceEnd},
	{"mounts lead no further than their tenant", testMounts},
	{"homes are their users'", testHomeWorkspaces},
	{"webhooks show nothing that the shard can reach", testWorkspaceWebhooks},
	{"a shard in wrong hands does not speak for root, nor for what is on others", testRogueShard},
}

// TestTenantIsolationOnOneShard has a and b on one shard of three.
func TestTenantIsolationOnOneShard(t *testing.T) {
	runAttacks(t, sameShard, slices.Concat(commonAttacks, sameShardAttacks))
}

// TestTenantIsolationAcrossShards has a and b on different shards.
func TestTenantIsolationAcrossShards(t *testing.T) {
	runAttacks(t, differentShards, slices.Concat(commonAttacks, crossShardAttacks))
}

// runAttacks runs attacks on one installation. None relies on the result of another, and after all of them nothing outside
// of workspace a has changed.
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

// volatileKeys matches keys that the shard itself writes all the time, replicas for other shards among them, which follow
// their originals with a delay. A namespace of b that is deleted right after its creation may leave behind its default
// objects when the machine is busy, as in Kubernetes.
var volatileKeys = regexp.MustCompile(`/quick/(default|kube-root-ca.crt)$|/leases/|/events/|:/cache/|/~elsewhere/|compact_rev_key`)

// etcdContent returns the content of the etcds of all shards, by "<shard>:<key>".
func (s *env) etcdContent(t *testing.T) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for name, shard := range s.shards {
		for key, value := range shard.Stored(t) {
			all[name+":"+key] = value
		}
	}
	return all
}

// keys returns the keys of all shards that contain a text, without those of replicas.
func (s *env) keys(t *testing.T, containing string) []string {
	t.Helper()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.etcdContent(t))), func(key string) bool {
		return !strings.Contains(key, containing) || strings.Contains(key, "/~elsewhere/")
	})
}

// foreignState returns everything stored for workspace b, root and the system clusters.
func (s *env) foreignState(t *testing.T) map[string][]byte {
	t.Helper()
	stored := s.etcdContent(t)
	foreign := regexp.MustCompile(`/(` + s.b + `|root|system:[a-z-]+)/`)
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

// withoutServerState returns an object as JSON without what the shard itself writes: which names definitions and bindings of a
// logical cluster reserve, the status of a Shard, and managed fields. Everything else is unchanged.
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
