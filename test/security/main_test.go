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
	run  func(*testing.T, *site)
}

// always lists attacks that must fail whichever shard b is on.
var always = []attack{
	{"odd paths lead nowhere else", oddPaths},
	{"lists and watches show one workspace", listsAndWatches},
	{"objects cannot claim another workspace", foreignClaims},
	{"writes below system clusters, root and b are refused", foreignWrites},
	{"roles of one workspace give nothing elsewhere", roles},
	{"impersonation stays inside", impersonation},
	{"workspaces keep their owner and place", workspaceObjects},
	{"who creates a workspace is its administrator", creators},
	{"a logical cluster belongs to its workspace", clusterObjects},
	{"a logical cluster is of the type that it was made with", ownType},
	{"issuers of a workspace are believed inside alone", ownIssuers},
	{"a deleted workspace leaves no way in", deletion},
	{"strangers cannot tell what exists", existence},
	{"views of initializers show what waits and nothing of the shard", views},
	{"views of others stay closed", foreignViews},
	{"issuers of a workspace make nobody else", foreignIssuers},
	{"initializers of tenants are tenants", initializersOfTenants},
}

// onOneShard lists attacks on what a shard shares among its workspaces.
var onOneShard = []attack{
	{"odd objects stop nobody else", poison},
	{"heavy definitions are a burden to their own workspace", heavyDefinitions},
	{"webhooks that hang delay their own workspace", hangingConversions},
	{"webhooks that hang keep no other namespaces", hangingNamespaces},
	{"webhooks that hang keep no other workspaces", hangingWorkspaces},
	{"the status of definitions hides nothing", definitionStatus},
	{"garbage of one workspace is no burden to another", garbage},
	{"patches of many kinds do no harm", strategicPatches},
	{"definitions take nothing that is compiled in", definitionsOfBuiltins},
	{"odd JSON reads the same everywhere", oddJSON},
	{"a limit of objects cannot be lifted", objectLimit},
	{"documents about the API tell nothing of another's definitions", documents},
	{"another name of a resource gives no more rights", resourcesByIdentity},
}

// acrossShards lists attacks on servers and on the data that they exchange.
var acrossShards = []attack{
	{"logical clusters elsewhere are refused without a word", elsewhere},
	{"refusals take as long for what does not exist", timing},
	{"marks of servers are none of a tenant's", forgedMarks},
	{"workspaces that another shard is asked for say nothing of themselves", askedFor},
	{"a shard holds its own registration and nothing else", members},
	{"headers make nobody anybody", identityHeaders},
	{"caches are for shards", caches},
	{"endpoints of the whole shard are closed", wholeShard},
	{"odd requests do no harm", oddRequests},
	{"the front proxy names the user", proxyHeaders},
	{"views end with the wait", viewsEnd},
	{"mounts lead no further than their tenant", ownMounts},
	{"homes are their users'", homes},
	{"webhooks show nothing that the shard can reach", ownWebhooks},
	{"a shard in wrong hands does not speak for root, nor for what is on others", rogue},
}

// TestTenantsStayInTheirWorkspace has a and b on one shard of three.
func TestTenantsStayInTheirWorkspace(t *testing.T) {
	attacks(t, together, slices.Concat(always, onOneShard))
}

// TestTenantsStayOnTheirShard has a and b on different shards.
func TestTenantsStayOnTheirShard(t *testing.T) {
	attacks(t, apart, slices.Concat(always, acrossShards))
}

// attacks runs attacks on one installation. None relies on the result of another, and after all of them nothing outside
// of workspace a has changed.
func attacks(t *testing.T, where placement, all []attack) {
	s := start(t, where)
	before := s.others(t)
	for _, attack := range all {
		t.Run(attack.name, func(t *testing.T) { attack.run(t, s) })
	}
	after := s.others(t)
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

// moving matches keys that the shard itself writes all the time, replicas for other shards among them, which follow
// their originals with a delay. A namespace of b that is deleted right after its creation may leave behind its default
// objects when the machine is busy, as in Kubernetes.
var moving = regexp.MustCompile(`/quick/(default|kube-root-ca.crt)$|/leases/|/events/|:/cache/|/~elsewhere/|compact_rev_key`)

// stored returns the content of the etcds of all shards, by "<shard>:<key>".
func (s *site) stored(t *testing.T) map[string][]byte {
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
func (s *site) keys(t *testing.T, containing string) []string {
	t.Helper()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.stored(t))), func(key string) bool {
		return !strings.Contains(key, containing) || strings.Contains(key, "/~elsewhere/")
	})
}

// others returns everything stored for workspace b, root and the system clusters.
func (s *site) others(t *testing.T) map[string][]byte {
	t.Helper()
	stored := s.stored(t)
	foreign := regexp.MustCompile(`/(` + s.b + `|root|system:[a-z-]+)/`)
	maps.DeleteFunc(stored, func(key string, _ []byte) bool {
		return !foreign.MatchString(key) || moving.MatchString(key)
	})
	for key, value := range stored {
		if strings.Contains(key, "/logicalclusters/") || strings.Contains(key, "/core.kcp.io/shards/") {
			stored[key] = withoutNews(value)
		}
	}
	return stored
}

// withoutNews returns an object as JSON without what the shard itself writes: which names definitions and bindings of a
// logical cluster reserve, the status of a Shard, and managed fields. Everything else is unchanged.
func withoutNews(object []byte) []byte {
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
